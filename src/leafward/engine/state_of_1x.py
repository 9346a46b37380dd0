"""What AgentScope 1.x left in a slot, as the state of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from leafward.core.agent_state import AgentState, from_legacy
from leafward.core.message import Message
from leafward.core.session_key import SessionKey
from leafward.engine.custom_states import CustomStates
from leafward.engine.toolkit import ActiveGroups
from leafward.stores.states.store import StateStore

NAMES = ("memory_messages", "toolkit_activeGroups")
"""What is read of 1.x."""


async def read_state_of_1x(
    states: StateStore | CustomStates, key: SessionKey, initial_groups: Sequence[str]
) -> AgentState | None:
    """Return the conversation and the active groups that 1.x saved; `None` if it saved neither.

    Without saved groups those of a new session are active.

    Raises:
        StateDecodeError: they cannot be read.
    """
    messages, groups = await asyncio.gather(
        states.get_list(key, NAMES[0], Message), states.get(key, NAMES[1], ActiveGroups)
    )
    if not messages and groups is None:
        return None
    active = initial_groups if groups is None else groups.active_groups
    return from_legacy(messages, active, session_id=key.session_id, user_id=key.user_id)
