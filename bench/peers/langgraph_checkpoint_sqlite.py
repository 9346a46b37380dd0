"""langgraph `SqliteSaver` with one `messages` channel: each append is one checkpoint of the whole list.

A graph run writes several checkpoints and pending writes per turn; one `put` per message is the least it can
cost. A long session is made with one `put` of all its messages, which is the kindest way to fill it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from driver import Driver, serve
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver


def _native(message: dict[str, Any]) -> BaseMessage:
    first = message["parts"][0]
    if message["role"] == "user":
        return HumanMessage(first["text"], id=message["id"])
    if message["role"] == "tool":
        return ToolMessage(first["output"], tool_call_id=first["id"], name=first["name"], id=message["id"])
    calls = [{"name": p["name"], "args": p["input"], "id": p["id"]} for p in message["parts"][1:]]
    return AIMessage(first["text"], tool_calls=calls, id=message["id"])


class LangGraph(Driver):
    fill_batch = 1_000_000

    def __init__(self) -> None:
        self._configs: dict[int, Any] = {}
        self._messages: dict[int, list[BaseMessage]] = {}

    async def open(self, path: str) -> None:
        self._connection = sqlite3.connect(Path(path) / "checkpoints.db", check_same_thread=False)
        self._saver = SqliteSaver(self._connection)

    async def prepare(self, message: dict[str, Any]) -> BaseMessage:
        return _native(message)

    def _config(self, session: int) -> Any:
        return self._configs.get(session, {"configurable": {"thread_id": f"s{session}", "checkpoint_ns": ""}})

    def _put(self, config: Any, messages: list[BaseMessage]) -> Any:
        version = f"{len(messages):032}.0"
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": version}
        metadata: Any = {"source": "loop", "step": len(messages), "parents": {}}
        return self._saver.put(config, checkpoint, metadata, {"messages": version})

    async def append(self, session: int, message: BaseMessage) -> None:
        await self.extend(session, [message])

    async def extend(self, session: int, messages: list[BaseMessage]) -> None:
        known = self._messages.setdefault(session, [])
        known.extend(messages)
        self._configs[session] = await asyncio.to_thread(self._put, self._config(session), known)

    def _load(self, session: int) -> list[BaseMessage]:
        found = self._saver.get_tuple({"configurable": {"thread_id": f"s{session}", "checkpoint_ns": ""}})
        return found.checkpoint["channel_values"]["messages"] if found else []

    async def history(self, session: int) -> int:
        return len(await asyncio.to_thread(self._load, session))

    async def recent(self, session: int, count: int) -> int:
        return len((await asyncio.to_thread(self._load, session))[-count:])

    async def branch(self, session: int, at: int, message: BaseMessage) -> None:
        await asyncio.to_thread(self._put, self._config(session), [*self._messages[session][:at], message])

    async def release(self, session: int) -> None:
        self._messages.pop(session, None)

    async def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    serve(LangGraph)
