"""Tool calls and their results, whatever shape they were stored in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from leafward.core.cutting import is_settled
from leafward.core.json import DecodeError, Plain, decode, encode_text
from leafward.core.message import Message
from leafward.core.parts import Part, is_ui_tool, tool_name
from leafward.formats.origin import raw_of

_CALLS = frozenset({"tool_use", "tool_call"})
_FAILED = frozenset({"error", "denied", "interrupted"})


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A request of the model to run a tool."""

    id: str
    name: str
    input: object
    part: Part
    message: Message

    @property
    def arguments(self) -> str:
        """The arguments as JSON text, byte for byte as the model wrote them where that was kept."""
        return _arguments(self.part.get("content"), self.input)

    @property
    def object_input(self) -> dict[str, Any]:
        """The arguments as an object; what is none is wrapped in one, under `arguments`."""
        value = self.input
        written = self.part.get("content")
        if isinstance(written, str) and written.strip() and value in ({}, None) and parsed(written) is None:
            value = written
        read = parsed(value) if isinstance(value, str) else (value,)
        if read is not None and isinstance(read[0], dict):
            return dict(cast(dict[str, Any], read[0]))
        return {} if value is None or value == "" else {"arguments": value}


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What a tool answered, or why it did not."""

    call_id: str
    name: str | None
    output: object
    state: str
    """AgentScope's word: `success`, `error`, `denied`, `interrupted`, or `running` for what is not final."""
    part: Part
    message: Message
    call: Call | None = None
    """The call, when both stand in one part."""

    @property
    def failed(self) -> bool:
        return self.state in _FAILED

    @property
    def blocks(self) -> list[Part]:
        """The output as blocks with a type; a plain value is one block of text."""
        value = self.output
        if value is None:
            return []
        if isinstance(value, list):
            items = [item for item in cast(list[object], value) if item is not None]
            if all(isinstance(item, dict) and isinstance(cast(Part, item).get("type"), str) for item in items):
                return cast(list[Part], items)
        return [{"type": "text", "text": value if isinstance(value, str) else encode_text(cast(object, value))}]


Item = Part | Call | Result


def items_of(message: Message) -> Iterator[Item]:
    """Yield the parts of a message in order, with calls and results read as such."""
    for index, part in enumerate(message.parts):
        if raw_of(part) is not None:
            yield part
        elif part["type"] in _CALLS:
            yield _call(part, part.get("id"), message, index)
        elif is_ui_tool(part):
            call = _call(part, part["toolCallId"], message, index)
            yield call
            result = _ui_result(call)
            if result is not None:
                yield result
        elif part["type"] == "tool_result":
            yield _result(part, message)
        else:
            yield part


def stand_in(call: Call) -> Result:
    """Return what is said in place of a result that never came."""
    text = f"The call of {call.name or 'this tool'} was interrupted before a result came. It may or may not have run."
    return Result(call.id, call.name, text, "interrupted", {}, call.message)


def made_id(prefix: str, *facts: object) -> str:
    """Return an id that is the same whenever the facts are."""
    digest = hashlib.blake2b(repr(facts).encode("utf-8", "surrogatepass"), digest_size=12)
    return f"{prefix}_{digest.hexdigest()}"


def read_arguments(text: str) -> object:
    """Return what the arguments of a call mean; text that is no JSON means itself."""
    if not text.strip():
        return {}
    read = parsed(text)
    return text if read is None else read[0]


def parsed(text: str) -> tuple[Any] | None:
    """Return the JSON value of a text in a tuple, or nothing when a message could not hold it."""
    try:
        value = decode(text)
        # A part nests its input a few levels deep, and a message nests no deeper than it can store.
        return (Plain().copy(value, 8),)
    except (DecodeError, ValueError, RecursionError):
        return None


def _arguments(written: object, value: object) -> str:
    if isinstance(written, str):
        read = parsed(written)
        if value == (written if read is None else read[0]) or (read is None and value in ({}, None)):
            return written
    if isinstance(value, str):
        return value
    return encode_text({} if value is None else value)


def _call(part: Part, call_id: object, message: Message, index: int) -> Call:
    known = call_id if isinstance(call_id, str) and call_id else made_id("call", message.id, index)
    return Call(known, tool_name(part), part.get("input"), part, message)


def _ui_result(call: Call) -> Result | None:
    part = call.part
    if not is_settled(part):
        return None
    state = str(part.get("state"))
    output, outcome = _ui_output(part), {"output-error": "error", "output-denied": "denied"}.get(state, "success")
    return Result(call.id, call.name, output, outcome, part, call.message, call)


def _ui_output(part: Part) -> object:
    keys = ("errorText", "output", "result") if part.get("state") == "output-error" else ("output", "result")
    for key in keys:
        if part.get(key) is not None:
            return part[key]
    if part.get("state") == "output-denied":
        approval: object = part.get("approval")
        reason = cast(Part, approval).get("reason") if isinstance(approval, dict) else None
        return reason if isinstance(reason, str) and reason else "The user denied this call."
    return None


def _result(part: Part, message: Message) -> Result:
    call_id = part.get("tool_use_id", part.get("id"))
    output = part.get("output", part.get("content"))
    state = part.get("state")
    if not isinstance(state, str):
        state = "error" if part.get("is_error") is True else "success"
    name = tool_name(part) or None
    return Result(call_id if isinstance(call_id, str) else "", name, output, state, part, message)
