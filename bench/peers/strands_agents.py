"""strands-agents `FileSessionManager`: one file per message, without `fsync`; a branch is a copy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from driver import Driver, serve
from strands.session.file_session_manager import FileSessionManager
from strands.types.session import SessionAgent, SessionMessage

AGENT = "bench"


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"text": part["text"]}
    if part["type"] == "tool_use":
        return {"toolUse": {"toolUseId": part["id"], "name": part["name"], "input": part["input"]}}
    return {"toolResult": {"toolUseId": part["id"], "status": "success", "content": [{"text": part["output"]}]}}


class Strands(Driver):
    def __init__(self) -> None:
        self._managers: dict[str, FileSessionManager] = {}
        self._lengths: dict[str, int] = {}

    async def open(self, path: str) -> None:
        self._path = str(Path(path))

    async def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        role = "assistant" if message["role"] == "assistant" else "user"
        return {"role": role, "content": [_part(part) for part in message["parts"]]}

    def _manager(self, name: str) -> FileSessionManager:
        if name not in self._managers:
            manager = FileSessionManager(name, self._path)
            if manager.read_agent(name, AGENT) is None:
                state = SessionAgent(agent_id=AGENT, state={}, conversation_manager_state={})
                manager.create_agent(name, state)
            self._managers[name] = manager
        return self._managers[name]

    def _create(self, name: str, message: Any) -> None:
        number = self._lengths.get(name, 0)
        self._lengths[name] = number + 1
        self._manager(name).create_message(name, AGENT, SessionMessage.from_message(message, number))

    async def append(self, session: int, message: Any) -> None:
        await asyncio.to_thread(self._create, f"s{session}", message)

    def _create_all(self, name: str, messages: list[Any]) -> None:
        for message in messages:
            self._create(name, message)

    async def extend(self, session: int, messages: list[Any]) -> None:
        await asyncio.to_thread(self._create_all, f"s{session}", messages)

    def _list(self, name: str, limit: int | None, offset: int) -> list[Any]:
        found = self._manager(name).list_messages(name, AGENT, limit=limit, offset=offset)
        return [message.to_message() for message in found]

    async def history(self, session: int) -> int:
        return len(await asyncio.to_thread(self._list, f"s{session}", None, 0))

    async def recent(self, session: int, count: int) -> int:
        name = f"s{session}"
        offset = max(0, self._lengths[name] - count) if name in self._lengths else 0
        return len((await asyncio.to_thread(self._list, name, None, offset))[-count:])

    def _copy(self, name: str, at: int, message: Any) -> None:
        copy = f"{name}-copy-{len(self._managers)}"
        self._create_all(copy, [*self._list(name, at, 0), message])

    async def branch(self, session: int, at: int, message: Any) -> None:
        await asyncio.to_thread(self._copy, f"s{session}", at, message)

    async def release(self, session: int) -> None:
        self._managers.pop(f"s{session}", None)


if __name__ == "__main__":
    serve(Strands)
