"""Calls of OpenAI's custom tools, whose input is any text and not a JSON object."""

from __future__ import annotations

from leafward.core.calls import Call
from leafward.core.openai_messages import NAME as CHAT
from leafward.core.provider_extras import rest_of

RESPONSES = "openai.responses"


def is_custom(call: Call) -> bool:
    """Tell a call of a custom tool, from whichever of OpenAI's two formats it came."""
    in_chat = rest_of(call.part, CHAT).get("type") == "custom"
    return in_chat or rest_of(call.part, RESPONSES).get("type") == "custom_tool_call"


def custom_input(call: Call) -> str:
    """Return the text that a custom tool was given."""
    return call.input if isinstance(call.input, str) else call.arguments
