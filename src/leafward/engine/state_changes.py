"""One change that a program makes to the state of a session, as plain data that can be sent to its running turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, cast

from msgspec import Struct

from leafward.core.agent_contexts import Mode, PermissionRule
from leafward.core.agent_records import read_record
from leafward.core.agent_state import AgentState
from leafward.core.errors import ConfigurationError
from leafward.core.ids import new_id
from leafward.engine.permissions import add_rule
from leafward.engine.plan_mode import PlanMode, enter, leave
from leafward.engine.small_state import CHANGES


class StateChange(Struct):
    """Another permission mode, one more rule, or plan mode switched on or off."""

    id: str
    mode: Mode | None = None
    rule: dict[str, Any] | None = None
    plan: Literal["enter", "leave"] | None = None
    plan_file: str = ""
    """The file of a plan that has none yet."""

    def apply(self, state: AgentState) -> None:
        """Change the state of a session."""
        if self.mode is not None:
            state.permission_context.mode = self.mode
        if self.rule is not None:
            add_rule(state.permission_context, read_record(PermissionRule, self.rule))
        if self.plan == "enter":
            enter(state, self.plan_file)
        elif self.plan == "leave":
            leave(state)


def make_once(changes: Sequence[StateChange], state: AgentState, kept: Collection[str]) -> None:
    """Make changes that were sent to a turn, but for those that an earlier one has made.

    The state remembers which are made as long as the store has them; `kept` is what it has.

    Raises:
        ValueError: a change cannot be made of this state.
    """
    if not changes:
        return
    found = state.extra.get(CHANGES)
    made = set(cast(list[str], found)) if isinstance(found, list) else set[str]()
    for change in changes:
        if change.id not in made:
            try:
                change.apply(state)
            except Exception as error:
                raise ValueError(f"the state of the session cannot be changed: {error}") from error
            made.add(change.id)
    if left := sorted(made.intersection(kept)):
        state.extra[CHANGES] = left
    else:
        state.extra.pop(CHANGES, None)


def entering(plan: PlanMode | None) -> StateChange:
    """Return the change that switches plan mode on.

    Raises:
        ConfigurationError: the agent has no plan mode.
    """
    return StateChange(new_id(), plan="enter", plan_file=_used(plan).file)


def leaving(plan: PlanMode | None) -> StateChange:
    """Return the change that switches plan mode off.

    Raises:
        ConfigurationError: the agent has no plan mode.
    """
    _used(plan)
    return StateChange(new_id(), plan="leave")


def _used(plan: PlanMode | None) -> PlanMode:
    if plan is None:
        raise ConfigurationError("the agent has no plan mode: make it with ReActAgent(…, plan_mode=True)")
    return plan
