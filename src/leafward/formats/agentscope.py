"""AgentScope's `Msg`: upper-case roles, content blocks, a message of role TOOL for results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from leafward.core.agent_message_writer import with_original
from leafward.core.agent_messages import APART, AT, CONTINUES, NAME, MsgReader
from leafward.core.agent_messages import CARRIED as WHOLE
from leafward.core.agent_pieces import in_pieces, pieces, written_time
from leafward.core.calls import Item, pair
from leafward.core.errors import StateDecodeError
from leafward.core.json_fields import message_list, string, typed_blocks
from leafward.core.message import Message
from leafward.core.parts import Part
from leafward.core.provider_extras import ORIGIN, opaque, raw_of, rest_if_any, without_origin
from leafward.core.times import from_micros, parse_local
from leafward.formats.reading import Messages, checked_messages, refuse

CARRIED = "leafward"
"""The name under which earlier versions carried, in a text block, a part AgentScope has no block for."""

_BLOCKS = frozenset({"text", "thinking", "tool_use", "tool_call", "tool_result", "image", "audio", "video", "data"})
_KNOWN = _BLOCKS | {"hint"}
_ENVELOPE = frozenset({"timestamp", "usage", "content"})
_LATEST = 250_000_000_000_000_000
"""Microseconds since 1970 that a time may have: some thousands of years."""

# ── to AgentScope ────────────────────────────────────────────────────────────


def to_agentscope(messages: Messages) -> list[dict[str, Any]]:
    """Return `Msg` objects that AgentScope for Java reads: all seven keys, roles in upper case, times in local time.

    Nothing is left out, and `from_agentscope` gives back the same messages: a pending call stays pending, a result
    without its call stays a result. AgentScope wants results in messages of role TOOL, so a message that holds them
    beside other parts becomes several `Msg`. A message that AgentScope cannot hold as it is, the first of them
    carries whole, under a key that Java reads past.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = checked_messages(messages)
    payload: list[dict[str, Any]] = []
    for message, items in zip(found, pair(found).items, strict=True):
        payload += _written(message, items)
    return payload


def _written(message: Message, items: Sequence[Item]) -> list[dict[str, Any]]:
    parts = pieces(message, items, opaque=True)
    exact = {} if "timestamp" in message.extra else {AT: message.at}
    head = {**_envelope(message, *parts[0]), **exact}
    return [head] if len(parts) == 1 and _comes_back(head, message) else in_pieces(message, head, parts)


def _comes_back(written: dict[str, Any], message: Message) -> bool:
    if WHOLE in written or CONTINUES in written:
        return False
    try:
        return _read(written, "") == message
    except ValueError:
        return False


def _envelope(message: Message, role: str, content: list[Part]) -> dict[str, Any]:
    extra = {key: value for key, value in message.extra.items() if key not in _ENVELOPE}
    envelope = {
        "id": message.id,
        "name": message.name,
        "role": role,
        "content": content,
        "metadata": message.metadata or {},
        "timestamp": written_time(message),
        "usage": message.extra.get("usage"),
        **extra,
    }
    return with_original(envelope) if rest_if_any(envelope, NAME) is not None else without_origin(envelope)


# ── from AgentScope ──────────────────────────────────────────────────────────


def from_agentscope(payload: Sequence[Any]) -> list[Message]:
    """Read a list of `Msg` objects; a block of an unknown type is kept for AgentScope alone.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    reader = _Reader(roles=False)
    for index, item in enumerate(message_list(payload)):
        reader.read(item, f"messages[{index}]")
    return reader.messages


class _Reader(MsgReader):
    """Reads also what Java does not: roles in lower case, blocks of unknown types."""

    def _read(self, given: dict[str, Any], where: str) -> Message:
        try:
            message = _read(given, where)
            return message if self._may_have(message.id, given) else _read(given, where, self._ids.made_of(message.id))
        except ValueError:
            if "content" not in given:
                raise
            try:
                return self._read_odd(given, where)
            except StateDecodeError:
                pass
            raise


def _read(item: dict[str, Any], where: str, id: str | None = None) -> Message:
    """Read a `Msg`; with `id`, a message that has this one in place of its own."""
    string(item, "role", where)
    if "content" not in item:
        raise ValueError(f"{where}.content is missing")
    content = item["content"]
    if isinstance(content, (list, tuple)):
        blocks = [block for block in cast(Sequence[object], content) if block is not None]
        content = [_read_block(block) for block in typed_blocks(blocks, f"{where}.content")]
    # These mean something else in our own shape, so they wait beside it.
    apart = {key: item[key] for key in APART if key in item}
    fields = {key: value for key, value in item.items() if key not in apart and key != "content"}
    if id is not None:
        apart["id"] = fields["id"]
        fields["id"] = id
    if apart:
        fields[ORIGIN] = {"name": NAME, "rest": apart}
    at = item.get(AT)
    if isinstance(at, int) and not isinstance(at, bool) and abs(at) < _LATEST:
        # We wrote it: what AgentScope always has and we did not is left out again.
        empty: dict[str, Any] = {"name": None, "metadata": {}, "usage": None}
        fields = {key: value for key, value in fields.items() if key not in empty or value != empty[key]}
        fields = {key: value for key, value in fields.items() if key not in ("timestamp", AT)}
        fields["createdAt"] = from_micros(at)
    elif isinstance(fields.get("timestamp"), str):
        try:
            fields["createdAt"] = from_micros(parse_local(fields["timestamp"]))
        except ValueError as error:
            refuse(where, error)
    role = cast(str, fields["role"])
    return _built(
        {**fields, "role": role.lower() if role.isupper() else role, "parts": [] if content is None else content}, where
    )


def _built(fields: dict[str, Any], where: str) -> Message:
    try:
        return Message.from_dict(fields)
    except ValueError as error:
        refuse(where, error)


def _read_block(block: dict[str, Any]) -> Part:
    part = raw_of(block, CARRIED)
    if part is not None and isinstance(part.get("type"), str):
        return part
    if block["type"] not in _KNOWN or ORIGIN in block:
        return opaque(block["type"], NAME, block)
    if block["type"] == "tool_result" and isinstance(block.get("output"), list):
        output = cast(list[object], block["output"])
        restored = [_read_block(cast(Part, each)) if _is_block(each) else each for each in output]
        return {**block, "output": restored}
    return block


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast(Part, value).get("type"), str)
