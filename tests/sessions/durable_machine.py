"""Drives a session that is kept in a file."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis.stateful import rule

from leafward.stores.sqlite.store import SqliteStore
from tests.sessions.copying_machine import CopyingMachine


class DurableMachine(CopyingMachine):
    """The same on a file, which is also closed and opened again."""

    url = "sqlite:///{directory}/chat.db"
    options: ClassVar[dict[str, Any]] = {"durability": "process"}

    @rule()
    def let_the_index_catch_up(self) -> None:
        assert isinstance(self.store, SqliteStore)
        self.runner.run(self.store.settle())

    @rule()
    def reopen(self) -> None:
        async def again() -> None:
            await self.store.close()
            await self._open()

        self.runner.run(again())
        self.tally["reopenings"] += 1
        assert self.runner.run(self.session.get_version()) == self.version
