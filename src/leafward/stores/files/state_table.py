"""`StateTable` on files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from leafward.stores.files.state_tree import Memory
from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.leases import Fence, Slot
from leafward.stores.sql.operations import Operation
from leafward.stores.states.table import LaysOut, Stored

T = TypeVar("T")


class LockedRunner(Protocol):
    """Runs operations behind a lock, on a thread of its own."""

    async def change(self, operation: Callable[[bool], Operation[T]], fence: Fence | None) -> T:
        """Run an operation if the fence holds; it may be made and run more than once."""
        ...


class Access(Protocol):
    """Runs steps on the files of states, each on a thread; `BeingWritten` is left to the caller."""

    @property
    def memory(self) -> Memory: ...

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was written so far; a change that has no effect should then not be begun."""
        ...

    async def read(self, step: Callable[[StateFiles], T]) -> T: ...

    async def change(self, step: Callable[[StateFiles], T], fence: Fence | None) -> T:
        """Run a step that writes, if the fence holds."""
        ...


class Locked:
    """Runs each step as one of a runner, behind its lock and on its thread; a read may have something to note."""

    is_untouched = False

    def __init__(self, runner: LockedRunner, files: StateFiles) -> None:
        self._runner = runner
        self._files = files
        self.memory = files.memory

    async def read(self, step: Callable[[StateFiles], T]) -> T:
        return await self.change(step, None)

    async def change(self, step: Callable[[StateFiles], T], fence: Fence | None) -> T:
        done: list[T] = []

        def operation() -> Operation[T]:
            # Once: the runner tries again when others that were to be committed with it failed.
            if not done:
                with named(self._files.shown):
                    done.append(step(self._files))
            yield from ()
            return done[0]

        return await self._runner.change(lambda _: operation(), fence)


class FileStates:
    """Runs each call as one step; while another process writes what is read, it waits and runs it again."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def _read(self, step: Callable[[StateFiles], T]) -> T:
        return await self._access.memory.unfinished.wait(lambda: self._access.read(step))

    async def _change(self, step: Callable[[StateFiles], T], fence: Fence | None) -> T:
        return await self._access.memory.unfinished.wait(lambda: self._access.change(step, fence))

    async def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        return await self._read(lambda files: files.get(slot, name, versioned=versioned))

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        return await self._change(lambda files: files.put(slot, name, text, expected), fence)

    async def put_laid_out(
        self, slot: Slot, name: str, value: LaysOut, expected: int | None, fence: Fence | None
    ) -> int:
        return await self._change(lambda files: files.put(slot, name, value, expected), fence)

    async def get_list(self, slot: Slot, name: str) -> Sequence[str | bytes]:
        return await self._read(lambda files: files.get_list(slot, name))

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        await self._change(lambda files: files.put_list(slot, name, texts, fresh=fresh), fence)

    async def exists(self, slot: Slot) -> bool:
        return await self._read(lambda files: files.exists(slot))

    async def names(self, slot: Slot) -> dict[str, bool]:
        return await self._read(lambda files: files.names(slot))

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        untouched = self._access.is_untouched and fence is None
        if not untouched or await self._read(lambda files: files.has_to_drop(slot, name)):
            await self._change(lambda files: files.drop(slot, name), fence)

    async def forget(self, slot: Slot) -> bool:
        if self._access.is_untouched and not await self.exists(slot):
            return False
        return await self._change(lambda files: files.forget(slot), None)

    async def sessions(self, user_id: str | None) -> set[str]:
        return await self._read(lambda files: files.sessions(user_id))
