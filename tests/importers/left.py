"""What AgentScope left, written as its Java writes it, into each of the places where it kept sessions."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from itertools import count
from pathlib import Path
from re import fullmatch
from typing import Any

import redis

from tests.stores.both_servers import KINDS, elsewhere
from tests.stores.redis_store import looking_at
from tests.stores.states.test_rows import OLD_TABLE
from tests.stores.states.test_servers import JAVAS_TABLE

FIXTURES = Path(__file__).parent / "fixtures" / "sessions"
DOCUMENTS = {name: (FIXTURES / f"{name}.json").read_text(encoding="utf-8") for name in ("seed", "real")}
USER123: dict[str, Any] = {
    "memory_messages": [
        json.loads(line) for line in (FIXTURES / "user123" / "memory_messages.jsonl").read_text("utf-8").split("\n")[:2]
    ]
} | {
    name: json.loads((FIXTURES / "user123" / f"{name}.json").read_text(encoding="utf-8"))
    for name in ("agent_meta", "planNotebook_state", "toolkit_activeGroups")
}
HASH = "76dead55"
_NUMBERS = count()


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Left(ABC):
    """A place, and what is put there."""

    named: str
    """What a user gives to `migrate`."""

    @abstractmethod
    async def document(self, session_id: str, text: str) -> None:
        """Put the one document of a session, as up to 1.0.4."""

    @abstractmethod
    async def states(self, session_id: str, states: dict[str, Any]) -> None:
        """Put values and lists of a session, as in 1.x."""

    @abstractmethod
    async def snapshot(self) -> dict[Any, Any]:
        """Return all there is, to the byte."""

    async def fill(self) -> None:
        """Put two sessions of the old form, and one of the newer."""
        for session_id, text in DOCUMENTS.items():
            await self.document(session_id, text)
        await self.states("user123", USER123)


class LeftInFiles(Left):
    def __init__(self, root: Path) -> None:
        self.root = root
        self.named = str(root)
        root.mkdir(mode=0o700)

    async def document(self, session_id: str, text: str) -> None:
        (self.root / f"{session_id}.json").write_text(text, encoding="utf-8")

    async def states(self, session_id: str, states: dict[str, Any]) -> None:
        safe = fullmatch(r"[a-zA-Z0-9_\-.]+", session_id)
        name = session_id if safe else urlsafe_b64encode(session_id.encode()).decode().rstrip("=")
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        for key, state in states.items():
            if isinstance(state, list):
                lines = "".join(f"{item if isinstance(item, str) else compact(item)}\n" for item in state)
                (directory / f"{key}.jsonl").write_text(lines, encoding="utf-8")
                (directory / f"{key}.hash").write_text(HASH if state else "empty:0")
            else:
                text = state if isinstance(state, str) else json.dumps(state, indent=2, ensure_ascii=False)
                (directory / f"{key}.json").write_text(text, encoding="utf-8")

    async def snapshot(self) -> dict[Any, Any]:
        return files_in(self.root)


class LeftInTables(Left):
    """Rows of 1.x are in the table, documents in the backup that a user was told to make."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._database = f"leafward_m{os.getpid()}_{next(_NUMBERS)}"
        self.named = elsewhere(server, database=self._database)

    async def make(self, *, rows: bool = True, documents: str | None = "agentscope_sessions_backup") -> None:
        await self.ask(f"CREATE DATABASE {self._database} CHARACTER SET utf8mb4", at=self._server)
        if rows:
            await self.ask(JAVAS_TABLE.format("agentscope_sessions"))
        self.documents = documents
        if documents:
            await self.ask(OLD_TABLE.format(documents))

    async def drop(self) -> None:
        await self.ask(f"DROP DATABASE {self._database}", at=self._server)

    async def ask(self, *statements: str, at: str | None = None) -> list[tuple[Any, ...]]:
        return await KINDS["mysql"].ask(at or self.named, *statements)

    async def document(self, session_id: str, text: str) -> None:
        check = "SET SESSION check_constraint_checks = 0"
        values = f"({quoted(session_id)}, {quoted(text)}, NOW())"
        into = f"INSERT INTO {self.documents} (session_id, state_data, created_at) VALUES {values}"
        # MySQL lets no damage in; this is how a test does.
        await self.ask(check, into)

    async def states(self, session_id: str, states: dict[str, Any]) -> None:
        rows: list[str] = []
        for key, state in states.items():
            items = state if isinstance(state, list) else [state]
            texts = [item if isinstance(item, str) else compact(item) for item in items]
            rows += [f"({quoted(session_id)}, {quoted(key)}, {n}, {quoted(text)})" for n, text in enumerate(texts)]
            if isinstance(state, list):
                rows.append(f"({quoted(session_id)}, {quoted(f'{key}:_hash')}, 0, '{HASH}')")
        columns = "session_id, state_key, item_index, state_data"
        await self.ask(f"INSERT INTO agentscope_sessions ({columns}) VALUES {', '.join(rows)}")

    async def snapshot(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for (table,) in await self.ask("SHOW TABLES"):
            columns = [name for name, *_ in await self.ask(f"SHOW COLUMNS FROM {table}")]
            found[f"columns of {table}"] = columns
            known = ", ".join(name for name in columns if name not in ("version", "leafward_sum"))
            found |= {(table, *row): True for row in await self.ask(f"SELECT {known} FROM {table}")}
        return found


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class LeftInRedis(Left):
    prefix = "agentscope:session:"

    def __init__(self, url: str) -> None:
        self.named = url

    def _do(self, *command: Any) -> Any:
        with looking_at(self.named) as clients:
            return clients[0].execute_command(*command)

    async def document(self, session_id: str, text: str) -> None:
        self._do("SET", f"{self.prefix}{session_id}", text)
        self._do("HSET", f"{self.prefix}{session_id}:meta", "lastModified", "1762078272345")

    async def states(self, session_id: str, states: dict[str, Any]) -> None:
        slot = f"{self.prefix}{session_id}"
        for key, state in states.items():
            if isinstance(state, list):
                for item in state:
                    self._do("RPUSH", f"{slot}:{key}:list", item if isinstance(item, str) else compact(item))
                self._do("SET", f"{slot}:{key}:list:_hash", HASH if state else "empty:0")
                self._do("SADD", f"{slot}:_keys", f"{key}:list")
            else:
                self._do("SET", f"{slot}:{key}", state if isinstance(state, str) else compact(state))
                self._do("SADD", f"{slot}:_keys", key)

    async def snapshot(self) -> dict[Any, Any]:
        with looking_at(self.named) as clients:
            return {key: content(clients[0], key) for key in clients[0].scan_iter(f"{self.prefix}*", count=10_000)}


def content(client: redis.Redis, key: bytes) -> Any:
    match client.type(key):
        case b"string":
            return client.get(key)
        case b"list":
            return client.lrange(key, 0, -1)
        case b"hash":
            return client.hgetall(key)
        case _:
            return client.smembers(key)


def files_in(root: Path) -> dict[Any, Any]:
    """Return all files below a directory but those of our own, with their bytes."""
    return {
        path.relative_to(root): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".leafward")
    }
