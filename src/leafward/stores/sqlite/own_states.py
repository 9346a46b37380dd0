"""States in a SQLite file, without anything else."""

from __future__ import annotations

import asyncio
import os

from leafward.core.errors import ConfigurationError
from leafward.stores.states.standalone import Opened, Standalone, opened_with
from leafward.stores.states.table import Layout, check_layout


class SqliteAgentStateStore(Standalone):
    """States in one SQLite file, shared by any number of processes of one machine."""

    def __init__(self, path: str | os.PathLike[str], *, layout: str = "2.x", create: bool = True) -> None:
        self._layout: Layout = check_layout(layout)
        self._path: str = os.path.abspath(os.path.expanduser(path))
        self._create = create
        super().__init__(f"the store of states {self._path}", self._open_file)

    async def _open_file(self) -> Opened:
        from leafward.stores.sqlite import open_sqlite

        if not self._create and not await asyncio.to_thread(os.path.exists, self._path):
            raise ConfigurationError(f"{self._path} does not exist: make the store with create=True")
        store = await open_sqlite(f"sqlite:///{self._path}", layout=self._layout)
        return opened_with(store, store.runner)
