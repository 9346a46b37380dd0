"""OpenAI's chat completions: messages with `tool_calls`, and a `tool` message for each result."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from leafward.core.calls import Call, Result
from leafward.core.media import AUDIO_FORMATS, DETAILS, read_media
from leafward.core.message import Message
from leafward.core.openai_messages import NAME, read_openai_messages
from leafward.core.parts import Part, plain_block_text
from leafward.core.provider_extras import raw_of, rest_of, without_origin
from leafward.formats.fallback_text import as_text, output_as_text
from leafward.formats.limits import function_name, short_id
from leafward.formats.openai_custom import custom_input, is_custom
from leafward.formats.reading import Messages, build, checked_messages
from leafward.formats.turns import Answers, Turn, media_to_user, turns, with_ids

_LONGEST_ID = 40
_REPLY_ONLY = frozenset({"annotations", "parsed"})
_NEVER_EMPTY = frozenset({"tool_calls", "function_call", "audio", "name"})
_REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]+")
_MAX_NAME = 64

# ── to OpenAI ────────────────────────────────────────────────────────────────


def to_openai_chat(messages: Messages) -> list[dict[str, Any]]:
    """Return messages for `client.chat.completions.create(messages=...)`.

    Files in a tool's result follow it in a user's message, for results hold text only. Thinking is sent as text
    between `<thinking>` tags, unless it came in a field of this format. Arguments that are not a JSON object are sent
    as one; parts for a screen and parts of unknown types are not sent.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    # Some servers number the calls of each reply from 0, and pair them in the reply: such ids may come again.
    found = with_ids(turns(checked_messages(messages)), lambda one: short_id(one, _LONGEST_ID), everywhere=False)
    payload: list[dict[str, Any]] = []
    for entry in media_to_user(found, may_send=("user",), from_results=True):
        if isinstance(entry, Answers):
            payload += [_tool_message(call, result) for call, result in entry.pairs]
        else:
            payload += _spoken(entry)
    return payload


def _spoken(turn: Turn) -> list[dict[str, Any]]:
    kept = rest_of(turn.message.extra, NAME) if turn.first else {}
    calls = [item for item in turn.items if isinstance(item, Call)]
    more = _sent(cast(dict[str, Any], kept.get("fields", {})))
    heard = "audio" in more
    parts = [
        part for item in turn.items if isinstance(item, dict) and (part := _without_transcript(heard, item)) is not None
    ]
    fields = _fields(parts) if turn.role == "assistant" else {}
    blocks = [block for part in parts if not (fields and _field_of(part)) for block in _blocks(part, turn.role)]
    if turn.items and not (blocks or fields or calls or heard):
        # Nothing in it that this model could read, such as reasoning encrypted for another.
        return []
    says_else = bool(calls or fields.get("refusal") or heard)
    content = _content(blocks, kept.get("form"), says_else=says_else, calls=bool(calls))
    message: dict[str, Any] = {"role": turn.role, **content, **fields}
    name = _name(turn)
    if name is not None:
        message["name"] = name
    modern = [call for call in calls if not _is_legacy(call)]
    if modern:
        message["tool_calls"] = [_tool_call(call) for call in modern]
    for call in calls:
        if _is_legacy(call):
            message["function_call"] = {"name": function_name(call.name), "arguments": call.arguments}
    return [{**message, **more}]


