"""One change that a program makes to the state of a session, as plain data that can be sent to its running turn."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from leafward.core.agent_contexts import Mode, PermissionRule
from leafward.core.agent_records import read_record
from leafward.core.agent_state import AgentState
from leafward.engine.permissions import add_rule


class StateChange(Struct):
    """Another permission mode, or one more rule."""

    id: str
    mode: Mode | None = None
    rule: dict[str, Any] | None = None

    def apply(self, state: AgentState) -> None:
        """Change the state of a session."""
        if self.mode is not None:
            state.permission_context.mode = self.mode
        if self.rule is not None:
            add_rule(state.permission_context, read_record(PermissionRule, self.rule))
