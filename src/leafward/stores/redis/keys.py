"""How keys are named: all that belongs to a user has the user in braces, which puts it into one slot of a cluster."""

from __future__ import annotations

import re
from functools import lru_cache

from leafward.core.ids import Owner
from leafward.stores.leases import Slot
from leafward.stores.replicated.journals import Journal

_SEPARATORS = re.compile("[%{}:]")


@lru_cache(maxsize=4096)
def escape(id: str) -> str:
    """Return an id without what separates the parts of a key; no two ids become the same."""
    return _SEPARATORS.sub(lambda found: f"%{ord(found[0]):02X}", id)


class Keys:
    """The names of all keys, below a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def user(self, user_id: str | None) -> str:
        """Return what all keys of a user begin with."""
        # No user's tag is without a colon, so the anonymous one is nobody else's.
        return f"{self._prefix}{{{'anonymous' if user_id is None else f'u:{escape(user_id)}'}}}"

    def _agent(self, owner: Owner) -> str:
        return f"{self.user(owner.user_id)}:agent:{escape(owner.agent_id)}"

    def journal(self, journal: Journal) -> list[bytes]:
        """Return the keys of a journal's batches and of its mark."""
        agent = self._agent(journal.owner)
        if journal.session_id is None:
            return [f"{agent}:shared".encode(), f"{agent}:shared-mark".encode()]
        session = escape(journal.session_id)
        return [f"{agent}:journal:{session}".encode(), f"{agent}:mark:{session}".encode()]

    def head(self, journal: Journal) -> list[bytes]:
        """Return the keys of what a session ends with, of its messages' ids, and of its names of usage."""
        agent = self._agent(journal.owner)
        if journal.session_id is None:
            # Nothing is ever kept there.
            return [f"{agent}:shared-{part}".encode() for part in ("head", "ids", "used")]
        session = escape(journal.session_id)
        return [f"{agent}:{part}:{session}".encode() for part in ("head", "ids", "used")]

    def staged(self, journal: Journal, name: str) -> list[bytes]:
        """Return the keys of ids and names of usage that are on their way to those above."""
        return [b"%b:%b" % (key, name.encode()) for key in self.head(journal)[1:]]

    def turn(self, journal: Journal) -> bytes:
        """Return the key of who may write to a journal next."""
        return self.journal(journal)[1] + b":turn"

    def listing(self, owner: Owner) -> list[bytes]:
        """Return the keys of what is known of an owner's sessions, and of their order."""
        agent = self._agent(owner)
        return [f"{agent}:sessions".encode(), f"{agent}:recent".encode()]

    def listings(self, user_id: str | None) -> bytes:
        """Return the key of the set of the keys of what is known of a user's sessions, one for each agent."""
        return f"{self.user(user_id)}:listings".encode()

    def answer(self, user_id: str | None, name: str) -> bytes:
        """Return the key of what a write answered."""
        return f"{self.user(user_id)}:answer:{name}".encode()

    def lease(self, slot: Slot) -> list[bytes]:
        """Return the keys of a lease, of who waits for it in which order, and of how long each place is kept."""
        user, session = self.user(slot.user_id), escape(slot.session_id)
        return [f"{user}:{part}:{session}".encode() for part in ("lease", "queue", "waiting")]

    def texts(self, slot: Slot) -> list[bytes]:
        """Return the keys of which texts wait for the holder of a lease, and of the texts."""
        user, session = self.user(slot.user_id), escape(slot.session_id)
        return [f"{user}:{part}:{session}".encode() for part in ("sent", "texts")]
