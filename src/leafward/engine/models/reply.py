"""The reply of a model, collected from its stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace

from leafward.core.calls import Call
from leafward.core.ids import new_id
from leafward.core.json import copy_plain, try_parse
from leafward.core.message import Message
from leafward.core.openai_messages import read_arguments
from leafward.core.parts import CALLS, Part, is_thinking, thinking_text, tool_name
from leafward.engine.events import AgentEvent, EventType
from leafward.engine.models.call_ids import take_call_id
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.model_events import (
    BlockEnd,
    CallDelta,
    Delta,
    ModelEvent,
    ModelUsage,
    Stop,
    TextDelta,
    ThinkingDelta,
    WholePart,
)

Events = tuple[AgentEvent, ...]

_TYPES: dict[type[Delta], tuple[EventType, EventType, EventType]] = {
    TextDelta: ("TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END"),
    ThinkingDelta: ("THINKING_BLOCK_START", "THINKING_BLOCK_DELTA", "THINKING_BLOCK_END"),
    CallDelta: ("TOOL_CALL_START", "TOOL_CALL_DELTA", "TOOL_CALL_END"),
}
_WHOLE: tuple[EventType, EventType, EventType] = ("DATA_BLOCK_START", "DATA_BLOCK_DELTA", "DATA_BLOCK_END")
_OWN_KEYS = frozenset({"id", "role", "parts", "createdAt", "created_at", "name", "metadata", "usage"})
"""Keys of the message that a model does not set."""
_CUT_OFF = ("length", "filtered")
"""Reasons of a model that stopped before it had written all."""


class _Block:
    """A block of the reply; its pieces are joined when the message is made."""

    __slots__ = (
        "append",
        "call_id",
        "delta",
        "end",
        "fields",
        "has_ended",
        "id",
        "index",
        "is_call",
        "is_id_made",
        "is_whole",
        "kind",
        "name",
        "pieces",
        "sent_id",
    )

    def __init__(self, kind: type[Delta], id: str, index: int | None) -> None:
        self.kind = kind
        self.is_call = kind is CallDelta
        self.id = id
        self.index = index
        self.delta: EventType = _TYPES[kind][1]
        self.end: EventType = _TYPES[kind][2]
        self.pieces: list[str] = []
        self.append = self.pieces.append
        self.fields: dict[str, Any] = {}
        self.has_ended = False
        """Whether its end was shown."""
        self.is_whole = False
        """Whether the model ended it."""
        self.call_id = ""
        self.sent_id = ""
        """The id that the model gave the call; another call of the reply may have it."""
        self.is_id_made = False
        self.name = ""

    def is_another_call(self, event: CallDelta) -> bool:
        """Tell whether a piece of a call begins a call of its own."""
        if event.index is None and event.name:
            return True
        return event.id not in ("", self.sent_id) and not self.is_id_made

    def part(self) -> Part:
        text = _joined(self.pieces)
        if self.kind is TextDelta:
            own: Part = {"type": "text", "text": text}
        elif self.kind is ThinkingDelta:
            own = {"type": "thinking", "thinking": text}
        else:
            # As `leafward.formats` reads the call of a reply that was not streamed.
            own = {
                "type": "tool_use",
                "id": self.call_id,
                "name": self.name,
                "input": read_arguments(text),
                "content": text,
            }
        return {**own, **{key: value for key, value in self.fields.items() if key not in own}}

    @property
    def is_complete(self) -> bool:
        """Whether a call can be run. The beginning of a JSON object is not one, so nothing can follow a whole one."""
        read = None if self.is_whole else try_parse("".join(self.pieces))
        return self.is_whole or (read is not None and isinstance(read[0], dict))


class Reply:
    """Collects what a model yields into one message of the assistant, and gives the events that show it.

        reply = Reply()
        yield reply.begin()
        async for event in stream:
            for shown in reply.add(event):
                yield shown
        for shown in reply.end():
            yield shown
        message = reply.message()

    `id` is the id of the message. An attempt that failed is ended with `discarded=True`; the next one is another
    `Reply`. One that is `given` says what a message says that did not come from the model.
    """

    __slots__ = ("_blocks", "_call_ids", "_fields", "_given", "_last", "_open", "_stop", "id", "is_shown", "usage")

    def __init__(self, *, id: str | None = None, given: Message | None = None) -> None:
        self.id = new_id() if id is None else id
        self.usage: ModelUsage | None = None
        """What the model said last about what it used."""
        self.is_shown = False
        """Whether a start was shown, and no end."""
        self._blocks: list[_Block | Part] = []
        self._call_ids: set[str] = set()
        self._open: dict[int, _Block] = {}
        """Blocks that have an index and have not ended."""
        self._last: _Block | None = None
        """The block of the last piece, unless it has ended."""
        self._stop = ""
        self._fields: Mapping[str, Any] = {}
        self._given = given
        for part in () if given is None else given.parts:
            self._take_whole(part, [])

    # ── events ───────────────────────────────────────────────────────────────

    def begin(self) -> AgentEvent:
        """Return the event that shows that a model is asked."""
        self.is_shown = True
        return AgentEvent("MODEL_CALL_START", self.id)

    def add(self, event: ModelEvent) -> Events:
        """Take what the model yielded, and return what there is to show of it.

        Raises:
            ModelError: it is not an event of a model.
        """
        shown = self.more(event)
        return self._take(event) if shown is None else (shown,)

    def more(self, event: ModelEvent) -> AgentEvent | None:
        """Take one more piece of the block that the last one belonged to, as nearly every event is, and show it.

        `None` means that the event is something else, which was not taken.
        """
        block = self._last
        delta: Any = event
        if block is None or type(event) is not block.kind or delta.index != block.index or delta.fields is not None:
            return None
        if not block.is_call:
            piece = delta.text
        elif delta.id or delta.name:
            return None
        else:
            piece = delta.arguments
        if not piece:
            return None
        block.append(piece)
        return AgentEvent(block.delta, self.id, block.id, piece, block.call_id, block.name)

    def end(self, *, discarded: bool = False) -> Events:
        """End the blocks that are open, and return the last events of the call.

        With `discarded`, they say that nothing of this attempt is kept.
        """
        return self._end("" if discarded else self.stop_reason, discarded)

    def cut_off(self) -> Events:
        """End what was shown of a reply that was stopped; calls that `partial` leaves out are ended as discarded."""
        return self._end("interrupted", False) if self.is_shown else ()

    def _end(self, reason: str, discarded: bool) -> Events:
        events: list[AgentEvent] = []
        self.is_shown = False
        for block in self._blocks:
            if isinstance(block, _Block) and not block.has_ended:
                is_left_out = reason == "interrupted" and block.is_call and not block.is_complete
                self._show_end(block, events, discarded=is_left_out)
        events.append(AgentEvent("MODEL_CALL_END", self.id, usage=self.usage, stop_reason=reason, discarded=discarded))
        return tuple(events)

    def _take(self, event: ModelEvent) -> Events:
        if isinstance(event, CallDelta):
            # Models are written by users.
            if not isinstance(event.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                event = replace(event, id=_call_id(event.id))
            return self._take_piece(event, CallDelta, event.arguments)
        if isinstance(event, TextDelta):
            return self._take_piece(event, TextDelta, event.text)
        if isinstance(event, ThinkingDelta):
            return self._take_piece(event, ThinkingDelta, event.text)
        events: list[AgentEvent] = []
        if isinstance(event, BlockEnd):
            block = self._newest() if event.index is None else self._open.get(event.index)
            if block is not None:
                self._end_block(block, events)
        elif isinstance(event, WholePart):
            self._take_whole(event.part, events)
        elif isinstance(event, ModelUsage):
            self.usage = event
        elif isinstance(event, Stop):  # pyright: ignore[reportUnnecessaryIsInstance]  (models are written by users)
            self._stop = event.reason
            self._fields = event.fields or {}
        else:
            raise ModelError(f"it yielded a {type(event).__name__}, not an event such as TextDelta")
        return tuple(events)

    def _take_piece(self, event: Delta, kind: type[Delta], piece: str) -> Events:
        events: list[AgentEvent] = []
        block = self._newest() if event.index is None else self._open.get(event.index)
        if block is not None and block.kind is not kind:
            block = None
        if block is not None and isinstance(event, CallDelta) and block.is_another_call(event):
            block = None
        if block is None:
            if not piece and event.fields is None and not isinstance(event, CallDelta):
                return ()
            block = self._begin_block(event, kind, events)
        self._last = block
        if event.fields:
            block.fields.update(event.fields)
        if isinstance(event, CallDelta) and not block.name:
            block.name = event.name
        if piece:
            block.append(piece)
            events.append(AgentEvent(block.delta, self.id, block.id, piece, block.call_id, block.name))
        return tuple(events)

    def _take_whole(self, part: object, events: list[AgentEvent]) -> None:
        if not isinstance(part, dict) or not isinstance(cast(Part, part).get("type"), str):
            raise ModelError("it yielded a WholePart that is not a JSON object with a type")
        try:
            # The model still has it.
            whole: Part = copy_plain(cast(Part, part))
        except RecursionError as error:
            raise ModelError("it yielded a WholePart that is nested too deeply") from error
        if whole["type"] in CALLS:
            sent = whole.get("id")
            whole["id"] = self._own_id(sent if isinstance(sent, str) else _call_id(sent))
        self._end_newest(events)
        block_id = str(len(self._blocks))
        self._blocks.append(whole)
        call_id, name, text = "", "", ""
        if whole["type"] in CALLS:
            types, call_id, name = _TYPES[CallDelta], whole["id"], tool_name(whole)
            text = Call(call_id, name, whole.get("input"), whole, Message("assistant", []), 0).written
        elif is_thinking(whole):
            types, text = _TYPES[ThinkingDelta], thinking_text(whole)
        elif whole["type"] == "text":
            types, text = _TYPES[TextDelta], str(whole.get("text", ""))
        else:
            types = _WHOLE
        events.append(AgentEvent(types[0], self.id, block_id, "", call_id, name))
        events.append(AgentEvent(types[1], self.id, block_id, text, call_id, name, data=copy_plain(whole)))
        events.append(AgentEvent(types[2], self.id, block_id, "", call_id, name))

    def _begin_block(self, event: Delta, kind: type[Delta], events: list[AgentEvent]) -> _Block:
        self._end_newest(events)
        if event.index is not None and event.index in self._open:
            self._end_block(self._open[event.index], events)
        block = _Block(kind, str(len(self._blocks)), event.index)
        if isinstance(event, CallDelta):
            block.is_id_made = not event.id
            block.sent_id = event.id
            block.call_id = self._own_id(event.id)
            block.name = event.name
        self._blocks.append(block)
        if event.index is not None:
            self._open[event.index] = block
        events.append(AgentEvent(_TYPES[kind][0], self.id, block.id, call_id=block.call_id, name=block.name))
        return block

    def _own_id(self, sent: str) -> str:
        """Return the id of a call that begins, which no other call of the reply has."""
        return take_call_id(sent or f"call_{new_id()}", self._call_ids)

    def _newest(self) -> _Block | None:
        """Return the block that began last, if it is open."""
        block = self._blocks[-1] if self._blocks else None
        return block if isinstance(block, _Block) and not block.has_ended else None

    def _end_newest(self, events: list[AgentEvent]) -> None:
        """End the newest block, unless it has an index, by which more of it may come."""
        block = self._newest()
        if block is not None and block.index is None:
            self._end_block(block, events)

    def _end_block(self, block: _Block, events: list[AgentEvent]) -> None:
        block.is_whole = True
        self._show_end(block, events)

    def _show_end(self, block: _Block, events: list[AgentEvent], *, discarded: bool = False) -> None:
        if block.has_ended:
            return
        block.has_ended = True
        if block.index is not None:
            del self._open[block.index]
        if self._last is block:
            self._last = None
        events.append(AgentEvent(block.end, self.id, block.id, "", block.call_id, block.name, discarded=discarded))

    # ── the message ──────────────────────────────────────────────────────────

    @property
    def stop_reason(self) -> str:
        """Why the model stopped; where it did not say, `tool_calls` or `stop`."""
        called = any(
            block.kind is CallDelta if isinstance(block, _Block) else block["type"] in CALLS for block in self._blocks
        )
        return self._stop or ("tool_calls" if called else "stop")

    @property
    def is_given(self) -> bool:
        """Whether it did not come from the model, which has used nothing for it."""
        return self._given is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a call nor anything that a user could see: at most thinking and blank text."""
        return all(map(_is_unseen, self._parts(whole=True)))

    def message(self, *, name: str | None = None, metadata: Mapping[str, Any] | None = None) -> Message:
        """Return the whole reply, once the stream has ended.

        Raises:
            ValueError: the model sent what no message can hold.
        """
        parts = self._parts(whole=True)
        last = self._blocks[-1] if self._blocks else None
        if self._stop in _CUT_OFF and isinstance(last, _Block) and last.is_call and not last.pieces:
            # Without any arguments the tool would run with its defaults. This is the beginning of what never came.
            parts[-1]["content"] = "{"
        return self._message(parts, name, metadata)

    def partial(self, *, name: str | None = None, metadata: Mapping[str, Any] | None = None) -> Message | None:
        """Return what there is of the reply so far, without calls whose arguments are not complete.

        `None` means that there is nothing yet.

        Raises:
            ValueError: the model sent what no message can hold.
        """
        parts = self._parts(whole=False)
        return self._message(parts, name, metadata) if parts else None

    def said(self, *, name: str | None = None) -> Message | None:
        """Return what there is of the reply so far without its calls, which were not all there.

        `None` means that there is nothing yet that a user could see.

        Raises:
            ValueError: the model sent what no message can hold.
        """
        parts = [part for part in self._parts(whole=False) if part["type"] not in CALLS]
        return None if all(map(_is_unseen, parts)) else self._message(parts, name, None)

    def _message(self, parts: list[Part], name: str | None, metadata: Mapping[str, Any] | None) -> Message:
        extra = {key: value for key, value in self._fields.items() if key not in _OWN_KEYS}
        if self.usage is not None:
            extra["usage"] = self.usage.to_dict()
        if (given := self._given) is not None:
            name, extra = given.name or name, {**copy_plain(given.extra), **extra}
            metadata = {**copy_plain(given.metadata or {}), **(metadata or {})} or None
        return Message("assistant", parts, id=self.id, name=name, metadata=metadata, **extra)

    def _parts(self, *, whole: bool) -> list[Part]:
        return [
            block.part() if isinstance(block, _Block) else block
            for block in self._blocks
            if whole or not isinstance(block, _Block) or block.kind is not CallDelta or block.is_complete
        ]


def _is_unseen(part: Part) -> bool:
    """Tell a part of which a user sees nothing: thinking, or blank text."""
    return is_thinking(part) or (part["type"] == "text" and not str(part.get("text", "")).strip())


def _call_id(sent: object) -> str:
    """Return the id of a call as text: results name it so. Some models count their calls."""
    return "" if sent is None else str(sent)


def _joined(pieces: list[str]) -> str:
    """Return the text of some pieces; where one ends in the middle of a character, its halves become one."""
    text = "".join(pieces)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
