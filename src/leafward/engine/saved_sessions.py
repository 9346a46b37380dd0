"""Sessions of an agent that are saved to another store and loaded from it, as in AgentScope 1.x."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

from leafward.core.agent_state import AgentState
from leafward.core.errors import ConfigurationError
from leafward.core.session_key import SessionKey
from leafward.engine.agent_calls import AgentCalls
from leafward.engine.agent_changes import OpensLog
from leafward.engine.agent_store import AgentStore, Place
from leafward.engine.custom_states import CustomStates
from leafward.engine.small_state import PLAN, without_marks
from leafward.engine.state_of_1x import read_state_of_1x
from leafward.engine.step_log import LogOptions, StepLog
from leafward.engine.turn_queue import Held, turn_of
from leafward.stores.leases import Slot
from leafward.stores.states.store import StateStore

States = StateStore | CustomStates
ReadsStored = Callable[[Place, SessionKey], Awaitable[StepLog]]
"""Returns what is stored of a session, and changes nothing."""


class FailedLoad(NamedTuple):
    """The session that a task could not load: what it meant to go on with."""

    key: SessionKey

    def error(self) -> ConfigurationError:
        """Return the error of a call without a context."""
        return ConfigurationError(
            f"the session {self.key.session_id!r} could not be loaded in this task: load a session, or pass a "
            "RuntimeContext that names one"
        )


class SavedSessions:
    """Copies slots between an agent's own store and others."""

    def __init__(
        self,
        store: AgentStore,
        calls: AgentCalls,
        options: LogOptions,
        *,
        lease_ttl: float,
        stored: ReadsStored,
        opens_log: OpensLog,
    ) -> None:
        self._store = store
        self._calls = calls
        self._options = options
        self._lease_ttl = lease_ttl
        self._stored = stored
        self._opens_log = opens_log

    async def save(self, states: States, key: SessionKey, current: Callable[[], SessionKey]) -> None:
        """Save the session `key` under its key; if there is none, the session `current`."""
        place = await self._store.open()
        log = await self._stored(place, key)
        is_other = log.is_new and current() != key
        if is_other:
            log = await self._stored(place, current())
        if is_other or not (place.has(states) and self._options.writes_slot):
            await states.save(key, self._options.state_name, as_saved(log.state, key))

    async def load(self, states: States, key: SessionKey) -> tuple[AgentState, bool]:
        """Have as the session `key` what is saved under it; return its state, and whether there was something.

        Raises:
            AgentShuttingDown: the agent is shutting down or closed.
            ConfigurationError: this is inside a turn of the session, or the agent has no slots.
            StateDecodeError: what is saved cannot be read; nothing is changed.
        """
        with self._calls.begin() as control:
            place = await self._store.open()
            if place.has(states):
                log = await self._stored(place, key)
                return log.state, not log.is_new
            if not self._options.writes_slot:
                raise ConfigurationError("slot='off' leaves no place to load a state into: leave it out")
            saved = await read_saved(states, key, self._options)
            state = self._options.new_state(key) if saved is None else saved
            # The plan that the session had goes with its messages.
            state.extra.setdefault(PLAN, None)
            slot = Slot(key.user_id, key.session_id)
            async with turn_of(place, slot, control, label=None, ttl=self._lease_ttl) as held:
                is_new = (await self._stored(place, key)).is_new
                if not is_new:
                    # What another writer has left in the slot stays in the tree.
                    await self._opens_log(place, key, held).load(self._options.new_state(key))
                if saved is not None or not is_new:
                    await _fenced(place.states, held).save(key, self._options.state_name, state)
            return state, saved is not None


async def read_saved(states: States, key: SessionKey, options: LogOptions) -> AgentState | None:
    """Return what is saved of an agent under a key, also by AgentScope 1.x; `None` if nothing at all is saved there.

    A session that has other states only is that of an agent without messages.

    Raises:
        StateDecodeError: it cannot be read.
    """
    found = await states.get(key, options.state_name, AgentState)
    if found is None and options.state_name == "agent_state":
        found = await read_state_of_1x(states, key, options.initial_groups)
    if found is None and await states.exists(key):
        found = options.new_state(key)
    return None if found is None else as_saved(found, key)


def as_saved(state: AgentState, key: SessionKey) -> AgentState:
    """Return a state as it is saved under a key: without what only the agent's own store knows."""
    return replace(without_marks(state), session_id=key.session_id, user_id=key.user_id)


def _fenced(states: States, held: Held) -> States:
    return states if isinstance(states, CustomStates) or held.lease is None else states.with_lease(held.lease)
