"""`Msg` objects that Java reads and a message cannot hold as they are: made into usual ones, with the original beside.

Java takes any text as an id, none at all, and no role; it has integers of any size. A message has an id that no other
message of its list has, a role, and integers of 64 bits.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

import msgspec

from leafward.core.agent_blocks import filled
from leafward.core.ids import MessageIds, refusal
from leafward.core.json import MAX_DEPTH, decode, encode_text
from leafward.core.parts import Part

ORIGINAL = ("id", "role")
"""The keys of a `Msg` that a message may have to replace."""

_DEEPEST = MAX_DEPTH - 10
"""How deep a value may stand in a `Msg`; a message nests it a little deeper."""
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
_JSON = re.compile(r"-?[0-9]+|[\[{].*", re.DOTALL)
_sorted = msgspec.json.Encoder(order="sorted").encode

Path = list[str | int]


class Usual(NamedTuple):
    """A `Msg` that a message can hold."""

    msg: dict[str, Any]
    rest: dict[str, Any]
    """Its keys as they were, where they are others now."""
    texts: list[Path]
    """Where the JSON text of a value stands in its place: integers beyond 64 bits, and what is nested deeply."""


def made_usual(msg: dict[str, Any], index: int, taken: MessageIds) -> Usual:
    """Return a `Msg`, whose fields have the types they should have, with an id and a role, and what these replace.

    A missing id is made of the role, the content and the place in the list. An id that is refused here, or that a
    message before it has, is replaced by one made of it.
    """
    content = [block for block in msg.get("content") or () if block is not None]
    texts: list[Path] = []
    usual = _held({**msg, "content": content}, [], texts)
    rest: dict[str, Any] = {}
    if usual.get("role") is None:
        rest["role"] = None
        usual["role"] = "USER"
    id: str = usual.get("id") or ""
    if not id.strip():
        facts: tuple[object, ...] = (index, _sorted([usual["role"], [_filled(block) for block in usual["content"]]]))
    elif id in taken or refusal(id) is not None:
        rest["id"] = id
        facts = (id,)
    else:
        return Usual(usual, rest, texts)
    usual["id"] = taken.made_of(*facts)
    return Usual(usual, rest, texts)


def _filled(block: object) -> object:
    # As Java writes it once it has read it, so that the id stays the same.
    return filled(cast(Part, block)) if isinstance(block, dict) and "type" in block else cast(object, block)


def _held(value: Any, path: Path, texts: list[Path]) -> Any:
    """Return a value as a message can hold it, and note where it is a text now."""
    if isinstance(value, int) and not _LOWEST <= value <= _HIGHEST:
        texts.append(path)
        return str(value)
    if isinstance(value, (dict, list)) and value:
        if len(path) >= _DEEPEST:
            texts.append(path)
            return encode_text(cast(Any, value))
        if isinstance(value, list):
            return [_held(item, [*path, place], texts) for place, item in enumerate(cast(list[Any], value))]
        return {key: _held(item, [*path, key], texts) for key, item in cast(dict[str, Any], value).items()}
    return cast(Any, value)


def restored(msg: dict[str, Any], texts: object) -> dict[str, Any]:
    """Return a `Msg` in which the texts that stand for other values are these again; the given one is not changed."""
    whole = [msg]
    copies = {id(whole)}
    for path in cast(list[object], texts) if isinstance(texts, list) else ():
        if isinstance(path, list):
            _restore(whole, [0, *cast(Path, path)], copies)
    return whole[0]


def _restore(holder: Any, path: Path, copies: set[int]) -> None:
    """Put the value that a text stands for in its place, if there is one; what is not a copy is copied before."""
    *steps, last = path
    for step in steps:
        if not _holds(holder, step):
            return
        if isinstance(holder[step], (dict, list)) and id(holder[step]) not in copies:
            holder[step] = holder[step].copy()
            copies.add(id(holder[step]))
        holder = holder[step]
    if _holds(holder, last):
        holder[last] = _value(holder[last])


def _holds(holder: object, step: object) -> bool:
    if isinstance(holder, dict):
        return isinstance(step, str) and step in holder
    return isinstance(holder, list) and isinstance(step, int) and 0 <= step < len(cast(list[object], holder))


def _value(text: object) -> Any:
    """Return the value whose JSON a text is; a user may have put another text there."""
    try:
        return decode(text) if isinstance(text, str) and _JSON.fullmatch(text) else text
    except (ValueError, RecursionError):
        return text
