"""The contract for leases: one holder at a time per user and session, first come first served, across processes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Scope
from leafward.core.times import from_micros
from leafward.stores.contracts import DEFAULT_TTL

if TYPE_CHECKING:
    from leafward.stores.leases.acquisition import Acquisition

TICKET_TTL = 10.0
"""Seconds after which a waiter that no longer asks has lost its turn, or sooner if its lease would not last as long."""
MOST_WAITING = 1_000
"""How many texts may wait for the holder of a lease."""
LONGEST_TEXT = 64 * 1024
"""How many bytes of UTF-8 a text that is sent to a holder may have."""


class Slot(NamedTuple):
    """What is leased: a session of a user, whatever the agent."""

    user_id: str | None
    session_id: str


class Fence(NamedTuple):
    """What a leased handle's writes carry along, to be checked inside each of their transactions."""

    slot: Slot
    token: int

    def check(self, written: Scope | Slot) -> None:
        """Raise unless a write to this session is one that the lease is for."""
        slot = written if isinstance(written, Slot) else Slot(written.owner.user_id, written.session_id)
        if self.slot != slot:
            raise ConfigurationError(
                f"the lease is for session {self.slot.session_id!r} of user {self.slot.user_id!r}: "
                f"it cannot guard a write to session {slot.session_id!r} of user {slot.user_id!r}"
            )


class Holder(NamedTuple):
    """The present holder of a lease, by the store's clock."""

    token: int
    since: datetime
    expires: datetime
    """When the lease runs out if it is not renewed."""
    label: str | None

    @classmethod
    def of(cls, token: int, since: int, expires: int, label: str | None) -> Holder:
        """Return a holder by times in microseconds."""
        return cls(token, from_micros(since), from_micros(expires), label)


class SentText(NamedTuple):
    """A text that waits for the holder of a lease; numbers grow in the order of sending and are never used twice."""

    number: int
    text: str


class Renewed(NamedTuple):
    """What a renewal found."""

    held: bool
    """False when another holder came, or the lease was ended."""
    waiting: bool
    """Whether texts wait for this holder."""


LOST = Renewed(held=False, waiting=False)


class LeaseTable(Protocol):
    """What a backend does for leases; each call is one atomic step by the store's own clock.

    All but `send` may be repeated. A token is larger than every earlier one of its slot. A holder is known by a name of
    its own, never used again.
    """

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        """Return a token when this holder is next and the lease is free; else queue up, or stay in the queue.

        The queue is in the order of first asking. A place in it is lost `ticket_ttl(ttl)` seconds after it was last
        asked for, if not before half of that. A holder that has the lease gets the same token again.
        """
        ...

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        """Let the lease last `ttl` seconds from now, also one that ran out; say whether texts wait for the holder."""
        ...

    async def leave(self, slot: Slot, holder: str) -> None:
        """Give back the lease, or the place in the queue, if there is one. Texts that wait are kept."""
        ...

    async def end(self, slot: Slot, token: int) -> bool:
        """End the lease with this token, whose holder is gone; False if it is not held with this token."""
        ...

    async def holder(self, slot: Slot) -> Holder | None:
        """Return the holder of a lease that is held and did not run out."""
        ...

    async def send(self, slot: Slot, text: str, label: str | None = None) -> bool:
        """Keep a text for the holder, and return True; False if the lease is not held, or has another label than given.

        A text with a label waits for holders with that label, one without for any holder.

        Raises:
            LeaseBusy: `MOST_WAITING` texts wait; this one was not kept.
            OutcomeUnknown: it may have been kept.
        """
        ...

    async def texts(self, slot: Slot, holder: str) -> list[SentText]:
        """Return the texts that wait for this holder, in the order they were sent.

        Raises:
            LeaseLost: this holder does not have the lease.
        """
        ...

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        """Delete the texts that wait for this holder up to the one with this number: it has them.

        Raises:
            LeaseLost: this holder does not have the lease; nothing was deleted.
            OutcomeUnknown: they may have been deleted.
        """
        ...

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        """Return those slots in which a text waits for the present holder."""
        ...

    async def clear(self, slot: Slot) -> bool:
        """Delete all texts of a slot; return whether there were any."""
        ...


def ticket_ttl(ttl: float) -> float:
    """Return for how many seconds a place in the queue is kept without being asked for."""
    return min(ttl, TICKET_TTL)


class Leases(Protocol):
    """Hands out leases, and reaches those who hold them."""

    def acquire(
        self,
        session_id: str,
        user_id: str | None = None,
        ttl: float = DEFAULT_TTL,
        wait: float | None = None,
        *,
        label: str | None = None,
    ) -> Acquisition:
        """Queue for a session and hold it: `async with store.leases.acquire(...) as lease`, or `await` it.

        The lease is renewed until it is released; a holder that died is followed by the next after `ttl` seconds.
        `label` says to others who holds it.

        Raises:
            LeaseBusy: the lease was not free within `wait` seconds.
            StoreError: the store failed, or did not answer within `wait` seconds and one more.
            InvalidId: one of the ids is refused.
            ConfigurationError: `ttl` or `wait` is no length of time, or this task, or one that it was started in, holds
                the lease already.
        """
        ...

    async def holder(self, session_id: str, user_id: str | None = None) -> Holder | None:
        """Return the holder of a session's lease; `None` if it is not held, or ran out."""
        ...

    async def send(self, session_id: str, user_id: str | None, text: str, *, label: str | None = None) -> bool:
        """Send a text to the holder of a session's lease, in whatever process; return whether there is one.

        With `label` there has to be a holder with that label. When this returns True, the text is kept until a holder
        gets it from `lease.receive()`: this one, or a later one with that label.

        Raises:
            ValueError: the text is longer than 64 KiB.
            LeaseBusy: 1,000 texts wait already.
            OutcomeUnknown: it may have been sent.
        """
        ...

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        """Return those slots in which a text waits for the present holder; one question for all of them."""
        ...

    async def release(self, session_id: str, user_id: str | None = None, *, token: int) -> bool:
        """End a lease whose holder is known to be gone, by the token of `holder()`; return whether it was held.

        A holder that is not gone after all can write nothing more behind it.
        """
        ...
