"""Whether a message that came back from AgentScope for Java says what ours said.

Java drops keys that it does not know, fills in what a block lacks, and keeps times to the millisecond, in its own zone.
None of that is an edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from leafward.core.agent_blocks import by_the_rules
from leafward.core.agent_message_writer import write_each
from leafward.core.agent_messages import AT, CARRIED, CONTINUES, UNREADABLE, read_messages
from leafward.core.calls import own_items
from leafward.core.message import Message, body_to_read, make_message, message_sharing
from leafward.core.parts import Part

_COUNTS = ("inputTokens", "outputTokens", "cachedTokens", "time")
_FIELDS: dict[str, dict[str, object]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "metadata": None},
    "tool_use": {"id": None, "name": None, "input": {}, "content": None, "metadata": {}, "state": "pending"},
    "tool_result": {"id": None, "name": None, "output": [], "metadata": {}, "state": "running"},
    "image": {"source": None, "minPixels": None, "maxPixels": None},
    "audio": {"source": None},
    "video": {
        "source": None,
        "fps": None,
        "maxFrames": None,
        "minPixels": None,
        "maxPixels": None,
        "totalPixels": None,
    },
    # Java makes an id where one is missing.
    "data": {"source": None, "name": None},
    "hint": {"id": None, "hint": None, "source": None},
}
"""What Java knows of each kind of block, and what it takes for a value that is missing."""
_SOURCE = ("type", "url", "mime_type", "media_type", "data")
_REPLACED = ("parts", "name", "metadata", "usage")
"""What an edit by Java replaces of a message. It does not know the other keys."""


def says_the_same(ours: Message, theirs: Message) -> bool:
    """Tell whether a message that Java may have saved is ours, but for what it does to every message."""
    if ours is theirs:
        return True
    body, other = body_to_read(ours), body_to_read(theirs)
    return (
        ours.role == theirs.role
        and body.get("name") == other.get("name")
        and (body["parts"] == other["parts"] or _kept_parts(body["parts"]) == _kept_parts(other["parts"]))
        and _without_nulls(body.get("metadata")) == _without_nulls(other.get("metadata"))
        and _counts(body.get("usage")) == _counts(other.get("usage"))
    )


def with_edit(ours: Message, theirs: Message) -> Message:
    """Return our message with what Java made of it; the keys that Java does not know stay."""
    body, other = body_to_read(ours), body_to_read(theirs)
    made = {key: value for key, value in body.items() if key not in _REPLACED}
    made |= {key: other.get(key) for key in _REPLACED if other.get(key) or key in body}
    return make_message(ours.id, theirs.role, ours.at, {key: value for key, value in made.items() if value is not None})


class Pieces:
    """What Java keeps of messages that it cannot hold: each was written as several messages, or as another one."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def of(self, message: Message) -> list[Message]:
        """Return the messages that Java reads in the place of one; empty if it reads that one, or none."""
        twin = message_sharing(message.id, message.role, message.at, body_to_read(message))
        # Of most messages it does not matter what stands above them.
        return self._all.get(message.id, []) if own_items(twin) is None else _pieces([twin]).get(message.id, [])

    @cached_property
    def _all(self) -> dict[str, list[Message]]:
        return _pieces(self._messages)


def _pieces(messages: Sequence[Message]) -> dict[str, list[Message]]:
    try:
        written = write_each(messages)
    except ValueError:
        # One of them exceeds what Java reads, so none of them was ever written.
        return {}
    found = zip(messages, written, strict=True)
    return {message.id: _read_by_java(msgs) for message, msgs in found if CARRIED in msgs[0]}


def _read_by_java(msgs: Sequence[dict[str, Any]]) -> list[Message]:
    known = [{key: value for key, value in msg.items() if key not in (AT, CARRIED, CONTINUES)} for msg in msgs]
    try:
        return read_messages([(msg, "") for msg in known])
    except UNREADABLE:
        return []


def _kept_parts(parts: Sequence[Part]) -> list[object]:
    return [_kept(part) for part in parts]


def _kept(part: Part) -> object:
    """Return what Java writes of a block that it has read."""
    fields = _FIELDS.get(part["type"])
    if fields is None:
        return part
    block = by_the_rules(part)
    made: dict[str, object] = {"type": part["type"]}
    for key, usual in fields.items():
        value = block.get(key)
        made[key] = usual if value is None else value
    if isinstance(made.get("source"), dict):
        source = cast(dict[str, object], made["source"])
        made["source"] = {key: source[key] for key in _SOURCE if source.get(key) is not None}
    if part["type"] == "tool_result" and isinstance(made["output"], list):
        inner = cast(list[object], made["output"])
        made["output"] = [_kept(cast(Part, one)) if _is_block(one) else one for one in inner]
    return made


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast(Part, value).get("type"), str)


def _without_nulls(metadata: object) -> dict[str, object]:
    found = cast(dict[str, object], metadata) if isinstance(metadata, dict) else {}
    return {key: value for key, value in found.items() if value is not None}


def _counts(usage: object) -> list[object] | None:
    if not isinstance(usage, dict):
        return None
    return [cast(dict[str, object], usage).get(key) or 0 for key in _COUNTS]
