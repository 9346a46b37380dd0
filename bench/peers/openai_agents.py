"""openai-agents `SQLiteSession`: opaque items in one table; no branch call, so a branch is a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import SQLiteSession
from driver import Driver, serve


class OpenAIAgents(Driver):
    def __init__(self) -> None:
        self._sessions: dict[int, SQLiteSession] = {}
        self._copies = 0

    async def open(self, path: str) -> None:
        self._path = Path(path) / "sessions.db"

    def _session(self, session: int) -> SQLiteSession:
        if session not in self._sessions:
            self._sessions[session] = SQLiteSession(f"s{session}", self._path)
        return self._sessions[session]

    async def append(self, session: int, message: Any) -> None:
        await self._session(session).add_items([message])

    async def extend(self, session: int, messages: list[Any]) -> None:
        await self._session(session).add_items(messages)

    async def history(self, session: int) -> int:
        return len(await self._session(session).get_items())

    async def recent(self, session: int, count: int) -> int:
        return len(await self._session(session).get_items(limit=count))

    async def branch(self, session: int, at: int, message: Any) -> None:
        items = (await self._session(session).get_items())[:at]
        self._copies += 1
        copy = SQLiteSession(f"copy-{self._copies}-of-{session}", self._path)
        await copy.add_items([*items, message])
        copy.close()

    async def release(self, session: int) -> None:
        if session in self._sessions:
            self._sessions.pop(session).close()

    async def close(self) -> None:
        for session in list(self._sessions):
            await self.release(session)


if __name__ == "__main__":
    serve(OpenAIAgents)
