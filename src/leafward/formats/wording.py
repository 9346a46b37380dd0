"""What a format has no place for, said as text."""

from __future__ import annotations

from typing import Any, cast

from leafward.core.json import encode_text
from leafward.core.parts import Part, is_thinking, thinking_text
from leafward.formats.calls import Result
from leafward.formats.media import Media, read_media
from leafward.formats.origin import raw_of, without_origin

_ENCRYPTED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature"})


def as_text(part: Part) -> str:
    """Return a part as text a model can read, or nothing when there is nothing in it to read.

    Encrypted reasoning says nothing to anyone but its maker, and a step's start is a place, not content.
    """
    if part["type"] == "step-start":
        return ""
    if is_thinking(part):
        thought = thinking_text(part)
        return f"<thinking>\n{thought}\n</thinking>" if thought.strip() else ""
    for kind in ("text", "refusal", "hint"):
        if part["type"] == kind and isinstance(part.get(kind), str):
            return cast(str, part[kind])
    media = read_media(part)
    if media is not None:
        return describe(media)
    raw = raw_of(part)
    return f"[{part['type']}] {encode_text(_readable(without_origin(part) if raw is None else raw))}"


def describe(media: Media) -> str:
    """Name a file that cannot be sent: its kind, name, type, and where it is or how large; text is given whole."""
    facts = [media.kind, media.name, media.media_type, media.url, media.file_id]
    if media.data is not None:
        facts.append(f"{len(media.data) * 3 // 4} bytes")
    label = f"[{' '.join(fact for fact in facts if fact)}]"
    return label if media.text is None else f"{label}\n{media.text}"


def orphan_parts(result: Result) -> list[Part]:
    """Return a result whose call is missing, as text and files."""
    of = " ".join(word for word in ("of", result.name or "a tool", f"({result.call_id})" if result.call_id else ""))
    parts: list[Part] = []
    words: list[str] = [f"[Result {of.strip()}, whose call is not part of this conversation]"]
    for block in result.blocks:
        if read_media(block) is not None:
            parts.append(block)
        else:
            words.append(as_text(block))
    return [{"type": "text", "text": "\n".join(words)}, *parts]


def _readable(value: object) -> Any:
    if isinstance(value, dict):
        return {
            key: "[encrypted]" if key in _ENCRYPTED and isinstance(item, str) else _readable(item)
            for key, item in cast(dict[str, object], value).items()
        }
    if isinstance(value, list):
        return [_readable(item) for item in cast(list[object], value)]
    return value
