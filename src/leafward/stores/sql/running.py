"""What a SQL backend brings along; the contracts are then served by the operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from leafward.core.ids import Owner, Scope
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.stores.contracts import Revision, SearchFilter
from leafward.stores.leases import Fence, LeaseTable
from leafward.stores.registry import ErasureReport
from leafward.stores.sql.commands import Command
from leafward.stores.sql.operations import Operation

T = TypeVar("T")


class Runner(Protocol):
    """Runs commands and operations, each in one transaction."""

    async def write(self, command: Command[T], fence: Fence | None = None) -> T:
        """Carry out a command, if the fence still holds, and return once it is durable.

        Its operation may be made and run more than once; only the last run counts.
        """
        ...

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that looks at one session, or at the sessions of one owner, on what is committed now.

        It may be made and run more than once; only the last run counts.
        """
        ...

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        """Return the best matches in one snapshot."""
        ...

    async def wait(self, scope: Scope, revision: Revision) -> None:
        """Return once the session is at another revision."""
        ...

    async def is_shared(self, scope: Scope) -> bool:
        """Tell whether another agent has a session of this user and this id."""
        ...

    async def erase(self, scope: Scope) -> ErasureReport:
        """Delete a session and remove its bytes, and those of what was deleted before, from wherever there are any."""
        ...

    async def scrub(self) -> list[str]:
        """Remove the bytes of what was deleted before; return what cannot be reached."""
        ...


class Serving(Runner, LeaseTable, Protocol):
    """A runner that keeps leases as well."""
