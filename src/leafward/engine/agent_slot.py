"""The slot of a session, in which AgentScope reads and writes the state of an agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leafward.core.agent_state import AgentState
from leafward.core.ids import new_id
from leafward.core.message import Message
from leafward.core.session_key import SessionKey
from leafward.engine.small_state import MARK, mark_in_doubt, reply_in_doubt, without_own
from leafward.engine.state_cache import StateCache
from leafward.engine.state_of_1x import NAMES as NAMES_OF_1X
from leafward.engine.state_of_1x import read_state_of_1x
from leafward.engine.step_log import LogOptions
from leafward.engine.turn_note import TurnNote
from leafward.stores.states.contracts import Versioned
from leafward.stores.states.store import Known, StateStore, get_unless_known


class AgentSlot:
    """Reads a slot, and writes to it what a point of the tree shows.

    What is written says which point that is, and which version the slot has with it: so a slot that another writer
    saved is known by what it lacks.
    """

    def __init__(self, states: StateStore, key: SessionKey, options: LogOptions, cache: StateCache | None) -> None:
        self.version = 0
        """The version that this turn has read or written."""
        self._may_be_of_1x = False
        """Whether AgentScope 1.x may have left something of the session."""
        self._states = states
        self._key = key
        self._options = options
        self._cache = StateCache(0) if cache is None else cache

    async def read(self) -> Versioned[AgentState]:
        """Return the state in the slot.

        Raises:
            StateDecodeError: it cannot be read.
        """
        if not self._options.writes_slot:
            return Versioned(None, 0)
        name, known = self._options.state_name, self._cache.known(self._key)
        older = NAMES_OF_1X if name == "agent_state" else ()
        found, self._may_be_of_1x = await get_unless_known(self._states, self._key, name, AgentState, known, older)
        if found.value is None and found.version:
            kept = self._cache.take(self._key)
            return await self.read() if kept is None else Versioned(kept, found.version)
        return found

    async def read_of_1x(self) -> AgentState | None:
        """Return what AgentScope 1.x left of the session, `None` if that is nothing.

        Raises:
            StateDecodeError: it cannot be read.
        """
        if not self._may_be_of_1x:
            return None
        return await read_state_of_1x(self._states, self._key, self._options.initial_groups)

    def is_ours(self, state: AgentState, mark: dict[str, Any], tree_version: int) -> bool:
        """Tell whether what the slot holds shows a point of this tree, and no other writer has saved it since.

        The mark says which version the slot got with it. The note in the tree cannot say so: after a checkout it is
        that of an earlier turn. A tree that is behind the mark was lost, and is not the one that it names.
        """
        version = mark.get("version")
        return (
            (mark.get("agent"), mark.get("slot")) == (self._options.agent_id, self.version)
            and (state.session_id, state.user_id) == (self._key.session_id, self._key.user_id)
            and isinstance(version, int)
            and version <= tree_version
        )

    def is_taken_over(self, note: TurnNote | None) -> bool:
        """Tell whether a turn has taken over the slot that another writer saved, and was cut off before it wrote it."""
        if note is None:
            return False
        # A turn that runs notes the version that it has read, another one the version that it writes.
        return self.version <= note.slot - (note.open != "running")

    async def is_there(self) -> bool:
        """Tell whether the slot that this turn wrote was not deleted."""
        if not self.version:
            return True
        return (await self._states.get_versioned(self._key, self._options.state_name)).version >= self.version

    async def make(self, state: AgentState) -> None:
        """Write a slot that shows nothing yet: one that is missing later was deleted.

        Raises:
            StaleState: there is one.
        """
        self.version = 0
        await self.write(state, [], None, 0)

    async def write(self, state: AgentState, shown: Sequence[Message], leaf_id: str | None, tree_version: int) -> None:
        """Write a state with the messages that the tree shows at a leaf.

        Raises:
            StaleState: another writer has changed the slot since.
        """
        name, expected = new_id(), self.version
        mark = {
            **mark_in_doubt(reply_in_doubt(state.extra.get(MARK))),
            "agent": self._options.agent_id,
            "leaf": leaf_id,
            "version": tree_version,
            "slot": expected + 1,
            "id": name,
        }
        state = replace(state, context=list(shown), extra={**without_own(state.extra), MARK: mark})
        self.version = await self._states.save_if_version(self._key, self._options.state_name, state, expected)
        self._cache.put(self._key, state, Known(self.version, name))
