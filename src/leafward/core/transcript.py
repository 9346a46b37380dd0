"""A message as a text that a model can read: what was said whole, what tools were given and gave shortened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from leafward.core.calls import Pairs, answered_id, pair
from leafward.core.json import encode_text
from leafward.core.message import Message
from leafward.core.parts import (
    CALLS,
    Part,
    holds_result,
    is_media,
    is_thinking,
    is_ui_tool,
    parts_of,
    thinking_text,
    tool_input,
    tool_name,
    tool_output,
    tool_state,
)

SHOWN = 500
"""Characters shown of what a tool was given and what it gave."""

_NAME_SHOWN = 120
_OUTCOMES = {"error": "Error", "denied": "Denied", "interrupted": "Interrupted", "running": "Not finished"}
_KINDS = {"image_url": "image", "input_audio": "audio"}


class Transcriber:
    """Writes down the messages of a conversation; a result is shown with the name of its call.

    Of what a tool was given and what it gave, and of thinking, `shown` characters are written; `None` writes all.
    `pairs` are those of the conversation, where they are known.
    """

    def __init__(self, messages: Sequence[Message], shown: int | None = SHOWN, *, pairs: Pairs | None = None) -> None:
        known = pair(messages) if pairs is None else pairs
        self._names = {(result.message.id, result.call_id): call.name for call, result in known.belonging()}
        self._limit = shown

    def turn(self, message: Message) -> str:
        """Return who said it, then its parts."""
        who = _line(message.role)
        if message.name and message.name != message.role:
            who += f" {_line(message.name)}"
        return "\n".join(
            [f"[{who}]", *(text for part in parts_of(message.body) for text in self._part(part, message.id))]
        )

    def _part(self, part: Part, message_id: str) -> Iterator[str]:
        if part["type"] == "text" and isinstance(part.get("text"), str):
            yield part["text"]
        elif is_thinking(part):
            if thinking := thinking_text(part):
                yield f"[Thinking] {shortened(thinking, self._limit)}"
        elif is_media(part):
            yield mention(part)
        elif is_ui_tool(part):
            yield f"[Tool: {_line(tool_name(part)) or 'unnamed'}]"
            yield f"Input: {self._shown(tool_input(part))}"
            yield self._outcome(part)
        elif part["type"] in CALLS:
            yield f"[Tool: {_line(tool_name(part)) or 'unnamed'}]"
            yield f"Input: {self._shown(tool_input(part))}"
        elif part["type"] == "tool_result":
            called = self._names.get((message_id, answered_id(part) or ""), "")
            name = _line(tool_name(part) or called)
            yield f"[Result of tool: {name or 'unnamed'}]"
            yield self._outcome(part)
        elif len(part) > 1:
            rest = {key: value for key, value in part.items() if key != "type"}
            yield f"[{_line(part['type'])}] {self._shown(rest)}"

    def _outcome(self, part: Part) -> str:
        if holds_result(part):
            return f"{_OUTCOMES.get(tool_state(part), 'Output')}: {self._shown(tool_output(part))}"
        state = part.get("state")
        return f"Not finished: {(_line(state) if isinstance(state, str) else '') or 'no result'}"

    def _shown(self, value: object) -> str:
        return shortened(readable(value), self._limit) or "(nothing)"


def shortened(text: str, shown: int | None) -> str:
    """Return the start of a text, and how much more there is."""
    if shown is None or len(text) <= shown:
        return text
    return f"{text[:shown]}… ({len(text) - shown} more characters)"


def mention(part: Part) -> str:
    """Name an image, a recording or a file without its bytes: `[image: cat.png]`."""
    sources = [part, *(cast(Part, value) for value in part.values() if isinstance(value, dict))]
    media_type = _first(sources, "mediaType", "media_type", "mime_type", "mimeType")
    kind: str = part["type"]
    kind = _KINDS.get(kind, kind)
    family = media_type.partition("/")[0]
    if kind in ("file", "data") and family in ("image", "audio", "video"):
        kind = family
    address = _first(sources, "url", "image_url")
    name = _first(sources, "filename", "name", "title")
    name = name or ("" if address.startswith("data:") else address) or media_type
    return f"[{kind}: {_line(name)}]" if name else f"[{kind}]"


def readable(value: object) -> str:
    """Return what a tool was given or gave as text: blocks by their text, media by name, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    items = cast(list[object], value) if isinstance(value, list) else [value]
    if all(isinstance(item, dict) and isinstance(cast(Part, item).get("type"), str) for item in items):
        return "\n".join(_block(cast(Part, item)) for item in items)
    return encode_text(cast(object, value))


def _block(block: dict[str, Any]) -> str:
    if block["type"] == "text" and isinstance(block.get("text"), str):
        return block["text"]
    return mention(block) if is_media(block) else encode_text(block)


def _first(sources: list[Part], *keys: str) -> str:
    found = (source[key] for key in keys for source in sources if isinstance(source.get(key), str) and source[key])
    return next(found, "")


def _line(text: str) -> str:
    """Keep a name on its line, and short."""
    text = " ".join(text.split())
    return text if len(text) <= _NAME_SHOWN else f"{text[: _NAME_SHOWN - 1]}…"
