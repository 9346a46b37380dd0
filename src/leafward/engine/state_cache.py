"""The states of the sessions that an agent served last."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from leafward.core.agent_records import copy_record
from leafward.core.agent_state import AgentState
from leafward.core.agent_texts import write_texts
from leafward.core.message import kept_with
from leafward.core.session_key import SessionKey
from leafward.stores.states.store import Known

LARGEST = 32 * 1024 * 1024
"""How many characters of JSON the messages of all kept states may have."""


@dataclass(frozen=True, slots=True)
class _Kept:
    state: AgentState
    saved: Known
    size: int


class StateCache:
    """Keeps states with the saves of them, the last used ones up to a limit.

    A state is taken only by one who knows that its slot still holds that save.
    """

    def __init__(self, sessions: int, *, largest: int = LARGEST) -> None:
        self._most = sessions
        self._largest = largest
        self._kept: OrderedDict[SessionKey, _Kept] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def known(self, key: SessionKey) -> Known | None:
        """Return the save of the state that is kept, `None` without one."""
        found = self._kept.get(key)
        return None if found is None else found.saved

    def take(self, key: SessionKey) -> AgentState | None:
        """Return a state for one call, which may change it and puts it back; `None` if a message was changed in place.

        Until it is put back, nothing is kept: copies are what the cache costs.
        """
        found = self._kept.get(key)
        self.drop(key)
        if found is None or any(kept_with(message) is None for message in found.state.context):
            return None
        return found.state

    def put(self, key: SessionKey, state: AgentState, saved: Known) -> None:
        """Keep a state as its slot has it."""
        self.drop(key)
        size = sum(len(text.compact) for text in write_texts(state.context))
        if not self._most or size > self._largest:
            return
        self._kept[key] = _Kept(_copy(state), saved, size)
        self._size += size
        while len(self._kept) > self._most or self._size > self._largest:
            self._size -= self._kept.popitem(last=False)[1].size

    def drop(self, key: SessionKey) -> None:
        """Keep nothing of a session."""
        found = self._kept.pop(key, None)
        self._size -= 0 if found is None else found.size


def _copy(state: AgentState) -> AgentState:
    """Return a state that shares only its messages with another."""
    small = copy_record(replace(state, context=[]))
    small.context = list(state.context)
    return small
