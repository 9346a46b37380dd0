"""Slots as AgentScope for Java reads and writes them on every backend, past our store."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import redis

from leafward import SessionKey, open_store
from leafward.core.ids import new_id
from leafward.stores import JsonFileAgentStateStore, Store
from tests.core.java_reader import resaved
from tests.stores.both_servers import Kind, MySQLKind, PostgresKind
from tests.stores.redis_store import forget, looking_at
from tests.stores.server_store import PREFIX, emptied
from tests.stores.states.java_rows import NEXT, RELEASED
from tests.stores.states.java_rows import Java as JavaRows
from tests.stores.states.redis_states import Java as JavaKeys

BACKENDS = ("json", "file", "sqlite", "postgres", "mysql", "redis")
KEYS = (
    *("session_id", "user_id", "summary", "context", "reply_id", "cur_iter", "shutdown_interrupted"),
    *("permission_context", "tool_context", "tasks_context", "plan_mode_context"),
)
"""What Java knows of an `AgentState`, and writes, in its order."""


class JavaSlot(ABC):
    """The slot of user alice, session s1."""

    name = ""
    """Of the backend."""
    agent_store: Any
    """What an agent of ours is given as its store."""

    @abstractmethod
    async def read(self) -> str: ...

    @abstractmethod
    async def write(self, text: str) -> None: ...

    async def load(self) -> dict[str, Any]:
        """Read the slot as Java does, which refuses what it does not know, and drops keys."""
        found = resaved(json.loads(await self.read()))
        missing = [key for key in KEYS if key not in found]
        assert not missing
        assert found["tool_context"]["max_cache_files"] > 1
        assert found["tool_context"]["max_cache_bytes"] > 10_000
        return {key: found[key] for key in KEYS}

    async def save(self, state: dict[str, Any]) -> None:
        """Write the slot as Java does."""
        assert list(state) == list(KEYS)
        await self.write(json.dumps(state, ensure_ascii=False, separators=(",", ":")))


class _File(JavaSlot):
    def __init__(self, path: Path, agent_store: Any) -> None:
        self._path = path
        self.agent_store = agent_store

    async def read(self) -> str:
        return self._path.read_text(encoding="utf-8")

    async def write(self, text: str) -> None:
        unfinished = self._path.with_name(f"{self._path.name}.tmp")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, self._path)

    async def save(self, state: dict[str, Any]) -> None:
        await self.write(json.dumps(state, ensure_ascii=False, indent=2, separators=(",", " : ")))


class Embedded(JavaSlot):
    """There is no Java on SQLite: another program of ours is the other writer."""

    def __init__(self, store: Store) -> None:
        self._states = store.states
        self.agent_store = store

    async def read(self) -> str:
        return json.dumps(await self._states.get(SessionKey("s1", "alice"), "agent_state"))

    async def write(self, text: str) -> None:
        await self._states.save(SessionKey("s1", "alice"), "agent_state", json.loads(text))


class _Rows(JavaSlot):
    def __init__(self, kind: Kind, url: str, store: Store) -> None:
        table = f"agentscope.{PREFIX}agentscope_sessions" if kind.name == "postgres" else f"{PREFIX}agentscope_sessions"
        # One Java counts versions, the other, a released one, does not.
        self._java = JavaRows(kind, url, table, NEXT if kind.name == "postgres" else RELEASED)
        self._escapes = kind.name == "mysql"
        self.agent_store = store

    async def read(self) -> str:
        row = await self._java.get("alice:s1", "agent_state")
        assert row is not None
        return row[0]

    async def write(self, text: str) -> None:
        quoted = text.replace("'", "''")
        await self._java.save("alice:s1", "agent_state", quoted.replace("\\", "\\\\") if self._escapes else quoted)


class _Keys(JavaSlot):
    def __init__(self, client: redis.Redis, slot: str, store: Store) -> None:
        self._java = JavaKeys(client, slot)
        self.agent_store = store

    async def read(self) -> str:
        found: Any = self._java.client.get(f"{self._java.slot}:agent_state")
        return found.decode()

    async def write(self, text: str) -> None:
        self._java.save("agent_state", text.encode())


@asynccontextmanager
async def java_slot(name: str, tmp_path: Path, server_url: Callable[[str], str]) -> AsyncGenerator[JavaSlot]:
    """Open a store, and give the slot in it as the other writer sees it."""
    async with _slot(name, tmp_path, server_url) as slot:
        slot.name = name
        yield slot


@asynccontextmanager
async def _slot(name: str, tmp_path: Path, server_url: Callable[[str], str]) -> AsyncGenerator[JavaSlot]:
    async with AsyncExitStack() as stack:
        if name == "json":
            home = JsonFileAgentStateStore(tmp_path / "home")
            yield _File(tmp_path / "home/alice/s1/agent_state.json", await stack.enter_async_context(home))
        elif name == "file":
            store = await stack.enter_async_context(open_store(f"file:///{tmp_path}/files"))
            yield _File(tmp_path / "files/.states/alice/s1/agent_state.json", store)
        elif name == "sqlite":
            yield Embedded(await stack.enter_async_context(open_store(f"sqlite:///{tmp_path}/s.db")))
        elif name == "redis":
            url, prefix = server_url("redis"), f"{new_id()}:"
            store = await stack.enter_async_context(open_store(url, key_prefix=prefix))
            (client,) = stack.enter_context(looking_at(url))
            stack.callback(forget, url, prefix)
            yield _Keys(client, f"{prefix}agentscope:session:alice/s1", store)
        else:
            kind, url = (PostgresKind() if name == "postgres" else MySQLKind()), server_url(name)
            yield _Rows(kind, url, await stack.enter_async_context(emptied(url)))
