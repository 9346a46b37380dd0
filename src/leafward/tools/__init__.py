"""What a model may call: functions as tools, sets of them, and what becomes of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.tools.definition import Tool as Tool
    from leafward.tools.function_tools import FunctionTool as FunctionTool
    from leafward.tools.function_tools import as_tool as as_tool
    from leafward.tools.function_tools import tool as tool
    from leafward.tools.runner import Outcome as Outcome
    from leafward.tools.runner import ask_probe as ask_probe
    from leafward.tools.runner import run as run
    from leafward.tools.runtime_context import RuntimeContext as RuntimeContext
    from leafward.tools.tool_set import ToolSet as ToolSet
    from leafward.tools.toolkit import ToolGroup as ToolGroup
    from leafward.tools.toolkit import Toolkit as Toolkit

_HOMES = {
    "leafward.tools.definition": ("Tool",),
    "leafward.tools.function_tools": ("FunctionTool", "as_tool", "tool"),
    "leafward.tools.runner": ("Outcome", "ask_probe", "run"),
    "leafward.tools.runtime_context": ("RuntimeContext",),
    "leafward.tools.tool_set": ("ToolSet",),
    "leafward.tools.toolkit": ("ToolGroup", "Toolkit"),
}

__all__ = [
    "FunctionTool",
    "Outcome",
    "RuntimeContext",
    "Tool",
    "ToolGroup",
    "ToolSet",
    "Toolkit",
    "as_tool",
    "ask_probe",
    "run",
    "tool",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
