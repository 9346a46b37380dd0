"""Components that save and restore themselves: memory, plans, tool groups, and classes of yours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leafward.core.lazy import lazily

if TYPE_CHECKING:
    from leafward.engine.memory import InMemoryMemory as InMemoryMemory
    from leafward.engine.memory import Memory as Memory
    from leafward.engine.plan import Plan as Plan
    from leafward.engine.plan import PlanNotebook as PlanNotebook
    from leafward.engine.plan import SubTask as SubTask
    from leafward.engine.state_module import StateModule as StateModule
    from leafward.engine.toolkit import ToolGroup as ToolGroup
    from leafward.engine.toolkit import Toolkit as Toolkit
    from leafward.tools.runtime_context import RuntimeContext as RuntimeContext

_HOMES = {
    "leafward.engine.memory": ("InMemoryMemory", "Memory"),
    "leafward.engine.plan": ("Plan", "PlanNotebook", "SubTask"),
    "leafward.engine.state_module": ("StateModule",),
    "leafward.engine.toolkit": ("ToolGroup", "Toolkit"),
    "leafward.tools.runtime_context": ("RuntimeContext",),
}

__all__ = [
    "InMemoryMemory",
    "Memory",
    "Plan",
    "PlanNotebook",
    "RuntimeContext",
    "StateModule",
    "SubTask",
    "ToolGroup",
    "Toolkit",
]

__getattr__, __dir__ = lazily(globals(), _HOMES)
