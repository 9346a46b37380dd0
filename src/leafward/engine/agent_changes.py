"""How a program changes the state of a session: at once, or through the turn that runs on it."""

from __future__ import annotations

from collections.abc import Callable

from leafward.core.session_key import SessionKey
from leafward.engine.agent_calls import AgentCalls
from leafward.engine.agent_store import AgentStore, Place
from leafward.engine.agent_turns import AgentTurns
from leafward.engine.state_changes import StateChange, make_once
from leafward.engine.step_log import LogOptions, StepLog
from leafward.engine.turn_queue import Held, turn_of
from leafward.stores.leases import Slot

OpensLog = Callable[[Place, SessionKey, Held], StepLog]
"""Returns the durable side of a session that a call has its turn on."""


class AgentChanges:
    """Changes states of an agent's sessions on behalf of a program."""

    def __init__(
        self,
        store: AgentStore,
        calls: AgentCalls,
        turns: AgentTurns,
        options: LogOptions,
        *,
        lease_ttl: float,
        opens_log: OpensLog,
    ) -> None:
        self._store = store
        self._calls = calls
        self._turns = turns
        self._options = options
        self._lease_ttl = lease_ttl
        self._opens_log = opens_log

    async def make(self, key: SessionKey, change: StateChange) -> None:
        """Store a change of a session; a running turn stores it with its next step, and goes by it from then on.

        Raises:
            AgentShuttingDown: no turn runs, and the agent is shutting down or closed.
        """
        slot = Slot(key.user_id, key.session_id)
        if await self._turns.change(slot, change):
            return
        with self._calls.begin() as control:
            place = await self._store.open()
            async with turn_of(place, slot, control, label=self._turns.label, ttl=self._lease_ttl) as held:
                log = self._opens_log(place, key, held)
                await log.load(self._options.new_state(key))
                assert held.mail is not None
                # What was sent to a turn that had ended by then comes first.
                await held.mail.read()
                # Others that come while this is stored stay in the store, for the next one.
                made = list(control.changes)
                make_once(made, log.state, held.mail.kept)
                change.apply(log.state)
                await log.commit(log.note or self._options.ended_turn(), at_boundary=True)
                await log.project()
                await held.mail.acknowledge({one.id for one in made})
