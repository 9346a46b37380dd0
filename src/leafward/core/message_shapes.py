"""Which shape a message given as a dict has, and what to say of one that is not a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from leafward.core.parts import Part

_ONLY_OPENAI = frozenset({"tool_calls", "tool_call_id", "function_call", "refusal", "audio"})
_NOT_OPENAI = frozenset({"tool_use", "tool_result", "tool_call", "thinking"})
"""Types of blocks that others put into a content."""


def is_openai(data: Mapping[str, Any]) -> bool:
    """Tell an OpenAI chat message whose calls or results stand in keys that only OpenAI has, or should."""
    if "parts" in data or (_ONLY_OPENAI.isdisjoint(data) and data.get("role") not in ("tool", "function")):
        return False
    return _NOT_OPENAI.isdisjoint(_kinds(data.get("content")))


def from_openai(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an OpenAI chat message in the wire shape; what only we put beside it stays beside it."""
    from leafward.core.openai_messages import read_openai_messages

    ours = {key: data[key] for key in ("id", "createdAt", "metadata") if data.get(key) is not None}
    theirs = {key: value for key, value in data.items() if key not in ours}
    try:
        return read_openai_messages([theirs])[0] | ours
    except ValueError as error:
        raise ValueError(f"this is not an OpenAI chat message: {str(error).removeprefix('messages[0].')}") from error


def check_shape(data: Mapping[str, Any]) -> None:
    """Refuse a dict that is not a message, and name what reads it.

    Raises:
        ValueError: it would be stored without what it holds.
    """
    if "parts" in data and "role" in data:
        return
    kinds = _kinds(data.get("content"))
    if "choices" in data:
        hint = "this is a whole chat completion: store completion.choices[0].message"
    elif isinstance(data.get("message"), Mapping) and "role" not in data:
        hint = 'this is a choice of a chat completion: store its "message"'
    elif _are_ui_messages(data.get("messages")):
        hint = 'this is a list of messages: read it with leafward.formats.from_ui_messages(body["messages"])'
    elif "messages" in data:
        hint = "this is a list of messages: read it with leafward.formats.from_anthropic or from_openai_chat"
    elif data.get("object") == "response":
        hint = "this is a whole response of OpenAI: read its output with leafward.formats.from_openai_responses"
    elif ("call_id" in data and "role" not in data) or kinds & {"input_text", "output_text"}:
        hint = "this is an item of OpenAI's Responses: read it with leafward.formats.from_openai_responses"
    elif "role" not in data or "content" not in data:
        hint = (
            f"a message has a role and parts, this dict has {sorted(map(str, data))}: "
            "leafward.formats has a from_... function for each provider's messages"
        )
    else:
        return
    raise ValueError(hint)


def _are_ui_messages(messages: object) -> bool:
    items = cast(list[object], messages) if isinstance(messages, list) else []
    return bool(items) and all(isinstance(item, dict) and "parts" in item for item in items)


def _kinds(content: object) -> set[object]:
    """Return the types of the blocks in a content."""
    blocks = cast(list[object], content) if isinstance(content, list) else []
    kinds = (cast(Part, block).get("type") for block in blocks if isinstance(block, dict))
    return {kind for kind in kinds if isinstance(kind, str)}
