"""The plan notebook of AgentScope 1.x: the plan an agent follows, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from leafward.core.agent_records import Record, stored, write_record
from leafward.engine.state_module import StateModule
from leafward.stores.states.table import check_name

SubTaskState = Literal["TODO", "IN_PROGRESS", "DONE", "ABANDONED"]


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")


@dataclass(slots=True)
class SubTask(Record):
    """One step of a plan; `created_at` is local time as AgentScope writes it, kept unchanged."""

    name: str = field(metadata=stored("name", missing=""))
    description: str = ""
    expected_outcome: str = field(default="", metadata=stored("expectedOutcome"))
    state: SubTaskState = "TODO"
    created_at: str | None = field(default_factory=_now, metadata=stored("createdAt", missing=None))
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Plan(Record):
    """What is to be reached, step by step."""

    name: str = field(metadata=stored("name", missing=""))
    description: str = ""
    expected_outcome: str = field(default="", metadata=stored("expectedOutcome"))
    subtasks: list[SubTask] = field(default_factory=list[SubTask])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class _Notebook(Record):
    current_plan: Plan | None = field(default=None, metadata=stored("currentPlan"))
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


class PlanNotebook(StateModule):
    """Keeps the current plan, saved as AgentScope's `planNotebook_state`; `key_prefix` stands before the `_state`."""

    state_type = _Notebook

    def __init__(self, key_prefix: str = "planNotebook") -> None:
        self.state_name = check_name(f"{key_prefix}_state")
        self.current_plan: Plan | None = None
        self._extra: dict[str, Any] = {}

    def get_state(self) -> dict[str, Any]:
        return write_record(_Notebook(self.current_plan, self._extra))

    def set_state(self, state: _Notebook | None) -> None:
        found = state or _Notebook()
        self.current_plan, self._extra = found.current_plan, found.extra
