"""The events of an agent as chunks of AI SDK's UI message stream, which `useChat` reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import aclosing
from typing import Any, Literal, cast

from leafward.core.errors import ConfigurationError
from leafward.core.media import read_media
from leafward.core.message import Message
from leafward.core.openai_messages import read_arguments
from leafward.core.parts import Part
from leafward.engine.event_parts import OF_THE_PROGRAM, WholeCharacters, converted, events_of_whole, result_in, sum_of
from leafward.engine.events import AgentEvent
from leafward.engine.models.model_events import ModelUsage
from leafward.formats.ui_messages import CARRIED, KEY, settled, to_ui_messages

Chunk = dict[str, Any]
UIVersion = Literal[5, 6, 7]
"""A major version of the npm package `ai`."""

_REASONS = {
    "stop": "stop",
    "length": "length",
    "filtered": "content-filter",
    "tool_calls": "tool-calls",
}
_KINDS = {"TEXT_BLOCK": "text", "THINKING_BLOCK": "reasoning"}
_DISCARDED = "The attempt failed, and the model is asked again."
_CUT_OFF = "Stopped before the call was complete."


class UIMessageChunks:
    """Converts the events of one stream, one at a time, to the chunks of one assistant's message.

        chunks = UIMessageChunks(version=6)
        async for event in agent.stream(text, ctx):
            for chunk in chunks.add(event):
                yield f"data: {json.dumps(chunk)}\\n\\n"

    `version` is that of the page's `ai` package: an older one refuses chunks that it does not know. With `message_id`
    the page goes on with that message, which holds the calls that were asked about. Each reply of the model is a step
    of the message. What an attempt that failed had shown is taken back by `reset-step` in version 7; before, a
    `data-leafward-discarded` part says that the parts above it, up to the last `step-start`, count for nothing.

    Raises:
        ConfigurationError: there is no such version.
    """

    def __init__(self, *, version: UIVersion, message_id: str | None = None) -> None:
        if version not in (5, 6, 7):
            raise ConfigurationError(f"version is 5, 6 or 7, the major version of the page's `ai` package: {version!r}")
        self._version = version
        self._message_id = message_id
        self._has_started = False
        self._in_step = False
        self._is_step_empty = True
        self._arguments: dict[str, list[str]] = {}
        """What was shown of the arguments of each call of this reply."""
        self._calls: set[str] = set()
        """The calls that the message shows."""
        self._shown: set[str] = set()
        """The replies that the message shows."""
        self._declined: set[str] = set()
        self._characters = WholeCharacters()
        self._stop = ""
        self._used = ModelUsage(0, 0)
        self._reply_id = ""

    def add(self, event: AgentEvent) -> list[Chunk]:
        """Return the chunks that show an event; many events need none."""
        chunks = list(self._chunks(event))
        if chunks and not self._has_started:
            self._has_started = True
            id = self._message_id or event.reply_id
            return [{"type": "start", "messageId": id} if id else {"type": "start"}, *chunks]
        return chunks

    def fail(self, text: str) -> list[Chunk]:
        """Return the chunks that end a stream that raised; `text` is shown to the user."""
        return [{"type": "error", "errorText": text}]

    def _chunks(self, event: AgentEvent) -> Iterator[Chunk]:
        head, _, phase = event.type.rpartition("_")
        if head in _KINDS:
            yield from self._text(event, _KINDS[head], phase)
        elif head == "TOOL_CALL":
            yield from self._call(event, phase)
        else:
            show = _SHOWN_BY.get(event.type)
            if show is not None:
                yield from show(self, event)

    # ── a reply ──────────────────────────────────────────────────────────────

    def _text(self, event: AgentEvent, kind: str, phase: str) -> Iterator[Chunk]:
        id = f"{event.reply_id}:{event.block_id}"
        if phase == "START":
            self._is_step_empty = False
            yield {"type": f"{kind}-start", "id": id}
            return
        piece = self._characters.take(id, event.text) if phase == "DELTA" else self._characters.end(id)
        if piece:
            yield {"type": f"{kind}-delta", "id": id, "delta": piece}
        if phase == "END":
            yield {"type": f"{kind}-end", "id": id}

    def _call(self, event: AgentEvent, phase: str) -> Iterator[Chunk]:
        id = event.call_id
        if phase == "START":
            self._is_step_empty = False
            self._arguments[id] = []
            self._calls.add(id)
            yield {"type": "tool-input-start", "toolCallId": id, "toolName": event.name, "dynamic": True}
            return
        piece = self._characters.take(id, event.text) if phase == "DELTA" else self._characters.end(id)
        if piece:
            self._arguments[id].append(piece)
            yield {"type": "tool-input-delta", "toolCallId": id, "inputTextDelta": piece}
        if phase == "END":
            text = "".join(self._arguments[id])
            whole: Chunk = {"toolCallId": id, "toolName": event.name, "dynamic": True}
            if event.discarded:
                yield {"type": "tool-input-error", **whole, "input": text, "errorText": _CUT_OFF}
            else:
                yield {"type": "tool-input-available", **whole, "input": read_arguments(text)}

    def _part(self, event: AgentEvent) -> Iterator[Chunk]:
        self._is_step_empty = False
        part: Part = event.data
        media = read_media(part)
        if media is None or media.any_url is None:
            yield {"type": CARRIED, "data": part}
            return
        usual = "image/*" if media.kind == "image" else "application/octet-stream"
        yield {"type": "file", "url": media.any_url, "mediaType": media.media_type or usual}

    def _begin_step(self, event: AgentEvent) -> Iterator[Chunk]:
        self._arguments = {}
        if self._in_step and self._is_step_empty:
            return
        if self._in_step:
            yield {"type": "finish-step"}
        self._in_step = self._is_step_empty = True
        yield {"type": "start-step"}

    def _end_reply(self, event: AgentEvent) -> Iterator[Chunk]:
        if event.usage is not None:
            self._used = sum_of(self._used, event.usage)
        if event.discarded:
            yield from self._take_back(event)
            return
        self._stop = event.stop_reason
        yield from self._whole(event)

    def _take_back(self, event: AgentEvent) -> Iterator[Chunk]:
        if self._is_step_empty:
            return
        self._calls -= self._arguments.keys()
        if self._version == 7:
            self._is_step_empty = True
            yield {"type": "reset-step"}
            return
        for id in self._arguments:
            yield {"type": "tool-output-error", "toolCallId": id, "dynamic": True, "errorText": _DISCARDED}
        yield {"type": "data-leafward-discarded", "data": {"replyId": event.reply_id}}

    def _whole(self, event: AgentEvent) -> Iterator[Chunk]:
        """Show a whole reply that was not shown in pieces, and remember that it is shown."""
        message, id = event.message, event.reply_id
        self._reply_id = id
        is_new = id not in self._shown and message is not None
        self._shown.add(id)
        if is_new and message is not None and message.parts:
            yield from self._begin_step(event)
            for piece in events_of_whole(message):
                yield from self._chunks(piece)

    # ── tools ────────────────────────────────────────────────────────────────

    def _result(self, event: AgentEvent) -> Iterator[Chunk]:
        result, id = result_in(event), event.call_id
        if result is None or not (id in self._calls or self._message_id):
            # The page does not show the call.
            return
        if id in self._declined and self._version > 5:
            yield {"type": "tool-output-denied", "toolCallId": id}
            return
        shown = settled(result)
        yield {"type": f"tool-{shown.pop('state')}", "toolCallId": id, "dynamic": True, **shown}

    def _ask(self, event: AgentEvent) -> Iterator[Chunk]:
        yield from self._await(event)
        for part in cast(list[Part], event.data):
            if self._version == 5:
                yield {"type": "data-leafward-question", "id": part["id"], "data": part}
            else:
                yield {"type": "tool-approval-request", "approvalId": part["id"], "toolCallId": part["id"]}

    def _await(self, event: AgentEvent) -> Iterator[Chunk]:
        if self._message_id:
            # The page shows the reply already.
            self._shown.add(event.reply_id)
        yield from self._whole(event)

    def _hear(self, event: AgentEvent) -> Iterator[Chunk]:
        answers = cast(list[dict[str, Any]], event.data)
        self._declined |= {answer["toolCall"]["id"] for answer in answers if not answer["confirmed"]}
        yield from ()

    # ── around ───────────────────────────────────────────────────────────────

    def _custom(self, event: AgentEvent) -> Iterator[Chunk]:
        message = event.message
        if event.name != "input" or message is None:
            yield {"type": f"data-{event.name}", "data": {} if event.name in OF_THE_PROGRAM else event.data}
        elif self._shown:
            # What came before any reply is the question.
            parts = [part for part in _ui_parts(message) if part["type"] in ("text", "file")]
            if self._version == 7 and parts:
                yield {"type": "steering-message", "id": message.id, "parts": parts}
            else:
                yield {"type": "data-leafward-input", "id": message.id, "data": message.to_dict()}

    def _child(self, event: AgentEvent) -> Iterator[Chunk]:
        data = {**event.data, "toolCallId": event.call_id}
        yield {"type": "data-leafward-subagent", "id": data["sessionId"], "data": data}

    def _abort(self, event: AgentEvent) -> Iterator[Chunk]:
        self._stop = "interrupted"
        if self._message_id:
            # What the model had said last, which the page shows already.
            self._shown.add(event.reply_id)
        yield {"type": "abort", "reason": "interrupted"}

    def _begin(self, event: AgentEvent) -> Iterator[Chunk]:
        if self._message_id:
            self._has_started = True
            yield {"type": "start", "messageId": self._message_id}

    def _finish(self, event: AgentEvent) -> Iterator[Chunk]:
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}
        reason = _REASONS.get(self._stop, "other")
        if self._stop == "interrupted" and self._version == 7:
            reason = self._stop
        about = {"replyId": self._reply_id, "usage": self._used.to_dict()}
        yield {"type": "finish", "finishReason": reason, "messageMetadata": {KEY: about}}


_SHOWN_BY: dict[str, Callable[[UIMessageChunks, AgentEvent], Iterator[Chunk]]] = {
    "AGENT_START": UIMessageChunks._begin,  # pyright: ignore[reportPrivateUsage]
    "MODEL_CALL_START": UIMessageChunks._begin_step,  # pyright: ignore[reportPrivateUsage]
    "MODEL_CALL_END": UIMessageChunks._end_reply,  # pyright: ignore[reportPrivateUsage]
    "DATA_BLOCK_DELTA": UIMessageChunks._part,  # pyright: ignore[reportPrivateUsage]
    "TOOL_RESULT_END": UIMessageChunks._result,  # pyright: ignore[reportPrivateUsage]
    "REQUIRE_USER_CONFIRM": UIMessageChunks._ask,  # pyright: ignore[reportPrivateUsage]
    "USER_CONFIRM_RESULT": UIMessageChunks._hear,  # pyright: ignore[reportPrivateUsage]
    "REQUIRE_EXTERNAL_EXECUTION": UIMessageChunks._await,  # pyright: ignore[reportPrivateUsage]
    "CUSTOM": UIMessageChunks._custom,  # pyright: ignore[reportPrivateUsage]
    "SUBAGENT_EXPOSED": UIMessageChunks._child,  # pyright: ignore[reportPrivateUsage]
    "REQUEST_STOP": UIMessageChunks._abort,  # pyright: ignore[reportPrivateUsage]
    "AGENT_RESULT": UIMessageChunks._whole,  # pyright: ignore[reportPrivateUsage]
    "AGENT_END": UIMessageChunks._finish,  # pyright: ignore[reportPrivateUsage]
}


def _ui_parts(message: Message) -> list[Part]:
    return [part for shown in to_ui_messages([message]) for part in shown["parts"]]


async def to_ui_stream(
    events: AsyncIterable[AgentEvent],
    *,
    version: UIVersion,
    message_id: str | None = None,
    on_error: Callable[[Exception], str] | None = None,
) -> AsyncGenerator[Chunk]:
    """Yield the chunks of a stream, each as soon as its event is there.

    A stream that is left is closed, and so is the stream it was made of. An error of the stream is raised. With
    `on_error`, the stream ends with an `error` chunk that shows the text which it returns: it gets the error, and
    decides what the user may read of it.

    Raises:
        Exception: as the stream.
    """
    async with aclosing(converted(events, UIMessageChunks(version=version, message_id=message_id), on_error)) as made:
        async for chunk in made:
            yield chunk
