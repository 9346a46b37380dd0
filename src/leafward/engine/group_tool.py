"""The tool by which a model chooses the groups of tools that it is offered."""

from __future__ import annotations

from typing import Any

from leafward.engine.state_tools import state_tool
from leafward.tools.arguments import Mistake
from leafward.tools.definition import Tool
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.toolkit import ToolGroup, Toolkit

RESET_TOOLS = "reset_equipped_tools"

_DESCRIPTION = """\
Choose the groups of tools that you are offered from the next step on. It replaces your choice: groups that you leave \
out are switched off. The groups:"""


def group_tool(toolkit: Toolkit) -> Tool | None:
    """Return the tool that switches the groups of a toolkit; `None` if it has none that a model may switch."""
    groups = {group.name: group for group in toolkit.groups if group.switchable}
    if not groups:
        return None

    async def reset(ctx: RuntimeContext, given: dict[str, Any]) -> str:
        wanted: list[str] = []
        for name in given["to_activate"]:
            if not isinstance(name, str) or name not in groups:
                raise Mistake(f"there is no group {name!r} to switch on. Choose of these: {', '.join(groups)}.")
            if name not in wanted:
                wanted.append(name)
        context = ctx.agent_state.tool_context
        # Groups of the program, and those that another agent on this session knows, stay as they are.
        kept = [name for name in context.activated_groups if name not in groups]
        context.activated_groups[:] = [*kept, *wanted]
        return f"Active groups: {', '.join(wanted)}." if wanted else "No group is active."

    items = {"type": "string", "enum": list(groups)}
    properties = {"to_activate": {"type": "array", "items": items, "description": "The names of all groups to have."}}
    description = "\n".join([_DESCRIPTION, *map(_line, groups.values())])
    return state_tool(RESET_TOOLS, description, properties, reset, required=("to_activate",))


def _line(group: ToolGroup) -> str:
    return f"- {group.name}: {group.description}" if group.description else f"- {group.name}"
