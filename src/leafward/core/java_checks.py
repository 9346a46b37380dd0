"""Messages that a user gives in AgentScope's own form: checked before they are stored, so that Java can read them.

Nearly all are as AgentScope writes them, which one typed decoding finds. Only the others are looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw

from leafward.core.agent_blocks import CallState, ResultState
from leafward.core.agent_message_writer import write_each
from leafward.core.agent_messages import CONTINUES, MsgReader, java_reads
from leafward.core.agent_records import Int32, read_record
from leafward.core.agent_state import AgentState
from leafward.core.errors import StateDecodeError
from leafward.core.json import decode, decode_leniently, encode_text
from leafward.core.pretty import with_escapes

MESSAGE_LISTS = frozenset(
    {"memory_messages", "autoContextMemory_workingMessages", "autoContextMemory_originalMessages"}
)
"""The names under which AgentScope keeps lists of messages."""
AGENT_STATE = "agent_state"
"""The name under which AgentScope 2.x keeps an `AgentState`."""

_ADVICE = "give Message objects, or dicts as AgentScope writes a Msg"
_NotNull = bool | int | float | str | list[Any] | dict[str, Any]
_Anything = dict[str, Raw]


def check_messages(texts: list[str], *, of_1x: bool) -> list[str]:
    """Return the items of a list of messages, each as JSON, in a form that Java reads.

    A message that Java would refuse is written in pieces that it reads, with the original beside them. So the list may
    get longer.

    Raises:
        ValueError: an item is not a message; the text names the item.
    """
    try:
        _list_decoder(of_1x).decode(f"[{','.join(texts)}]")
    except (msgspec.DecodeError, RecursionError):
        given = [(decode_leniently(text), f"item {index}") for index, text in enumerate(texts)]
        made = _readable(given, of_1x=of_1x, roles=False)
        return texts if made is None else [with_escapes(encode_text(item)) for item in made]
    return texts


def check_agent_state(text: str) -> str:
    """Return an agent's state, given as JSON, in a form that Java reads.

    Raises:
        ValueError: Java could not read it; the text names the place.
    """
    try:
        context = _state_decoder().decode(text).context
    except (msgspec.DecodeError, RecursionError):
        context = None
    state: dict[str, Any] = decode_leniently(text) if context is None else decode(text)
    try:
        read_record(AgentState, {key: value for key, value in state.items() if key != "context"})
        if context is not None or state.get("context") is None:
            return text
        read_record(AgentState, {"context": state["context"]})
    except StateDecodeError as error:
        raise ValueError(error.reason) from error
    given = [(item, f"context[{index}]") for index, item in enumerate(state["context"]) if item is not None]
    made = _readable(given, of_1x=False, roles=True)
    return text if made is None else with_escapes(encode_text({**state, "context": made}))


# ── what needs no second look ────────────────────────────────────────────────


@cache
def _list_decoder(of_1x: bool) -> Any:
    return msgspec.json.Decoder(cast(Any, list[_usual_message(of_1x)]))


@cache
def _state_decoder() -> Any:
    shape = msgspec.defstruct("State", [("context", list[_usual_message(False)] | None, None)])
    return msgspec.json.Decoder(cast(Any, shape))


def _usual_message(of_1x: bool) -> Any:
    """Return the shape of a `Msg` that AgentScope surely reads; its roles may not hold every block in 2.x."""
    text, media, others = _usual_blocks(of_1x)
    usage = _shape("Usage", {**dict.fromkeys(("inputTokens", "outputTokens", "cachedTokens"), Int32), "time": float})
    optional = [
        ("name", str | None, None),
        ("metadata", _Anything | None, None),
        ("timestamp", str | None, None),
        ("usage", usage | None, None),
    ]
    if of_1x:
        fields = [("id", str), ("role", Literal["USER", "ASSISTANT", "SYSTEM", "TOOL"])]
        return msgspec.defstruct("Msg", [*fields, ("content", list[text | media | others]), *optional], gc=False)
    held = {"USER": text | media, "SYSTEM": text, "ASSISTANT": text | media | others, "TOOL": text | media | others}
    made = [
        msgspec.defstruct(
            role, [("id", str), ("content", list[blocks]), *optional], tag_field="role", tag=role, gc=False
        )
        for role, blocks in held.items()
    ]
    return _any_of(made)


def _usual_blocks(of_1x: bool) -> tuple[Any, Any, Any]:
    """Return the shapes of blocks: text, media, and others."""
    url = msgspec.defstruct("Url", [("url", str)], tag_field="type", tag="url", gc=False)
    base64 = msgspec.defstruct("Base64", [("media_type", str), ("data", str)], tag_field="type", tag="base64", gc=False)
    source = [("source", url | base64)]
    sizes: dict[str, Any] = dict.fromkeys(("minPixels", "maxPixels", "maxFrames", "totalPixels"), Int32)
    text = _shape("text", {"text": str}, tag="text")
    kinds: list[Any] = [
        _shape("image", sizes, source, tag="image"),
        _shape("audio", {}, source, tag="audio"),
        _shape("video", {**sizes, "fps": float}, source, tag="video"),
    ]
    media: Any = _any_of(kinds if of_1x else [*kinds, _shape("data", {}, source, tag="data")])
    output: list[Any] = [("output", list[text | media])]
    some: list[Any] = [
        _shape("thinking", {"thinking": str, "metadata": _Anything}, tag="thinking"),
        _shape(
            "tool_use",
            {"id": str, "name": str, "content": str, "input": _Anything, "metadata": _Anything, "state": CallState},
            tag="tool_use",
        ),
        _shape(
            "tool_result",
            {"id": str, "name": str, "metadata": dict[str, _NotNull], "state": ResultState},
            output,
            tag="tool_result",
        ),
    ]
    hint: Any = _shape("hint", {"id": str, "hint": str, "source": str}, tag="hint")
    return text, media, _any_of(some if of_1x else [*some, hint])


def _any_of(shapes: list[Any]) -> Any:
    return reduce(lambda one, other: one | other, shapes)


def _shape(name: str, optional: dict[str, Any], needed: list[Any] | None = None, *, tag: str | None = None) -> Any:
    fields = [*(needed or []), *((key, kind | None, None) for key, kind in optional.items())]
    return msgspec.defstruct(name, fields, tag_field=None if tag is None else "type", tag=tag, gc=False)


# ── the others ───────────────────────────────────────────────────────────────


@dataclass
class _Shown:
    """The `Msg` objects that show one message: one, or the pieces that it was written in."""

    items: list[dict[str, Any]]
    are_readable: bool


def _readable(given: list[tuple[Any, str]], *, of_1x: bool, roles: bool) -> list[dict[str, Any]] | None:
    """Return `Msg` objects, each given with its place, such that Java reads them all; `None` if it reads those given.

    Raises:
        ValueError: one of them is not a `Msg`; the text names the place.
    """
    reader = MsgReader(roles=roles)
    shown: list[_Shown] = []
    by_id: dict[str, _Shown] = {}
    for found, where in given:
        item: dict[str, Any] = found
        before = len(reader.messages)
        try:
            reader.read(item, where)
        except StateDecodeError as error:
            raise ValueError(f"{error.reason}: {_ADVICE}") from error
        is_readable = java_reads(item, of_1x=of_1x)
        if len(reader.messages) > before:
            shown.append(_Shown([item], is_readable))
            by_id[reader.messages[-1].id] = shown[-1]
        else:
            # More of a message before it.
            one = by_id[item[CONTINUES]]
            one.items.append(item)
            one.are_readable = one.are_readable and is_readable
    if all(one.are_readable for one in shown):
        return None
    made: list[dict[str, Any]] = []
    for one, written in zip(shown, write_each(reader.messages, of_1x=of_1x), strict=True):
        made += one.items if one.are_readable else written
    return made
