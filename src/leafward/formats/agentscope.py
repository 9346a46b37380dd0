"""AgentScope's `Msg`: upper-case roles, content blocks, a message of role TOOL for results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from leafward.core.agent_messages import AT
from leafward.core.agent_messages import CARRIED as WHOLE
from leafward.core.calls import Call, Item, Result, pair
from leafward.core.ids import derived_id
from leafward.core.json import try_parse
from leafward.core.json_fields import message_list, string, typed_blocks
from leafward.core.media import Media, read_media
from leafward.core.message import Message
from leafward.core.parts import Part, is_thinking, is_ui_tool, thinking_text
from leafward.core.provider_extras import ORIGIN, opaque, raw_of, rest_of, without_origin
from leafward.core.times import from_micros, parse_local
from leafward.formats.fallback_text import as_text, output_as_text
from leafward.formats.reading import Messages, checked_messages, refuse
from leafward.formats.turns import role_of

NAME = "agentscope"
CARRIED = "leafward"
"""The name under which a text block carries, beside its text, a part AgentScope has no block for."""
CONTINUES = "leafward_continues"
"""The key of a `Msg` that shows more of the one it names, which carries the whole message."""

_BLOCKS = frozenset({"text", "thinking", "tool_use", "tool_call", "tool_result", "image", "audio", "video", "data"})
_KNOWN = _BLOCKS | {"hint"}
_MEDIA = frozenset({"image", "audio", "video", "data"})
_ENVELOPE = frozenset({"timestamp", "usage", "content", ORIGIN})
_LATEST = 250_000_000_000_000_000
"""Microseconds since 1970 that a time may have: some thousands of years."""

# ── to AgentScope ────────────────────────────────────────────────────────────


def to_agentscope(messages: Messages) -> list[dict[str, Any]]:
    """Return `Msg` objects that AgentScope for Java reads: all seven keys, roles in upper case, times in local time.

    Nothing is left out, and `from_agentscope` gives back the same messages: a pending call stays pending, a result
    without its call stays a result. AgentScope wants results in messages of role TOOL, so a message that holds them
    beside other parts becomes several `Msg`; the first carries the whole message under a key that Java reads past. A
    part that AgentScope has no block for is sent as a text block that carries the part beside its text.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = checked_messages(messages)
    payload: list[dict[str, Any]] = []
    for message, items in zip(found, pair(found).items, strict=True):
        payload += _written(message, items)
    return payload


def _written(message: Message, items: Sequence[Item]) -> list[dict[str, Any]]:
    pieces = _pieces(message, items)
    exact = {} if "timestamp" in message.extra else {AT: message.at}
    head = {**_envelope(message, *pieces[0]), **exact}
    if len(pieces) == 1 and _comes_back(head, message):
        return [head]
    made = [{**head, WHOLE: message.to_dict()}]
    for number, (role, content) in enumerate(pieces[1:], 2):
        piece: dict[str, Any] = {"id": derived_id("msg", message.id, number), "metadata": {}, "usage": None}
        made.append({**_envelope(message, role, content, whole=False), **piece, CONTINUES: message.id})
    return made


def _comes_back(written: dict[str, Any], message: Message) -> bool:
    try:
        return _read(written, "") == message
    except ValueError:
        return False


def _pieces(message: Message, items: Sequence[Item]) -> list[tuple[str, list[Part]]]:
    """Return the blocks of a message by the role that may hold them, in order."""
    usual = {"developer": "SYSTEM"}.get(role_of(message), role_of(message).upper())
    usual = "TOOL" if message.role == "tool" else usual
    pieces: list[tuple[str, list[Part]]] = []
    for item in items:
        role, block = _placed(item, usual)
        if not pieces or pieces[-1][0] != role:
            pieces.append((role, []))
        pieces[-1][1].append(block)
    return pieces or [(usual, [])]


def _placed(item: Item, usual: str) -> tuple[str, Part]:
    if isinstance(item, Call):
        return "ASSISTANT", _call_block(item)
    if isinstance(item, Result):
        # A result in the message of its call is tolerated, but not one that AI SDK keeps in the call's part.
        stays = usual in ("ASSISTANT", "TOOL") and not is_ui_tool(item.part)
        return usual if stays else "TOOL", _result_block(item)
    return usual, _block(item, usual)


def _envelope(message: Message, role: str, content: list[Part], *, whole: bool = True) -> dict[str, Any]:
    return {
        "id": message.id,
        "name": message.name,
        "role": role,
        "content": content,
        "metadata": message.metadata or {},
        "timestamp": _timestamp(message),
        "usage": message.extra.get("usage"),
        **(_more(message) if whole else {}),
    }


