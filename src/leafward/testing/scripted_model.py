"""A model that answers what a test has written down."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from leafward.core.calls import Call
from leafward.core.ids import new_id
from leafward.core.json import encode_text
from leafward.core.message import Message
from leafward.core.openai_messages import read_arguments
from leafward.core.parts import Part
from leafward.core.tokens import count_tokens, estimate_tokens
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_events import (
    BlockEnd,
    CallDelta,
    ModelEvent,
    ModelUsage,
    Stop,
    TextDelta,
    ThinkingDelta,
    WholePart,
)

Piece = str | Mapping[str, Any] | ModelEvent | BaseException | type[BaseException] | Callable[..., Any]
"""What may stand in the list of a reply: a text, a part, an event as it is, an error, or a function."""
ScriptedReply = Piece | Message | Sequence[Piece] | None
Script = Sequence[ScriptedReply] | Callable[[ModelRequest], ScriptedReply | Awaitable[ScriptedReply]]

_EVENTS = (TextDelta, ThinkingDelta, CallDelta, BlockEnd, WholePart, ModelUsage, Stop)


def call(name: str, arguments: object = None, *, id: str | None = None) -> Part:
    """Make the part of a tool call, for a scripted reply: `call("search", {"q": "tea"}, id="c1")`.

    A text is sent as the arguments as it is, also if it is not JSON. Without an id the call gets a fresh one.
    """
    text = arguments if isinstance(arguments, str) else encode_text({} if arguments is None else arguments)
    return {
        "type": "tool_use",
        "id": f"call_{new_id()}" if id is None else id,
        "name": name,
        "input": read_arguments(text),
        "content": text,
    }


class ScriptedModel:
    """A model that gives replies from a list, one for each request, or those of a function.

        model = ScriptedModel([[call("search", {"q": "tea"})], "I found tea."])

    A reply is a text, a `Message`, an error to raise, a function, or a list of texts, parts, `ModelEvent`s, errors and
    functions, which are streamed in this order. A function is given the request. What it returns, or what it awaits
    if it is async, is streamed in its place, and `None` is nothing. So is `True`, which lets a reply wait for an event
    of the test: `["Let me look.", lambda _: event.wait(), call("search")]`. Each text is a block of its own; write
    `TextDelta("Let me "), TextDelta("look.")` for pieces of one.

    `requests` holds what the model was asked. `chunk` is how many characters one event brings. Usage is estimated,
    unless a reply contains a `ModelUsage` or `usage` is given for all. A script that has no reply left raises
    `AssertionError`.
    """

    def __init__(self, script: Script, *, chunk: int = 16, usage: ModelUsage | None = None) -> None:
        if isinstance(script, (str, Message)):
            raise ValueError("a script is a list of replies, or a function that returns one")
        if chunk < 1:
            raise ValueError(f"chunk is a number of characters of at least 1, not {chunk}")
        self.requests: list[ModelRequest] = []
        self._script = script if callable(script) else list(script)
        self._chunk = chunk
        self._usage = usage

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream the next reply.

        Raises:
            AssertionError: the script has no reply left.
        """
        request = replace(request, messages=list(request.messages))
        self.requests.append(request)
        return _Stream(request, self._next(request), self._chunk, self._usage).events()

    def _next(self, request: ModelRequest) -> ScriptedReply:
        if callable(self._script):
            return self._script
        number = len(self.requests)
        if number <= len(self._script):
            return self._script[number - 1]
        asked = f"{request.messages[-1]!r}" if request.messages else "no messages"
        raise AssertionError(
            f"the script has {len(self._script)} replies, and the model was asked {number} times, at last: {asked}"
        )


