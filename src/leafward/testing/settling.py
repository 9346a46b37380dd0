"""Searching twice: right after a write, and once the index has caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leafward import SearchResult, Session
    from leafward.stores import Store


class Settling:
    """What contracts that search share: an answer never depends on how far the index is."""

    async def settle(self, store: Store) -> None:
        """Return once the search index holds all that is stored.

        The default returns at once. A backend whose index follows its writes overrides this, so that
        the contracts see both states.
        """

    async def look(self, store: Store, session: Session, query: str, **options: Any) -> list[SearchResult]:
        """Search before and after the index has caught up, and return what both found."""
        before = await session.search(query, **options)
        await self.settle(store)
        after = await session.search(query, **options)
        assert after == before
        return after

    async def found(self, store: Store, session: Session, query: str) -> set[str]:
        """Return the ids of all messages that `query` finds, before and after the index has caught up."""
        return {result.id for result in await self.look(store, session, query, limit=1000)}
