"""leafward on SQLite with its default settings, through the calls that users have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import traffic
from driver import Driver, serve

from leafward import Message, Session, SessionManager, open_store
from leafward.core.ids import Owner
from leafward.core.query import parse_query
from leafward.stores.contracts import SearchFilter

# Opening the first store loads this; that belongs to importing, which is measured apart.
from leafward.stores.sqlite.store import SqliteStore

USERS = 2
WAITING = "SELECT count(*) FROM leafward_unindexed u JOIN leafward_message m ON m.place BETWEEN u.low AND u.high"


class Leafward(Driver):
    """Session `s` belongs to user `s % 2`; searching a user means user 0."""

    async def open(self, path: str) -> None:
        self._path = Path(path).absolute() / "leafward.db"
        store = await open_store(f"sqlite:///{self._path}")
        assert isinstance(store, SqliteStore)
        self._store = store

    async def prepare(self, message: dict[str, Any]) -> Message:
        return Message.from_dict(message)

    def _session(self, session: int) -> Session:
        return Session(self._store, f"s{session}", user_id=f"u{session % USERS}")

    async def append(self, session: int, message: Message) -> None:
        await self._session(session).append_message(message)

    async def extend(self, session: int, messages: list[Message]) -> None:
        await self._session(session).append_messages(messages)

    async def history(self, session: int) -> int:
        return len(await self._session(session).get_history())

    async def recent(self, session: int, count: int) -> int:
        return len((await self._session(session).get_recent_history(max_messages=count)).messages)

    async def branch(self, session: int, at: int, message: Message) -> None:
        parent = traffic.message(at, session=session)["id"]
        await self._session(session).append_message(message, parent_id=parent)

    async def search(self, session: int | None, query: str, kind: str) -> int:
        if session is not None:
            return len(await self._session(session).search(query))
        owner = Owner("default", "u0")
        found = await self._store.messages.search(owner, parse_query(query), only=SearchFilter(), limit=20)
        return len(found)

    async def waiting(self) -> int:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
            return connection.execute(WAITING).fetchone()[0]

    def _manager(self, session: int) -> SessionManager:
        return SessionManager(self._store, user_id=f"u{session % USERS}")

    async def summarise(self, session: int, last: int) -> None:
        """Lay a summary over the messages from the first to `last`."""
        ends = [traffic.message(number, session=session)["id"] for number in (0, last)]
        await self._session(session).add_compaction(traffic.summary(), *ends)

    async def fork(self, session: int, at: int) -> None:
        """Copy a session up to message `at` into a new one."""
        message_id = traffic.message(at, session=session)["id"]
        await self._manager(session).fork(f"s{session}", message_id, "a copy")

    async def erase(self, session: int) -> list[str]:
        """Erase a session and return what of it may be left in the store's own files."""
        report = await self._manager(session).erase(f"s{session}")
        assert report.erased
        return [text for text in report.not_reached if "leafward.db" in text]

    async def settle(self) -> None:
        await self._store.settle()

    async def close(self) -> None:
        await self._store.close()


if __name__ == "__main__":
    serve(Leafward)
