"""What AgentScope left in keys of a Redis: the sets of its 1.x, and the strings of before 1.0.5."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from redis import exceptions as redis

from leafward.core.errors import StateDecodeError
from leafward.stores.leases import Slot
from leafward.stores.redis.calls import Calls, explain, servers
from leafward.stores.redis.checking import check
from leafward.stores.redis.clients import is_cluster, make_client
from leafward.stores.redis.scripts import Script
from leafward.stores.redis.state_keys import DEFAULT_PREFIX, LIST, SET, OfAgentScope
from leafward.stores.redis.state_scripts import IS_OLD
from leafward.stores.redis.urls import read_url
from leafward.stores.redis.wires import SILENCE_S
from leafward.stores.states.older import Place, Remark, Text, Texts
from leafward.stores.states.row_names import ANONYMOUS
from leafward.stores.states.table import OF_SANDBOXES

_META = ":meta"
"""What stands behind a session in the key of a hash that AgentScope had beside each document."""

_OF_2X = {"agent_state", OF_SANDBOXES}
"""States that AgentScope has in 2.x only."""
_OURS_IN_A_CLUSTER = re.compile(r"\{(?:anonymous|u:[^}]*)\}:state")

# KEYS: any key, alone, so that a cluster knows where to ask. Returns what kind it is, and what it holds.
_READ = Script("""
local kind = redis.call('TYPE', KEYS[1]).ok
local reads = {string = {'GET', KEYS[1]}, list = {'LRANGE', KEYS[1], 0, -1}, set = {'SMEMBERS', KEYS[1]}}
return {kind, reads[kind] and redis.call(unpack(reads[kind])) or false}
""")


async def open_older_keys(url: str, *, prefix: str = DEFAULT_PREFIX) -> OlderKeys:
    """Connect to a Redis, and find all keys that may be a session's.

    Raises:
        ConfigurationError, StoreError: it cannot be used, or is not there.
    """
    address = read_url(url)
    async with AsyncExitStack() as closing:
        client = await make_client(address, closing)
        await check(client, address.where)
        older = OlderKeys(Calls(client, address.where, closing.pop_all()), prefix)
    try:
        await older.look()
    except BaseException:
        await older.close()
        raise
    return older


class OlderKeys:
    """The sessions below a prefix. Bytes of a key that are no text are carried along, and refused as an id."""

    renamed = None

    def __init__(self, calls: Calls, prefix: str) -> None:
        self._calls = calls
        self._prefix = prefix
        self._names = OfAgentScope(prefix, "1.x")
        self._places: dict[str, tuple[Slot, bool]] = {}
        """Of which session each is, and whether it was written under our old rule."""
        self._documents: list[str] = []
        self._left_out: list[Remark] = []
        self._of_2x = 0

    async def look(self) -> None:
        """Find the names of all sessions: a scan may tell a key twice, so none can be told before all are known."""
        places: set[str] = set()
        documents: set[str] = set()
        doubtful: set[str] = set()
        cluster = is_cluster(self._calls.client)
        async for key in self._keys():
            name = _text(key)[len(self._prefix) :]
            if cluster and _OURS_IN_A_CLUSTER.match(name):
                continue
            if name.endswith(SET):
                places.add(name.removesuffix(SET))
            elif ":" not in name:
                (doubtful if "/" in name else documents).add(name)
            elif name.endswith(_META) and (await self._read(name))[0] == "hash":
                # Without this hash, what has a colon is a state of a session.
                documents.add(name.removesuffix(_META))
        self._documents = sorted(documents)
        found = {name: await self._slot(name, cluster=cluster) for name in sorted(places) if "/" not in name}
        # Of two names for one session, the one that AgentScope gives it counts.
        kept = {slot: name for name, (slot, _) in sorted(found.items(), key=lambda item: not item[1][1])}
        for name, (slot, old) in found.items():
            if kept[slot] == name:
                self._places[name] = slot, old
            else:
                reason = f"session {slot.session_id!r} is also kept as AgentScope names it, and that one is moved"
                self._left_out.append(Remark(self._shown(name + SET), reason))
        for name in sorted(places - found.keys()):
            if not await self._leave_out(name):
                self._of_2x += 1
        for name in sorted(doubtful - documents):
            if (await self._read(name))[0] == "string":
                reason = f"it may be the document of session {name!r}, but has no {_META!r} beside it, and is not moved"
                self._left_out.append(Remark(self._shown(name), reason))

    async def _slot(self, name: str, *, cluster: bool) -> tuple[Slot, bool]:
        """Return the session of a place, and whether it was written under our old rule; in a cluster nothing was."""
        key = f"{self._prefix}{name}{SET}"
        old = not cluster and "%" in name and await self._calls.ask(IS_OLD, [_bytes(key)], []) == 1
        return self._names.read(key, old=old) or Slot(None, name), old

    async def _leave_out(self, name: str) -> bool:
        """Note what has a slash and is not certainly a slot of 2.x; tell whether it is not."""
        user, _, session = name.partition("/")
        kind, members = (await self._read(name + SET)) if user != ANONYMOUS else ("none", ())
        if kind == "set" and not _OF_2X & set(map(_text, members)):
            reason = f"it may be session {session!r} of user {user!r} in 2.x, and is not moved"
            self._left_out.append(Remark(self._shown(name + SET), reason))
            return True
        return False

    async def _keys(self) -> AsyncIterator[bytes]:
        pattern = re.sub(r"[*?\[\]\\]", r"\\\g<0>", self._prefix) + "*"
        for server in servers(self._calls.client):
            cursor: Any = None
            while cursor is None or int(cursor):
                try:
                    async with asyncio.timeout(SILENCE_S):
                        answer = server.execute_command("SCAN", cursor or 0, "MATCH", pattern, "COUNT", 1000)
                        cursor, keys = await answer
                except (redis.RedisError, TimeoutError) as error:
                    raise explain(error, self._calls.where) from error
                for key in keys:
                    yield key

    async def _read(self, name: str) -> tuple[str, Any]:
        kind, content = await self._calls.ask(_READ, [_bytes(self._prefix + name)], [])
        return _text(kind), content

    def _shown(self, name: str) -> str:
        return f"key {self._prefix + name!r} on {self._calls.where}"

    async def count(self) -> int:
        return len(self._places) + len(self._documents)

    async def places(self) -> AsyncIterator[Place]:
        for name in self._places:
            yield Place(self._shown(name + SET), name)

    async def documents(self) -> AsyncIterator[Place]:
        for name in self._documents:
            yield Place(self._shown(name), name)

    async def read(self, place: Place) -> tuple[Slot, Texts]:
        slot, old = self._places[place.at]
        kind, members = await self._read(place.at + SET)
        if kind != "set":
            return slot, {}
        found: Texts = {}
        # A name with a colon is newer than the same name as we spell it.
        for member in sorted(map(_text, members), key=lambda one: (":" not in one.removesuffix(LIST), one)):
            written = member.removesuffix(LIST)
            name = written if old else self._names.read_name(written)
            wanted = "list" if member.endswith(LIST) else "string"
            kind, content = await self._read(f"{place.at}:{member}")
            if kind not in (wanted, "none"):
                raise StateDecodeError(*slot, name, f"its key holds a {kind}, not a {wanted}")
            if name in found and isinstance(found[name], list) is (wanted == "list"):
                continue
            if name in found:
                raise StateDecodeError(*slot, name, "there are a value and a list of this name")
            # There is no key for an empty list, nor for a value that is gone.
            if kind != "none" or wanted == "list":
                found[name] = content or [] if wanted == "list" else content
        return slot, found

    async def document(self, session_id: str) -> Text | None:
        kind, content = await self._read(session_id)
        return content if kind == "string" else None

    async def left_out(self) -> list[Remark]:
        return self._left_out

    async def of_2x(self) -> int:
        """Return how many sessions are of 2.x for certain."""
        return self._of_2x

    async def unclear(self) -> list[Remark]:
        return []

    async def close(self) -> None:
        await self._calls.close()


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