def _sent(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the other fields of a reply without those that a request may not have, or not empty."""
    found = {
        key: value
        for key, value in fields.items()
        if key not in _REPLY_ONLY and not (key in _NEVER_EMPTY and not value)
    }
    audio: object = found.pop("audio", None)
    recording = cast(Part, audio) if isinstance(audio, dict) else {}
    if isinstance(recording.get("id"), str) and not _is_past(recording.get("expires_at")):
        found["audio"] = {"id": recording["id"]}
    return found


def _without_transcript(heard: bool, part: Part) -> Part | None:
    """Return a part, but not the transcript of a recording that is sent itself."""
    if _came_in(part) != "audio":
        return part
    return None if heard else without_origin(part)


def _is_past(moment: object) -> bool:
    """Tell whether a moment, in seconds since 1970, has passed."""
    return isinstance(moment, (int, float)) and moment <= time.time()


def _name(turn: Turn) -> str | None:
    name = turn.message.name
    if name is None and turn.role == "user" and turn.message.role.lower() not in ("user", "tool", "function"):
        name = turn.message.role if turn.message.role.lower() not in ("assistant", "system", "developer") else None
    return None if not name else _REFUSED_IN_NAMES.sub("_", name)[:_MAX_NAME]


def _fields(parts: list[Part]) -> dict[str, Any]:
    """Return the parts that are fields of the message itself: a refusal, reasoning."""
    fields: dict[str, Any] = {}
    for part in parts:
        field = _field_of(part)
        if field is not None:
            words = cast(str, part["refusal"] if field == "refusal" else part["thinking"])
            fields[field] = f"{fields[field]}\n{words}" if field in fields else words
    return fields


def _came_in(part: Part) -> object:
    """Return the field of the message that this part was read from."""
    return rest_of(part, NAME).get("field")


def _field_of(part: Part) -> str | None:
    field = _came_in(part)
    known = "refusal" if part["type"] == "refusal" else "thinking"
    return field if isinstance(field, str) and isinstance(part.get(known), str) else None


def _content(
    blocks: list[dict[str, Any]], form: object, *, says_else: bool = False, calls: bool = False
) -> dict[str, Any]:
    """Return the content; it may be null or absent only in a message that says something else, and never `[]`."""
    if blocks:
        text = plain_block_text(blocks)
        return {"content": blocks if text is None or form == "list" else text}
    if says_else and form == "absent":
        return {}
    return {"content": None if says_else and (form == "null" or (calls and form is None)) else ""}


def _own_file(part: Part) -> dict[str, Any] | None:
    """Return what a file of OpenAI's own form holds, as the API takes it; nothing when it takes no such file."""
    kind, media = part["type"], read_media(part)
    if media is None or kind not in ("image_url", "file", "input_audio") or not isinstance(part.get(kind), dict):
        return None
    held = cast(dict[str, Any], part[kind])
    if kind == "input_audio":
        return held if media.media_type in AUDIO_FORMATS else None
    if kind == "image_url":
        sent = {key: value for key, value in held.items() if key != "detail" or value in DETAILS}
        return {**sent, "url": media.model_url} if media.is_usual_image and media.model_url is not None else None
    sent = {key: value for key, value in held.items() if value is None or (isinstance(value, str) and value)}
    if media.file_id is not None:
        return sent
    return {**sent, "filename": media.file_name} if media.is_pdf and media.data and media.model_url else None


def _blocks(part: Part, role: str = "tool") -> list[dict[str, Any]]:
    raw = raw_of(part, NAME)
    if raw is not None:
        return [raw]
    kind, rest = part["type"], rest_of(part, NAME)
    if kind == "text" and isinstance(part.get("text"), str):
        return [{"type": "text", "text": part["text"], **rest}]
    if kind == "refusal" and isinstance(part.get("refusal"), str) and role == "assistant":
        return [{"type": "refusal", "refusal": part["refusal"], **rest}]
    own = _own_file(part)
    if own is not None:
        return [{"type": kind, kind: own, **rest}]
    converted = _converted(part)
    if converted is not None:
        return [converted]
    words = as_text(part)
    return [{"type": "text", "text": words}] if words else []


def _converted(part: Part) -> dict[str, Any] | None:
    media = read_media(part)
    if media is None:
        return None
    url = media.model_url
    if media.is_usual_image and url is not None:
        return {"type": "image_url", "image_url": {"url": url}}
    form = AUDIO_FORMATS.get(media.media_type or "")
    if media.kind == "audio" and media.data is not None and form is not None:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}
    if media.file_id is not None and media.keeper == "openai":
        return {"type": "file", "file": {"file_id": media.file_id}}
    if media.is_pdf and media.data is not None and url is not None:
        pdf = replace(media, media_type="application/pdf")
        return {"type": "file", "file": {"filename": pdf.file_name, "file_data": pdf.any_url}}
    return None


def _tool_call(call: Call) -> dict[str, Any]:
    rest = rest_of(call.part, NAME)
    if is_custom(call):
        custom = {"name": function_name(call.name), "input": custom_input(call)}
        made = {"id": call.id, "type": "custom", "custom": custom}
    else:
        function = {"name": function_name(call.name), "arguments": call.arguments}
        made = {"id": call.id, "type": "function", "function": function}
    inner = cast(str, made["type"])
    # A stream numbers the calls of a reply, and the SDK adds what it parsed: a request has neither.
    beside = {key: value for key, value in rest.get("fields", {}).items() if key != "index"}
    inside = {key: value for key, value in rest.get("inner", {}).items() if key != "parsed_arguments"}
    return {**made, **beside, inner: {**cast(dict[str, Any], made[inner]), **inside}}


def _tool_message(call: Call, result: Result) -> dict[str, Any]:
    rest = rest_of(result.part, NAME)
    blocks = [block for part in result.blocks if read_media(part) is None for block in _output_blocks(part)]
    fields = cast(dict[str, Any], rest.get("fields", {}))
    content = _content(blocks, rest.get("form"))
    if _is_legacy(call):
        return {"role": "function", "name": function_name(call.name), **content, **fields}
    return {"role": "tool", "tool_call_id": call.id, **content, **fields}


def _output_blocks(block: Part) -> list[dict[str, Any]]:
    if raw_of(block, NAME) is not None or block["type"] == "text":
        return _blocks(block)
    words = output_as_text(block)
    return [{"type": "text", "text": words}] if words else []


def _is_legacy(call: Call) -> bool:
    return rest_of(call.part, NAME).get("type") == "function_call"


# ── from OpenAI ──────────────────────────────────────────────────────────────


def from_openai_chat(payload: Sequence[Any]) -> list[Message]:
    """Read the messages of a chat completions request, or of its replies.

    Calls become `tool_use` parts and results `tool_result` parts; arguments are kept byte for byte.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    return [build(f"messages[{index}]", **fields) for index, fields in enumerate(read_openai_messages(payload))]
