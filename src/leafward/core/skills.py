"""How loading and unloading a skill looks in a conversation."""

from __future__ import annotations

from leafward.core.message import Message, body_to_read
from leafward.core.parts import Part, parts_of, plain_text, tool_name, tool_output

LOAD = "load_context"
UNLOAD = "unload_context"
UNLOADED = "Unloaded "
"""How the answer of a successful unloading begins."""


def holds_unloading(message: Message) -> bool:
    """Tell whether a message calls for a skill to be unloaded, or says that one was."""
    for part in parts_of(body_to_read(message)):
        if part["type"] != "text" and (tool_name(part) == UNLOAD or _may_tell_unloading(part)):
            return True
    return False


def _may_tell_unloading(part: Part) -> bool:
    # Anthropic's results do not name their tool.
    nameless = part["type"] == "tool_result" and not tool_name(part)
    return nameless and plain_text(tool_output(part)).startswith(UNLOADED)
