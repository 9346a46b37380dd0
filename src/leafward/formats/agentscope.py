"""AgentScope's `Msg`: upper-case roles, content blocks, a message of role TOOL for results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from leafward.core.message import Message
from leafward.core.parts import Part, is_thinking, thinking_text
from leafward.core.times import from_micros
from leafward.formats.calls import Call, Item, Result, made_id, parsed
from leafward.formats.media import Media, read_media
from leafward.formats.origin import ORIGIN, opaque, raw_of, rest_of, without_origin
from leafward.formats.reading import Messages, checked_messages, object_list, refuse, string, typed_blocks
from leafward.formats.turns import Answers, Turn, media_to_user, turns
from leafward.formats.wording import as_text

NAME = "agentscope"
CARRIED = "leafward"
"""The name under which a text block carries, beside its text, a part AgentScope has no block for."""

_BLOCKS = frozenset({"text", "thinking", "tool_use", "tool_call", "tool_result", "image", "audio", "video", "data"})
_KNOWN = _BLOCKS | {"hint"}
_MEDIA = frozenset({"image", "audio", "video", "data"})
_ENVELOPE = frozenset({"timestamp", "usage", "content", ORIGIN})
_MAX_ID = 255

# ── to AgentScope ────────────────────────────────────────────────────────────


def to_agentscope(messages: Messages) -> list[dict[str, Any]]:
    """Return `Msg` objects that AgentScope for Java reads: all seven keys, roles in upper case, times in local time.

    A reader refuses a message with an unknown block, so a part that has none is sent as a text block that carries
    the part beside its text: AgentScope shows the text, and `from_agentscope` gives the part back.

    Raises:
        ValueError: something in `messages` is no message.
    """
    found = turns(checked_messages(messages), in_place=True)
    entries = media_to_user(found, may_send=("user", "assistant"), from_results=False)
    writer = _Writer()
    for entry in entries:
        if isinstance(entry, Answers):
            for call, result in entry.pairs:
                writer.answer(call, result)
        else:
            writer.say(entry)
    return writer.payload


class _Writer:
    """Writes messages, keeping together what one message held."""

    def __init__(self) -> None:
        self.payload: list[dict[str, Any]] = []
        self._last: Message | None = None
        self._ids: set[str] = set()
        self._written: set[int] = set()

    def say(self, turn: Turn) -> None:
        role = {"developer": "SYSTEM"}.get(turn.role, turn.role.upper())
        if self._last is turn.message and self.payload[-1]["role"] == "TOOL" and turn.message.role == "tool":
            self.payload[-1]["content"] += _blocks(turn.items, "TOOL")
            return
        self._add(turn.message, role, _blocks(turn.items, role), turn.message.id)

    def answer(self, call: Call, result: Result) -> None:
        block = _result_block(call, result)
        apart = result.message.role == "tool" and bool(result.part)
        if apart and self._last is result.message and self.payload[-1]["role"] == "TOOL":
            self.payload[-1]["content"].append(block)
            return
        # A result that stood in its call's message, or never came, gets a message of its own.
        message_id = result.message.id if apart else made_id("result", call.message.id, call.id)
        self._add(result.message, "TOOL", [block], message_id, derived=not apart)

    def _add(self, message: Message, role: str, content: list[Part], message_id: str, *, derived: bool = False) -> None:
        count = 1
        free = message_id
        while free in self._ids:
            count += 1
            free = f"{message_id[: _MAX_ID - 8]}_{count}"
        self._ids.add(free)
        # What belongs to the whole message stands in the first of those it became.
        whole = not derived and id(message) not in self._written
        if not derived:
            self._written.add(id(message))
        self._last = None if derived else message
        self.payload.append(
            {
                "id": free,
                "name": message.name,
                "role": role,
                "content": content,
                "metadata": (message.metadata or {}) if whole else {},
                "timestamp": _timestamp(message),
                "usage": message.extra.get("usage") if whole else None,
                **(_more(message) if whole else {}),
            }
        )


def _more(message: Message) -> dict[str, Any]:
    extra = {key: value for key, value in message.extra.items() if key not in _ENVELOPE}
    return {**extra, **rest_of(message.extra, NAME)}


def _timestamp(message: Message) -> str | None:
    extra = message.extra
    if "timestamp" in extra and isinstance(extra["timestamp"], str | None):
        return extra["timestamp"]
    local = from_micros(message.at).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}"


def _blocks(items: Sequence[Item], role: str) -> list[Part]:
    blocks: list[Part] = []
    calls = {item.id: item for item in items if isinstance(item, Call)}
    for item in items:
        if isinstance(item, Call):
            blocks.append(_call_block(item))
        elif isinstance(item, Result):
            blocks.append(_result_block(calls[item.call_id], item))
        else:
            blocks.append(_block(item, role))
    return blocks


def _block(part: Part, role: str) -> Part:
    raw = raw_of(part, NAME)
    if raw is not None:
        return raw
    kind = part["type"]
    anything = role in ("ASSISTANT", "TOOL")
    if raw_of(part) is None:
        if kind == "text" and isinstance(part.get("text"), str):
            return without_origin(part)
        if (kind in _MEDIA and isinstance(part.get("source"), dict)) or (anything and kind == "hint"):
            return without_origin(part)
        media = read_media(part)
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
            broken = isinstance(call.input, str) and parsed(call.input) is None
            own |= {"input": {} if broken else call.object_input, "content": call.arguments}
        return {**own, "id": call.id, "name": call.name}
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": call.object_input,
        "content": call.arguments,
        "metadata": {},
        "state": "finished",
    }


def _result_block(call: Call, result: Result) -> Part:
    own = result.part
    if own.get("type") == "tool_result" and "id" in own and isinstance(own.get("output"), list):
        kept = {**without_origin(own), "output": [_block(block, "TOOL") for block in result.blocks]}
        return kept if own.get("id") == call.id else {**kept, "id": call.id}
    return {
        "type": "tool_result",
        "id": call.id,
        "name": result.name or call.name,
        "output": [_block(block, "TOOL") for block in result.blocks],
        "metadata": {},
        "state": result.state,
    }


# ── from AgentScope ──────────────────────────────────────────────────────────


def from_agentscope(payload: Sequence[Any]) -> list[Message]:
    """Read a list of `Msg` objects; a block of an unknown type is kept for AgentScope alone.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    return [_read(item, f"messages[{index}]") for index, item in enumerate(object_list(payload, "messages"))]


def _read(item: dict[str, Any], where: str) -> Message:
    string(item, "role", where)
    if "content" not in item:
        raise ValueError(f"{where}.content is missing")
    content = item["content"]
    if isinstance(content, (list, tuple)):
        blocks = [block for block in cast(Sequence[object], content) if block is not None]
        content = [_read_block(block) for block in typed_blocks(blocks, f"{where}.content")]
    # These mean something else in our own shape, so they wait beside it.
    apart = {key: item[key] for key in ("parts", "createdAt", ORIGIN) if key in item}
    fields = {key: value for key, value in item.items() if key not in apart}
    if apart:
        fields[ORIGIN] = {"name": NAME, "rest": apart}
    try:
        return Message.from_dict({**fields, "content": content})
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
