"""The plan notebook of AgentScope 1.x: the plan an agent follows, and how far it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from leafward.core.errors import StateDecodeError
from leafward.core.fields import Fields
from leafward.core.session_key import SessionKey
from leafward.engine.state_module import StateModule
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.table import check_name

SubTaskState = Literal["TODO", "IN_PROGRESS", "DONE", "ABANDONED"]
SUBTASK_STATES = ("TODO", "IN_PROGRESS", "DONE", "ABANDONED")


def _now() -> str:
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")


@dataclass(slots=True)
class SubTask:
    """One step of a plan; `created_at` is local time as AgentScope writes it, kept as it was."""

    name: str
    description: str = ""
    expected_outcome: str = ""
    state: SubTaskState = "TODO"
    created_at: str | None = field(default_factory=_now)
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, value: object, where: str) -> SubTask:
        fields = Fields(value, where)
        state = fields.text("state") or "TODO"
        if state not in SUBTASK_STATES:
            fields.refuse("state", f"is {state!r}, not one of {', '.join(SUBTASK_STATES)}")
        return cls(
            name=fields.text("name") or "",
            description=fields.text("description") or "",
            expected_outcome=fields.text("expectedOutcome") or "",
            state=state,
            created_at=fields.text("createdAt"),
            extra=fields.others("name", "description", "expectedOutcome", "state", "createdAt"),
        )

    def write(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "expectedOutcome": self.expected_outcome,
            "state": self.state,
            "createdAt": self.created_at,
            **self.extra,
        }


@dataclass(slots=True)
class Plan:
    """What is to be reached, step by step."""

    name: str
    description: str = ""
    expected_outcome: str = ""
    subtasks: list[SubTask] = field(default_factory=list[SubTask])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, value: object, where: str) -> Plan:
        fields = Fields(value, where)
        return cls(
            name=fields.text("name") or "",
            description=fields.text("description") or "",
            expected_outcome=fields.text("expectedOutcome") or "",
            subtasks=[SubTask.read(item, place) for item, place in fields.items("subtasks")],
            extra=fields.others("name", "description", "expectedOutcome", "subtasks"),
        )

    def write(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "expectedOutcome": self.expected_outcome,
            "subtasks": [subtask.write() for subtask in self.subtasks],
            **self.extra,
        }


class PlanNotebook(StateModule):
    """Keeps the current plan, saved as AgentScope's `planNotebook_state`; `key_prefix` stands before the `_state`."""

    def __init__(self, key_prefix: str = "planNotebook") -> None:
        self._state_name = check_name(f"{key_prefix}_state")
        self.current_plan: Plan | None = None
        self._extra: dict[str, Any] = {}

    async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
        plan = None if self.current_plan is None else self.current_plan.write()
        await states.save(key, self._state_name, {"currentPlan": plan, **self._extra})
        await super().save_state(states, key)

    async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
        saved = await states.get(key, self._state_name)
        try:
            fields = Fields(saved or {}, "")
            plan = fields.values.get("currentPlan")
            self.current_plan = None if plan is None else Plan.read(plan, "currentPlan")
            self._extra = fields.others("currentPlan")
        except StateDecodeError as error:
            raise StateDecodeError(key.user_id, key.session_id, self._state_name, error.reason) from error
        await super().load_state(states, key)
