"""`StateTable` on files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.leases import Fence, Slot
from leafward.stores.sql.operations import Operation
from leafward.stores.states.table import Stored

T = TypeVar("T")


class LockedRunner(Protocol):
    """Runs operations behind a lock, on a thread of its own."""

    async def change(self, operation: Callable[[bool], Operation[T]], fence: Fence | None) -> T:
        """Run an operation if the fence holds; it may be made and run more than once."""
        ...


class FileStates:
    """Runs each call as one step of a runner, behind its lock and on its thread; a read may have something to note."""

    def __init__(self, runner: LockedRunner, files: StateFiles) -> None:
        self._runner = runner
        self._files = files

    async def _do(self, step: Callable[[], T], fence: Fence | None = None) -> T:
        done: list[T] = []

        def operation() -> Operation[T]:
            # Once: the runner tries again when others that were to be committed with it failed.
            if not done:
                with named(self._files.shown):
                    done.append(step())
            yield from ()
            return done[0]

        return await self._runner.change(lambda _: operation(), fence)

    async def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        return await self._do(lambda: self._files.get(slot, name))

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        return await self._do(lambda: self._files.put(slot, name, text, expected), fence)

    async def get_list(self, slot: Slot, name: str) -> Sequence[str | bytes]:
        return await self._do(lambda: self._files.get_list(slot, name))

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        await self._do(lambda: self._files.put_list(slot, name, texts, fresh=fresh), fence)

    async def exists(self, slot: Slot) -> bool:
        return await self._do(lambda: self._files.exists(slot))

    async def names(self, slot: Slot) -> dict[str, bool]:
        return await self._do(lambda: self._files.names(slot))

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        await self._do(lambda: self._files.drop(slot, name), fence)

    async def forget(self, slot: Slot) -> bool:
        return await self._do(lambda: self._files.forget(slot))

    async def sessions(self, user_id: str | None) -> set[str]:
        return await self._do(lambda: self._files.sessions(user_id))

    async def clear(self) -> None:
        await self._do(self._files.clear)