class _Stream:
    """One reply on its way."""

    def __init__(self, request: ModelRequest, reply: ScriptedReply, chunk: int, usage: ModelUsage | None) -> None:
        self._request = request
        self._reply = reply
        self._chunk = chunk
        self._usage = usage
        self._said: list[str] = []
        self._blocks = 0
        self._has_called = self._has_stopped = self._has_usage = False

    async def events(self) -> AsyncGenerator[ModelEvent]:
        async for event in self._streamed(self._reply):
            match event:
                case TextDelta() | ThinkingDelta():
                    self._said.append(event.text)
                case CallDelta():
                    self._has_called = True
                    self._said.append(event.arguments)
                case WholePart():
                    self._has_called = self._has_called or event.part["type"] == "tool_use"
                case ModelUsage():
                    self._has_usage = True
                case Stop():
                    self._has_stopped = True
                case BlockEnd():
                    pass
            yield event
        if not self._has_usage:
            yield self._estimated() if self._usage is None else self._usage
        if not self._has_stopped:
            yield Stop("tool_calls" if self._has_called else "stop")

    async def _streamed(self, reply: object) -> AsyncGenerator[ModelEvent]:
        if callable(reply) and not isinstance(reply, type):
            made: object = reply(self._request)
            async for event in self._streamed(await made if inspect.isawaitable(made) else made):
                yield event
        elif isinstance(reply, Sequence) and not isinstance(reply, str):
            for piece in cast(Sequence[object], reply):
                async for event in self._streamed(piece):
                    yield event
        else:
            for event in self._events(reply):
                yield event

    def _events(self, piece: object) -> Iterator[ModelEvent]:
        if isinstance(piece, str):
            yield from self._part({"type": "text", "text": piece})
        elif isinstance(piece, Mapping):
            yield from self._part(dict(cast(Mapping[str, Any], piece)))
        elif isinstance(piece, Message):
            for part in piece.parts:
                yield from self._part(part)
            if "usage" in piece.extra:
                yield _usage_of(piece.extra["usage"])
        elif isinstance(piece, BaseException):
            raise piece
        elif isinstance(piece, type) and issubclass(piece, BaseException):
            raise piece()
        elif isinstance(piece, _EVENTS):
            yield piece
        elif piece is not None and piece is not True:
            raise AssertionError(f"a scripted reply is a text, a message, parts, events or an error, not {piece!r}")

    def _part(self, part: Part) -> Iterator[ModelEvent]:
        """Yield the events that a reply is collected from into this very part."""
        index = self._blocks
        self._blocks += 1
        fields = {key: value for key, value in part.items() if key not in ("type", "text")}
        kind: object = part.get("type")
        if kind == "text" and isinstance(part.get("text"), str) and part["text"]:
            for number, piece in enumerate(self._cut(part["text"])):
                yield TextDelta(piece, index, fields if fields and not number else None)
            yield BlockEnd(index)
        elif kind == "thinking" and isinstance(part.get("thinking"), str):
            del fields["thinking"]
            yield from (ThinkingDelta(piece, index) for piece in self._cut(part["thinking"]))
            yield ThinkingDelta(index=index, fields=fields)
            yield BlockEnd(index)
        elif kind == "tool_use" and _is_usual_call(part):
            fields = {key: value for key, value in fields.items() if key not in ("id", "name", "input", "content")}
            yield CallDelta("", part["name"], part["id"], index, fields or None)
            yield from (CallDelta(piece, index=index) for piece in self._cut(_written(part)))
            yield BlockEnd(index)
        else:
            yield WholePart(part)

    def _cut(self, text: str) -> Iterator[str]:
        return (text[start : start + self._chunk] for start in range(0, len(text), self._chunk))

    def _estimated(self) -> ModelUsage:
        asked = sum(map(count_tokens, self._request.messages)) + estimate_tokens(self._request.system)
        return ModelUsage(asked, estimate_tokens("".join(self._said)))


def _is_usual_call(part: Part) -> bool:
    """Tell whether a call's text gives its input back, so that it can be streamed."""
    if not all(isinstance(part.get(key), str) and part[key] for key in ("id", "name")) or "input" not in part:
        return False
    text = _written(part)
    return read_arguments(text) == part["input"] and part.get("content", text) == text


def _written(part: Part) -> str:
    return Call(part["id"], part["name"], part["input"], part, Message("assistant", []), 0).written


def _usage_of(usage: Mapping[str, Any]) -> ModelUsage:
    cost = usage.get("cost")
    return ModelUsage(usage.get("inputTokens", 0), usage.get("outputTokens", 0), usage.get("cachedTokens", 0), cost)
