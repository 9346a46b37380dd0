"""What a format has no place for, said as text."""

from __future__ import annotations

from typing import Any, cast

from leafward.core.calls import Call, Result
from leafward.core.json import encode_text
from leafward.core.media import Media, read_media
from leafward.core.parts import Part, is_thinking, is_ui_only, thinking_text
from leafward.core.provider_extras import raw_of, without_origin

_ASKING = ("approval-requested", "asking")
_ENCRYPTED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature"})


def as_text(part: Part) -> str:
    """Return a part as text a model can read, or nothing for what is not meant for it.

    Parts for a screen, parts of unknown types and what another provider keeps for itself go to no model.
    """
    if is_thinking(part):
        thought = thinking_text(part)
        return f"<thinking>\n{thought}\n</thinking>" if thought.strip() else ""
    if raw_of(part) is not None or is_ui_only(part):
        return ""
    for kind in ("text", "refusal", "hint"):
        if part["type"] == kind and isinstance(part.get(kind), str):
            return cast(str, part[kind])
    media = read_media(part)
    if media is not None:
        return describe(media)
    return _search_result(part) if part["type"] == "search_result" else ""


def output_as_text(block: Part) -> str:
    """Return a block of a tool's output as text; unlike a part, one of an unknown type is data of the tool."""
    words = as_text(block)
    if words or block["type"] in ("text", "refusal", "hint") or is_thinking(block):
        return words
    raw = raw_of(block)
    return encode_text(_readable(without_origin(block) if raw is None else raw))


def _search_result(part: Part) -> str:
    """Return a search result of Anthropic's as text: where it was found, then what it says."""
    head = " ".join(str(part[key]) for key in ("title", "source") if isinstance(part.get(key), str))
    content: object = part.get("content")
    blocks = cast(list[object], content) if isinstance(content, list) else []
    texts = [cast(Part, block).get("text") for block in blocks if isinstance(block, dict)]
    return "\n".join([f"[{head}]", *(text for text in texts if isinstance(text, str))])


def describe(media: Media) -> str:
    """Name a file that cannot be sent: its kind, name, type, and where it is or how large; text is given whole."""
    address = None if media.url is None or media.url.startswith("data:") else media.url
    facts = [media.kind, media.name, media.media_type, address, media.file_id]
    if media.data is not None:
        facts.append(f"{len(media.data) * 3 // 4} bytes")
    label = f"[{' '.join(fact for fact in facts if fact)}]"
    return label if media.text is None else f"{label}\n{media.text}"


def missing_result(call: Call) -> Result:
    """Return what a model is sent in place of a result that never came."""
    tool = f"The call of {call.name or 'this tool'}"
    if call.part.get("state") in _ASKING:
        text = f"{tool} waits for the user's approval and has not run."
    else:
        text = f"{tool} was interrupted before a result came. It may or may not have run."
    return Result(call.id, call.name, text, "interrupted", {}, call.message, call.row)


def orphan_parts(result: Result, call: Call | None) -> list[Part]:
    """Return a result that does not answer its call, as text and files: `call` has its answer, or is missing."""
    name = result.name or (call.name if call is not None else "") or "a tool"
    of = f"of {name} ({result.call_id})" if result.call_id else f"of {name}"
    parts: list[Part] = []
    if call is None:
        words = [f"[Result {of}, whose call is not part of this conversation]"]
    else:
        words = [f"[Another result {of}]"]
    for block in result.blocks:
        if read_media(block) is not None:
            parts.append(block)
        else:
            words.append(output_as_text(block))
    return [{"type": "text", "text": "\n".join(words)}, *parts]


def _readable(value: object) -> Any:
    if isinstance(value, dict):
        return {
            key: "[encrypted]" if key in _ENCRYPTED and isinstance(item, str) else _readable(item)
            for key, item in cast(dict[str, object], value).items()
        }
    if isinstance(value, list):
        return [_readable(item) for item in cast(list[object], value)]
    if isinstance(value, str) and value.startswith("data:") and ";base64," in value[:100]:
        return f"[{len(value) * 3 // 4} bytes]"
    return value
