"""Where an agent keeps its conversations: a store that it opened itself, or one that it was given."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from leafward.core.errors import AgentShuttingDown, ConfigurationError, StoreError
from leafward.engine.custom_states import CustomStates, states_of
from leafward.stores.contracts import Store, without_lease
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.store import StateStore

AgentStoreLike = str | Store | AgentStateStore | None
"""A URL, an open store, a store of states, or nothing for JSON files in AgentScope's directory."""

_choosing = threading.Lock()
"""Held while an agent takes a store: each blocking store has a thread of its own."""


class Place(NamedTuple):
    """Where one session's conversation is kept."""

    states: StateStore | CustomStates
    store: Store | None
    """The store of the tree and the leases; `None` for a custom store of states."""

    @property
    def shared(self) -> object:
        """What calls to one session have in common when they must run one after the other."""
        return self.states.turns if isinstance(self.states, CustomStates) else self.store

    def tree_store(self, what: str) -> Store:
        """Return the store that keeps trees.

        Raises:
            ConfigurationError: there is none; the text says that `what` needs it.
        """
        if self.store is None:
            raise ConfigurationError(
                f"{what} needs a tree of messages, which a custom store of states does not keep: "
                "give the agent a store of leafward's"
            )
        return self.store

    def has(self, states: StateStore | CustomStates) -> bool:
        """Tell whether these are its states, by the same handle."""
        if isinstance(states, CustomStates):
            return isinstance(self.states, CustomStates) and states.source is self.states.source
        return states is self.states


async def place_of(states: StateStore | CustomStates) -> Place:
    """Return the place that a store of states belongs to, opened if it was not."""
    return Place(states, None) if isinstance(states, CustomStates) else Place(states, await states.open())


class AgentStore:
    """Opens an agent's store at its first call, and closes it if the agent opened it."""

    def __init__(self, given: AgentStoreLike, agent_id: str) -> None:
        self._given = given
        self._is_open_to_any = given is None
        """Whether it was left open where conversations are kept."""
        self._agent_id = agent_id
        self._lock = asyncio.Lock()
        self.place: Place | None = None
        """Where the agent keeps its conversations, once that is open."""
        self.is_closed = False
        self._is_in_use: Callable[[], bool] = _never
        """Whether the store that `use` has named is still open."""
        self._of_calls: WeakSet[StateStore | CustomStates] = WeakSet()
        """Stores that calls have named, as long as somebody else has them."""
        if isinstance(given, Store):
            self.place = Place(given.states, given)
        elif given is not None and not isinstance(given, str):
            # What cannot be a store is refused when the agent is made.
            states = states_of(given)
            if isinstance(states, CustomStates):
                self.place = Place(states, None)

    def use(self, store: Store, is_open: Callable[[], bool]) -> None:
        """Keep conversations in an open store, if none was named; once it is closed, another one may take its place.

        Raises:
            ConfigurationError: another one is still open.
        """
        with _choosing:
            has_opened = self._given is None and self.place is not None
            if not self._is_open_to_any or has_opened:
                return
            before = self._given
            if isinstance(before, Store) and without_lease(before) is not without_lease(store) and self._is_in_use():
                raise ConfigurationError(
                    f"the agent {self._agent_id!r} keeps its conversations in another blocking store, which is open: "
                    "close that first, or make an agent for each store"
                )
            self._given, self.place, self._is_in_use = store, Place(store.states, store), is_open

    @property
    def is_custom(self) -> bool:
        """Whether it is known to be a custom store of states."""
        return self.place is not None and self.place.store is None

    async def open(self) -> Place:
        """Return the agent's place.

        Raises:
            AgentShuttingDown: the agent was closed.
        """
        if self.is_closed:
            raise AgentShuttingDown(self._agent_id)
        if self.place is None:
            async with self._lock:
                if self.place is None:
                    self.place = await self._opened()
        return self.place

    async def open_for_call(self, given: object) -> Place:
        """Return the place of a store that a call names in place of the agent's.

        Raises:
            ConfigurationError: it is not a store.
        """
        states = states_of(given)
        place = await place_of(states)
        self._of_calls.add(states)
        return place

    def places(self) -> list[Place]:
        """Return where turns of the agent may run in this process: its own place, if that is open, then others."""
        found: dict[int, Place] = {} if self.place is None else {id(self.place.shared): self.place}
        for states in list(self._of_calls):
            with suppress(StoreError):
                # One that is closed has no turns.
                place = Place(states, None if isinstance(states, CustomStates) else states.store)
                found.setdefault(id(place.shared), place)
        return list(found.values())

    async def _opened(self) -> Place:
        if isinstance(self._given, str):
            from leafward.stores.opening import open_store

            store = await open_store(self._given)
            return Place(store.states, store)
        if self._given is None:
            return await place_of(_json_states(self._agent_id))
        return await place_of(states_of(self._given))

    async def close(self) -> None:
        """Close the store if the agent opened it; a store that it was given stays open."""
        self.is_closed = True
        async with self._lock:
            place, self.place = self.place, None
            if place is None:
                return
            if isinstance(self._given, str) and place.store is not None:
                await place.store.close()
            elif self._given is None:
                await place.states.close()


def _never() -> bool:
    return False


def _json_states(agent_id: str) -> StateStore:
    from leafward.stores.files.agent_context import agent_name
    from leafward.stores.files.names import hashed
    from leafward.stores.files.own_states import JsonFileAgentStateStore
    from leafward.stores.files.state_names import HASHED

    home = os.environ.get("AGENTSCOPE_STATE_HOME") or "~/.agentscope/state"
    # An encoding of an id with a slash could be the id of another agent.
    name = hashed(agent_id) if "/" in agent_id or agent_id.startswith(HASHED) else agent_name(agent_id)
    return JsonFileAgentStateStore(Path(home).expanduser() / name)
