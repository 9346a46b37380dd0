"""What a server does for a replicated store: it keeps journals, compares and appends.

A backend of this kind implements `Server`, all else is done by `ReplicatedStore`. A journal is a list of batches, each
one commit; what is in them is told in docs/formats/journal.md, and a server need not know.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from leafward.core.ids import Owner, Scope
from leafward.stores.contracts import Durability, Head
from leafward.stores.leases import Fence, LeaseTable
from leafward.stores.replicated.heads import HeadChange, KeptHead
from leafward.stores.replicated.steps import NotStepped, Step, Stepped


class Journal(NamedTuple):
    """Which journal: that of a session, or the one that all sessions of an owner share."""

    owner: Owner
    session_id: str | None


class Mark(NamedTuple):
    """How far a journal goes: how many batches it has, and the checksum after the last.

    A journal that was removed and begun again has another incarnation. One that was written anew, to tell the same in
    fewer bytes, has the same with a `~` and a number.
    """

    incarnation: str
    length: int
    crc: int

    @property
    def session(self) -> str:
        """The incarnation before the journal was ever written anew."""
        return self.incarnation.partition("~")[0]


NOTHING = Mark("", 0, 0)
"""The mark of a journal that is not there."""


class Tail(NamedTuple):
    """The batches after a mark, or the first of them, and the mark of the journal as it is now."""

    mark: Mark
    batches: list[bytes]
    foreign: bool = False
    """The journal does not begin with what was marked; then there are no batches: read it from the beginning."""
    lacks_head: bool = False
    """It is read from the beginning, and the server, which keeps heads, has none of this session as it is now."""


class Listing(NamedTuple):
    """What the list of sessions shows of one."""

    updated_at: int
    session_id: str
    info: bytes


class Write(NamedTuple):
    """What is to become of one journal, if it still stands at a mark."""

    journal: Journal
    expected: Mark
    mark: Mark
    """Where it then stands: the same when only that is to be checked, `NOTHING` to remove it."""
    batch: bytes = b""
    listing: Listing | None = None
    anew: bool = False
    """The batch takes the place of all that the journal holds."""
    head: HeadChange | None = None
    """What becomes of the head, for a server that keeps it; `None`: it is not known, and what is kept is outdated."""


class Outcome(Enum):
    """What became of a commit."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing was written: a journal stands elsewhere than expected."""
    NOT_YET = "not yet"
    """Nothing was written: another that was too late has the next turn, if it comes."""
    IN_DOUBT = "in doubt"
    """Refused when it was repeated after a lost reply: the first try may have been done, and followed by others."""


class Server(LeaseTable, Protocol):
    """Where journals and leases are kept. All that one call names belongs to one user.

    An unreachable server raises `StoreError`, or `OutcomeUnknown` where a commit may have been done.
    """

    async def fetch(self, wanted: Sequence[tuple[Journal, Mark]]) -> list[Tail]:
        """Return what follows the marks, as of one moment; a long tail may come in parts."""
        ...

    async def commit(self, writes: Sequence[Write], fence: Fence | None) -> Outcome:
        """Do all of the writes if all journals stand where they are expected, else nothing, in one atomic step.

        It is durable when this returns. A commit whose reply is lost may be repeated and is done once.

        Raises:
            LeaseLost: the fence no longer holds; nothing was written.
        """
        ...

    async def marks(self, journals: Sequence[Journal]) -> list[Mark]:
        """Return where journals stand."""
        ...

    async def sessions(self, owner: Owner, limit: int | None, after: Listing | None) -> list[Listing]:
        """Return an owner's sessions, latest `updated_at` first, from the one below `after`, as of one moment."""
        ...

    async def session(self, scope: Scope) -> Listing | None:
        """Return what the list shows of one session."""
        found = await self.sessions(scope.owner, None, None)
        return next((one for one in found if one.session_id == scope.session_id), None)

    async def count(self, owner: Owner) -> int:
        """Return how many sessions an owner has."""
        return len(await self.sessions(owner, None, None))

    async def is_shared(self, scope: Scope) -> bool:
        """Tell whether another agent has a session of this user and this id."""
        ...

    async def scrub(self) -> list[str]:
        """Get rid of what removed journals left behind, as far as the server can; tell where it may still be found."""
        ...

    def durability(self) -> Durability:
        """Tell what a finished commit survives, as found."""
        ...

    async def close(self) -> None:
        """Let go of the server once all calls have ended."""
        ...


class FinishesCommits:
    """A server whose `commit` tells one who is cancelled so when it is decided; that of any other gets a task."""

    __slots__ = ()


class KeepsHeads(ABC):
    """A server that keeps the head of each session, its message ids and its names of usage beside the journal.

    It is optional: any other server has the journal read. What is kept belongs to one mark of the journal; whatever
    does not, or is incomplete, is not used.
    """

    __slots__ = ()

    @abstractmethod
    async def step(self, journal: Journal, step: Step, fence: Fence | None) -> Stepped | NotStepped:
        """Append below the leaf, in one atomic step that is done once.

        Raises:
            LeaseLost: the fence no longer holds; nothing was written.
            StaleSession: there is something to write, and the session is not at the version that is expected.
        """
        ...

    @abstractmethod
    async def head(self, scope: Scope, names: Sequence[str], ids: Sequence[str]) -> Head | None:
        """Return where a session stands; `None` when its head is missing or outdated."""
        ...

    @abstractmethod
    async def keep(
        self, journal: Journal, mark: Mark, head: KeptHead, ids: Sequence[tuple[str, int]], used: Sequence[str]
    ) -> None:
        """Keep the head of a session whose journal goes up to `mark`; if it no longer does, nothing changes."""
        ...

    @abstractmethod
    async def drop(self, journal: Journal) -> None:
        """Keep no head of a session whose journal was found damaged: nothing more is appended to it."""
        ...
