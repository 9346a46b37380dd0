"""The events of an agent as events of AG-UI, the protocol between agents and user interfaces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from leafward.core.fallback_text import output_as_text
from leafward.core.message import Message
from leafward.core.parts import Part
from leafward.engine.ag_ui_messages import AgUiMessages
from leafward.engine.event_parts import OF_THE_PROGRAM, WholeCharacters, converted, events_of_whole, result_in, sum_of
from leafward.engine.events import AgentEvent
from leafward.engine.models.model_events import ModelUsage

AgUi = dict[str, Any]
_PROTOCOL = "1.0"
_ANSWER = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}},
    "required": ["confirmed"],
}
"""The JSON schema of an answer to a question."""


class AgUiEvents:
    """Converts the events of one stream, one at a time, to the events of one run.

        run = AgUiEvents(thread_id, run_id, messages=body["messages"])
        async for event in agent.stream(text, ctx):
            for one in run.add(event):
                yield f"data: {json.dumps(one)}\\n\\n"

    `messages` are those of the request. With them, a `MESSAGES_SNAPSHOT` takes back what an attempt that failed had
    shown; its messages are marked as discarded in their metadata in any case.
    """

    def __init__(self, thread_id: str, run_id: str, *, messages: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._ids = {"threadId": thread_id, "runId": run_id}
        self._messages = None if messages is None else AgUiMessages(messages)
        self._characters = WholeCharacters()
        self._has_started = False
        self._step = ""
        self._steps = 0
        self._shown: set[str] = set()
        """The replies that the run shows."""
        self._open: dict[tuple[str, str], str] = {}
        """The open texts, by reply and block, and their messages."""
        self._texts: list[str] = []
        """The messages of this reply that have ended."""
        self._call_ids: dict[tuple[str, str], str] = {}
        """What each call is called here, by its reply and its id: another reply may use the id again."""
        self._outcome: AgUi = {"type": "success"}
        self._used: ModelUsage | None = None

    def add(self, event: AgentEvent) -> list[AgUi]:
        """Return the events that show an event; some need none."""
        made = list(self._events(event))
        if made and not self._has_started:
            self._has_started = True
            made.insert(0, {"type": "RUN_STARTED", **self._ids, "protocolVersion": _PROTOCOL})
        if self._messages is not None:
            for one in made:
                self._messages.apply(one)
        return made

    def fail(self, text: str) -> list[AgUi]:
        """Return the events that end a run whose stream raised; `text` is shown to the user."""
        start = [] if self._has_started else [{"type": "RUN_STARTED", **self._ids, "protocolVersion": _PROTOCOL}]
        return [*start, {"type": "RUN_ERROR", "message": text}]

    def _events(self, event: AgentEvent) -> Iterator[AgUi]:
        head, _, phase = event.type.rpartition("_")
        if head == "TEXT_BLOCK":
            yield from self._text(event, phase)
        elif head == "THINKING_BLOCK":
            yield from self._thinking(event, phase)
        elif head == "TOOL_CALL":
            yield from self._call(event, phase)
        else:
            show = _SHOWN_BY.get(event.type)
            if show is not None:
                yield from show(self, event)

    # ── a reply ──────────────────────────────────────────────────────────────

    def _text(self, event: AgentEvent, phase: str) -> Iterator[AgUi]:
        block = (event.reply_id, event.block_id)
        if phase == "START":
            # The first text is the message of the reply, and its calls belong to that.
            is_first = event.reply_id not in (*self._open.values(), *self._texts)
            id = self._open[block] = event.reply_id if is_first else f"{event.reply_id}:{event.block_id}"
            yield {"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}
            return
        id = self._open[block]
        piece = self._characters.take(id, event.text) if phase == "DELTA" else self._characters.end(id)
        if piece:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": piece}
        if phase == "END":
            self._texts.append(self._open.pop(block))
            yield {"type": "TEXT_MESSAGE_END", "messageId": id}

    def _thinking(self, event: AgentEvent, phase: str) -> Iterator[AgUi]:
        id = {"messageId": f"{event.reply_id}:{event.block_id}"}
        if phase == "START":
            yield {"type": "REASONING_START", **id}
            yield {"type": "REASONING_MESSAGE_START", **id, "role": "reasoning"}
            return
        own = f"thinking {id['messageId']}"
        piece = self._characters.take(own, event.text) if phase == "DELTA" else self._characters.end(own)
        if piece:
            yield {"type": "REASONING_MESSAGE_CONTENT", **id, "delta": piece}
        if phase == "END":
            yield {"type": "REASONING_MESSAGE_END", **id}
            yield {"type": "REASONING_END", **id}

    def _call(self, event: AgentEvent, phase: str) -> Iterator[AgUi]:
        if phase == "START":
            id = self._new_call_id(event)
            parent = {"parentMessageId": event.reply_id}
            yield {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": event.name, **parent}
            return
        id = self._call_ids[event.reply_id, event.call_id]
        piece = self._characters.take(id, event.text) if phase == "DELTA" else self._characters.end(id)
        if piece:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": piece}
        if phase == "END":
            yield {"type": "TOOL_CALL_END", "toolCallId": id, **(_mark("discarded") if event.discarded else {})}

    def _new_call_id(self, event: AgentEvent) -> str:
        is_used = event.call_id in self._call_ids.values() or self._has_call(event.call_id)
        id = f"{event.call_id}:{event.reply_id}" if is_used else event.call_id
        self._call_ids[event.reply_id, event.call_id] = id
        return id

    def _has_call(self, id: str) -> bool:
        return self._messages is not None and self._messages.has_call(id)

    def _call_id(self, reply_id: str, call_id: str) -> str:
        """Return what a call is called on the page, which an earlier run may have shown."""
        if (reply_id, call_id) in self._call_ids:
            return self._call_ids[reply_id, call_id]
        renamed = f"{call_id}:{reply_id}"
        return renamed if self._has_call(renamed) else call_id

    def _part(self, event: AgentEvent) -> Iterator[AgUi]:
        value = {"messageId": event.reply_id, "part": event.data}
        yield {"type": "CUSTOM", "name": "leafward.part", "value": value}

    def _begin_step(self, event: AgentEvent) -> Iterator[AgUi]:
        yield from self._end_step()
        self._steps += 1
        self._step = f"step {self._steps}"
        self._texts = []
        yield {"type": "STEP_STARTED", "stepName": self._step}

    def _end_step(self) -> Iterator[AgUi]:
        if self._step:
            yield {"type": "STEP_FINISHED", "stepName": self._step}
        self._step = ""

    def _end_reply(self, event: AgentEvent) -> Iterator[AgUi]:
        if event.usage is not None:
            self._used = sum_of(self._used or ModelUsage(0, 0), event.usage)
        if event.discarded:
            yield from self._take_back(event)
        else:
            yield from self._whole(event)

    def _take_back(self, event: AgentEvent) -> Iterator[AgUi]:
        for id in dict.fromkeys(self._texts):
            yield {"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant", **_mark("discarded")}
            yield {"type": "TEXT_MESSAGE_END", "messageId": id}
        calls = [(key, id) for key, id in self._call_ids.items() if key[0] == event.reply_id]
        yield {"type": "CUSTOM", "name": "leafward.discarded", "value": {"messageId": event.reply_id}}
        for key, _ in calls:
            del self._call_ids[key]
        if self._messages is not None and self._messages.discard(event.reply_id):
            yield {"type": "MESSAGES_SNAPSHOT", "messages": self._messages.listed()}

    def _whole(self, event: AgentEvent) -> Iterator[AgUi]:
        """Show a whole reply that was not shown in pieces, and remember that it is shown."""
        message, id = event.message, event.reply_id
        # An earlier run may have shown it.
        is_new = id not in self._shown and (self._messages is None or id not in self._messages)
        self._shown.add(id)
        if is_new and message is not None and message.parts:
            yield from self._begin_step(event)
            for piece in events_of_whole(message):
                yield from self._events(piece)

    # ── tools ────────────────────────────────────────────────────────────────

    def _result(self, event: AgentEvent) -> Iterator[AgUi]:
        result, message = result_in(event), event.message
        if result is None or message is None:
            return
        known = [id for (_, call_id), id in self._call_ids.items() if call_id == event.call_id]
        # `attach` does not say which reply has called.
        id = known[-1] if known and not event.reply_id else self._call_id(event.reply_id, event.call_id)
        words = "\n".join(map(output_as_text, result.blocks))
        mark = {} if event.state == "success" else _mark("state", event.state)
        yield {"type": "TOOL_CALL_RESULT", "messageId": message.id, "toolCallId": id, "content": words, **mark}

    def _ask(self, event: AgentEvent) -> Iterator[AgUi]:
        asked = [self._question(event.reply_id, part) for part in cast(list[Part], event.data)]
        self._outcome = {"type": "interrupt", "interrupts": asked}
        yield from self._whole(event)

    def _question(self, reply_id: str, part: Part) -> AgUi:
        shown = self._call_id(reply_id, part["id"])
        return {
            "id": part["id"],
            "reason": "tool_call",
            "toolCallId": shown,
            "message": f"May {part.get('name', '')} run?",
            "responseSchema": _ANSWER,
            "metadata": {"leafward": {"toolCall": part}},
        }

    def _require(self, event: AgentEvent) -> Iterator[AgUi]:
        yield from self._whole(event)
        ids = [self._call_id(event.reply_id, part["id"]) for part in cast(list[Part], event.data)]
        self._outcome = {"type": "success", "pendingToolCallIds": ids}

    # ── around ───────────────────────────────────────────────────────────────

    def _custom(self, event: AgentEvent) -> Iterator[AgUi]:
        message = event.message
        if event.name != "input" or message is None:
            yield {"type": "CUSTOM", "name": event.name, "value": {} if event.name in OF_THE_PROGRAM else event.data}
        elif self._shown:
            # What came before any reply is the question.
            yield from _spoken(message)

    def _child(self, event: AgentEvent) -> Iterator[AgUi]:
        value = {**event.data, "toolCallId": self._call_id(event.reply_id, event.call_id)}
        yield {"type": "CUSTOM", "name": "leafward.subagent", "value": value}

    def _abort(self, event: AgentEvent) -> Iterator[AgUi]:
        self._outcome = {"type": "cancelled"}
        yield from ()

    def _begin(self, event: AgentEvent) -> Iterator[AgUi]:
        self._has_started = True
        yield {"type": "RUN_STARTED", **self._ids, "protocolVersion": _PROTOCOL}

    def _finish(self, event: AgentEvent) -> Iterator[AgUi]:
        yield from self._end_step()
        usage = {} if self._used is None else {"usage": [_tokens(self._used)]}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": self._outcome, **usage}


_SHOWN_BY: dict[str, Callable[[AgUiEvents, AgentEvent], Iterator[AgUi]]] = {
    "AGENT_START": AgUiEvents._begin,  # pyright: ignore[reportPrivateUsage]
    "MODEL_CALL_START": AgUiEvents._begin_step,  # pyright: ignore[reportPrivateUsage]
    "MODEL_CALL_END": AgUiEvents._end_reply,  # pyright: ignore[reportPrivateUsage]
    "DATA_BLOCK_DELTA": AgUiEvents._part,  # pyright: ignore[reportPrivateUsage]
    "TOOL_RESULT_END": AgUiEvents._result,  # pyright: ignore[reportPrivateUsage]
    "REQUIRE_USER_CONFIRM": AgUiEvents._ask,  # pyright: ignore[reportPrivateUsage]
    "REQUIRE_EXTERNAL_EXECUTION": AgUiEvents._require,  # pyright: ignore[reportPrivateUsage]
    "CUSTOM": AgUiEvents._custom,  # pyright: ignore[reportPrivateUsage]
    "SUBAGENT_EXPOSED": AgUiEvents._child,  # pyright: ignore[reportPrivateUsage]
    "REQUEST_STOP": AgUiEvents._abort,  # pyright: ignore[reportPrivateUsage]
    "AGENT_RESULT": AgUiEvents._whole,  # pyright: ignore[reportPrivateUsage]
    "AGENT_END": AgUiEvents._finish,  # pyright: ignore[reportPrivateUsage]
}


def _mark(key: str, value: object = True) -> AgUi:
    return {"metadata": {"leafward": {key: value}}}


def _spoken(message: Message) -> Iterator[AgUi]:
    """Yield the events of a message of the user's that joined the turn."""
    yield {"type": "TEXT_MESSAGE_START", "messageId": message.id, "role": "user"}
    if message.text:
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message.id, "delta": message.text}
    yield {"type": "TEXT_MESSAGE_END", "messageId": message.id}


def _tokens(used: ModelUsage) -> AgUi:
    return {
        "inputTokens": used.input_tokens,
        "outputTokens": used.output_tokens,
        "totalTokens": used.input_tokens + used.output_tokens,
        "cachedInputTokens": used.cached_tokens,
    }


async def to_ag_ui(
    events: AsyncIterable[AgentEvent],
    thread_id: str,
    run_id: str,
    *,
    messages: Sequence[Mapping[str, Any]] | None = None,
    on_error: Callable[[Exception], str] | None = None,
) -> AsyncGenerator[AgUi]:
    """Yield the AG-UI events of a stream, each as soon as its event is there; `messages` are those of the request.

    A stream that is left is closed, and so is the stream it was made of. An error of the stream is raised. With
    `on_error`, the run ends with `RUN_ERROR`, which shows the text that it returns: it gets the error, and decides what
    the user may read of it.

    Raises:
        Exception: as the stream.
    """
    run = AgUiEvents(thread_id, run_id, messages=messages)
    async with aclosing(converted(events, run, on_error)) as made:
        async for one in made:
            yield one