def _more(message: Message) -> dict[str, Any]:
    extra = {key: value for key, value in message.extra.items() if key not in _ENVELOPE}
    return {**extra, **rest_of(message.extra, NAME)}


def _timestamp(message: Message) -> str | None:
    extra = message.extra
    if "timestamp" in extra and isinstance(extra["timestamp"], str | None):
        return extra["timestamp"]
    local = from_micros(message.at).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}"


def _block(part: Part, role: str) -> Part:
    raw = raw_of(part, NAME)
    if raw is not None:
        return raw
    kind = part["type"]
    anything = role in ("ASSISTANT", "TOOL")
    if raw_of(part) is None:
        if kind == "text" and isinstance(part.get("text"), str):
            return without_origin(part)
        may_be_file = role != "SYSTEM"
        if (may_be_file and kind in _MEDIA and isinstance(part.get("source"), dict)) or (anything and kind == "hint"):
            return without_origin(part)
        media = read_media(part) if may_be_file else None
        if media is not None and (media.any_url is not None or media.text is not None):
            return _media_block(media)
    if anything and kind == "thinking" and isinstance(part.get("thinking"), str):
        return without_origin(part)
    if anything and is_thinking(part) and thinking_text(part):
        return {**_carried({"type": "thinking", "thinking": thinking_text(part)}, part), "metadata": None}
    return _carried({"type": "text", "text": as_text(part)}, part)


def _carried(block: Part, part: Part) -> Part:
    return {**block, ORIGIN: {"name": CARRIED, "raw": part}}


def _media_block(media: Media) -> Part:
    if media.text is not None:
        return {"type": "text", "text": media.text}
    typed = {"mime_type": media.media_type} if media.media_type else {}
    source: dict[str, Any] = {"type": "url", "url": media.url, **typed}
    if media.data is not None:
        source = {
            "type": "base64",
            "media_type": media.media_type or "application/octet-stream",
            "data": media.data,
        }
    if media.kind != "file":
        return {"type": media.kind, "source": source}
    return {"type": "data", "source": source, **({"name": media.name} if media.name else {})}


def _call_block(call: Call) -> Part:
    if call.part["type"] in ("tool_use", "tool_call"):
        own = without_origin(call.part)
        if call.part["type"] == "tool_use" and not isinstance(own.get("input"), dict):
            # Its reader wants an object, and finds what the model wrote in "content".
            broken = isinstance(call.input, str) and try_parse(call.input) is None
            own |= {"input": {} if broken else call.object_input, "content": call.written}
        return {**own, "id": call.id, "name": call.name}
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": call.object_input,
        "content": call.written,
        "metadata": {},
        "state": "finished",
    }


def _result_block(result: Result) -> Part:
    own = result.part
    if own.get("type") == "tool_result" and "id" in own and isinstance(own.get("output"), list):
        return {**without_origin(own), "output": [_output_block(block) for block in result.blocks]}
    return {
        "type": "tool_result",
        "id": result.call_id,
        "name": result.name,
        "output": [_output_block(block) for block in result.blocks],
        "metadata": {},
        "state": result.state,
    }


def _output_block(block: Part) -> Part:
    made = _block(block, "TOOL")
    return made if made.get("text") != "" else {**made, "text": output_as_text(block)}


# ── from AgentScope ──────────────────────────────────────────────────────────


def from_agentscope(payload: Sequence[Any]) -> list[Message]:
    """Read a list of `Msg` objects; a block of an unknown type is kept for AgentScope alone.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    found: list[Message] = []
    carried: set[str] = set()
    for index, item in enumerate(message_list(payload)):
        continues = item.get(CONTINUES)
        if isinstance(continues, str) and continues in carried:
            continue
        message = _read(item, f"messages[{index}]")
        if WHOLE in item:
            carried.add(message.id)
        found.append(message)
    return found


def _read(item: dict[str, Any], where: str) -> Message:
    if isinstance(item.get(WHOLE), dict):
        return _built(item[WHOLE], where)
    string(item, "role", where)
    if "content" not in item:
        raise ValueError(f"{where}.content is missing")
    content = item["content"]
    if isinstance(content, (list, tuple)):
        blocks = [block for block in cast(Sequence[object], content) if block is not None]
        content = [_read_block(block) for block in typed_blocks(blocks, f"{where}.content")]
    # These mean something else in our own shape, so they wait beside it.
    apart = {key: item[key] for key in ("parts", "createdAt", ORIGIN) if key in item}
    fields = {key: value for key, value in item.items() if key not in apart and key != "content"}
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
