"""The contract for the list of sessions: their names, usage, copies and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.stores.drafts import Draft

if TYPE_CHECKING:
    from leafward.core.archive import Archive
    from leafward.stores.contracts import Usage

T = TypeVar("T")


class Page(list[T]):
    """Some items of a list, and where the next page begins; `next_cursor` is `None` on the last page."""

    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What an erasure did: whether there was something to erase, and what of it may still be found elsewhere."""

    session_id: str
    erased: bool
    not_reached: list[str]


class Origin(NamedTuple):
    """What a new session is said to come from."""

    name: str
    parent_session_id: str | None = None
    model: str | None = None
    source: str | None = None


class SessionRegistry(Protocol):
    """Knows every session of an owner, also those that were only ever written to.

    Each write is one atomic step and touches `updated_at`. An unknown session raises `SessionNotFound`, unless a method
    says otherwise.
    """

    async def create(self, scope: Scope, origin: Origin) -> SessionInfo:
        """Bring a session into being; `SessionExists` when it is there."""
        ...

    async def get(self, scope: Scope) -> SessionInfo | None:
        """Return what is known of a session, `None` when there is none."""
        ...

    async def list(self, owner: Owner, *, limit: int | None, cursor: str | None) -> Page[SessionInfo]:
        """Return sessions, the last changed first; a cursor that is none raises `ValueError`."""
        ...

    async def count(self, owner: Owner) -> int:
        """Return how many sessions an owner has."""
        ...

    async def rename(self, scope: Scope, name: str) -> None:
        """Give a session another name."""
        ...

    async def add_usage(self, scope: Scope, usage: Usage) -> bool:
        """Add to what a session has used; False for a `usage_id` that was counted before."""
        ...

    async def delete(self, scope: Scope) -> bool:
        """Remove a session with all that is its own; False when there is none."""
        ...

    async def erase(self, scope: Scope) -> ErasureReport:
        """Remove a session and the bytes it consisted of."""
        ...

    async def fork(self, scope: Scope, at_message_id: str, target: Scope, name: str) -> SessionInfo:
        """Copy the path to a message, with its labels, overlays, context and loaded skills, into a new session."""
        ...

    async def split(self, scope: Scope, target: Scope, name: str | None, first: Draft) -> SessionInfo:
        """End a session and begin its continuation with `first`; it keeps the context, model and source."""
        ...

    async def dump(self, scope: Scope) -> Archive:
        """Return everything a session consists of, as of one moment."""
        ...

    async def restore(self, scope: Scope, archive: Archive) -> SessionInfo:
        """Bring a session into being from what was dumped; `SessionExists` when it is there."""
        ...
