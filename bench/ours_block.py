"""leafward's search block, through the tools that a model calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import traffic
from driver import Driver, serve

from leafward import Session, StoredSearchProvider, ToolSet, open_store

LABEL = "notes"
AT_ONCE = 100


class Block(Driver):
    """Block `b` belongs to session `b`."""

    def __init__(self) -> None:
        self._tools: dict[int, ToolSet] = {}
        self._next: list[dict[str, Any]] = []

    async def open(self, path: str) -> None:
        self._store = await open_store(f"sqlite:///{Path(path).absolute()}/leafward.db")

    async def _tools_of(self, block: int) -> ToolSet:
        if block not in self._tools:
            session = Session(self._store, f"s{block}").with_context(LABEL, provider=StoredSearchProvider())
            self._tools[block] = await session.tools()
        return self._tools[block]

    async def put_all(self, block: int, size: int) -> None:
        """Write the entries of a block."""
        for start in range(0, size, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, size))
            await asyncio.gather(*(self._put(block, _arguments(number, size)) for number in numbers))

    async def ready(self, block: int, start: int, stop: int, size: int) -> None:
        """Make entries for `put_next`."""
        await self._tools_of(block)
        self._next = [_arguments(number, size) for number in range(start, stop)]

    async def put_next(self, block: int) -> None:
        """Write one more entry."""
        await self._put(block, self._next.pop())

    async def _put(self, block: int, arguments: dict[str, Any]) -> None:
        answer = await (await self._tools_of(block)).call("set_context", arguments)
        if not answer.startswith("Indexed"):
            raise AssertionError(answer)

    async def find(self, block: int, word: str) -> int:
        """Search a block and return how many entries came."""
        answer = await (await self._tools_of(block)).call("search_context", {"label": LABEL, "query": word})
        return answer.count("[note-")

    async def settle(self) -> None:
        await self._store.settle()

    async def close(self) -> None:
        await self._store.close()


def _arguments(number: int, size: int) -> dict[str, Any]:
    return {
        "label": LABEL,
        "content": traffic.entry(number, of=size),
        "metadata": {"title": f"Note {number}"},
    }


if __name__ == "__main__":
    serve(Block)
