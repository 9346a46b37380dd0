"""A message as AgentScope's transcript has it: its text, then its tool calls, then their results, a line each."""

from __future__ import annotations

from typing import cast

from msgspec import Raw

from leafward.core.calls import answered_id
from leafward.core.json import encode, encode_text
from leafward.core.message import Message, body_to_read
from leafward.core.parts import (
    CALLS,
    Part,
    is_thinking,
    is_ui_tool,
    parts_of,
    plain_text,
    thinking_text,
    tool_name,
    tool_output,
)
from leafward.stores.journal.entry import Entry, timestamp

LONGEST_INPUT = 500
LONGEST_OUTPUT = 1000
"""Characters that a transcript shows of a call's arguments and of its result."""


def entries_of(message: Message, parent_id: str | None) -> list[Entry]:
    """Return the lines of a message below the line `parent_id`, each below the one before."""
    at = timestamp(message.at)
    said: list[str] = []
    found: list[Entry] = []
    parts = parts_of(body_to_read(message))
    for number, part in enumerate(parts):
        text = _said(part)
        if text and not text.isspace():
            said.append(text)
        shows_both = is_ui_tool(part)
        if shows_both or part["type"] in CALLS:
            found.append(_call(message, part, _call_id(part, number), at))
        if answered_id(part) is not None or part["type"] == "tool_result":
            found.append(_result(message, part, _call_id(part, number), at))
    if said or not found:
        types = None if said else list(dict.fromkeys(part["type"] for part in parts)) or ["empty"]
        own = Entry(
            type="message",
            id=message.id,
            timestamp=at,
            role=message.role.upper(),
            content="\n".join(said),
            block_types=types,
        )
        found.insert(0, own)
    for entry in found:
        entry.parent_id, parent_id = parent_id, entry.id
    return found


def first_id(message: Message) -> str:
    """Return the id of a message's first line."""
    return entries_of(message, None)[0].id


def last_id(message: Message) -> str:
    """Return the id of a message's last line, below which the next message goes on."""
    return entries_of(message, None)[-1].id


def _said(part: Part) -> str:
    if is_thinking(part):
        return thinking_text(part)
    text = part.get("text") if part["type"] == "text" else None
    return text if isinstance(text, str) else ""


def _call_id(part: Part, number: int) -> str:
    for key in ("toolCallId", "tool_use_id", "id"):
        if isinstance(part.get(key), str) and part[key]:
            return part[key]
    return f"idx-{number}"


def _call(message: Message, part: Part, call_id: str, at: Raw) -> Entry:
    given = part.get("input")
    arguments = cast(object, {} if given is None else given if isinstance(given, dict) else {"value": given})
    text = encode_text(arguments)
    cut = len(text) > LONGEST_INPUT
    if cut:
        arguments = {"_preview": text[:LONGEST_INPUT], "_truncated": True, "_originalSize": len(text)}
    return Entry(
        type="tool_use",
        id=f"{message.id}:use:{call_id}",
        timestamp=at,
        tool_call_id=call_id,
        name=tool_name(part),
        input=Raw(encode(arguments)),
        truncated=cut,
        original_size=len(text) if cut else None,
    )


def _result(message: Message, part: Part, call_id: str, at: Raw) -> Entry:
    output = tool_output(part)
    text = plain_text(output)
    cut = len(text) > LONGEST_OUTPUT
    return Entry(
        type="tool_result",
        id=f"{message.id}:result:{call_id}",
        timestamp=at,
        tool_call_id=call_id,
        name=tool_name(part) or None,
        output=text[:LONGEST_OUTPUT],
        output_block_types=_block_types(output),
        truncated=cut,
        original_size=len(text) if cut else None,
    )


def _block_types(output: object) -> list[str] | None:
    blocks = cast(list[object], output) if isinstance(output, list) else []
    types = [str(cast(Part, block).get("type")) for block in blocks if isinstance(block, dict)]
    return list(dict.fromkeys(types)) or None
