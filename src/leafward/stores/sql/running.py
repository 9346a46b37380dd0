"""What a SQL backend brings along; the contracts are then served by the operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from leafward.core.ids import Owner, Scope
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.stores.contracts import SearchFilter
from leafward.stores.registry import ErasureReport
from leafward.stores.sql.operations import Indexing, Operation

T = TypeVar("T")


class Runner(Protocol):
    """Runs operations, each in one transaction."""

    @property
    def indexing(self) -> Indexing: ...

    async def write(self, scope: Scope, operation: Callable[[], Operation[T]], *, size: int = 0) -> T:
        """Run an operation that writes about `size` bytes, and return once it is durable.

        It may be made and run more than once; only the last run counts.
        """
        ...

    async def read(self, operation: Operation[T]) -> T:
        """Run an operation on what is committed now."""
        ...

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        """Return the best matches in one snapshot."""
        ...

    async def wait(self, scope: Scope, version: int) -> None:
        """Return once the session is at another version."""
        ...

    async def erase(self, scope: Scope) -> ErasureReport:
        """Delete a session and remove its bytes from wherever the backend keeps any."""
        ...
