"""`StateTable` on Redis."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from leafward.core.errors import LeaseLost, StaleState
from leafward.stores.gate import Gate
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence, Slot
from leafward.stores.redis import state_scripts as scripts
from leafward.stores.redis.calls import Calls
from leafward.stores.redis.keys import Keys
from leafward.stores.redis.scripts import Script
from leafward.stores.redis.state_keys import LIST, SET, OfACluster, StateKeys, keys_of
from leafward.stores.states.table import EMPTY, FILLED, OF_SANDBOXES, Stored, holds_list, holds_value

_LOST, _OTHERWISE = -1, -2


class RedisStates:
    """Each call is one script; that of a list, which sends only what is new, asks for its length before."""

    def __init__(self, calls: Calls, names: StateKeys, leases: Keys, guard: Guard) -> None:
        self._calls = calls
        self._names = names
        self._leases = leases
        self._guard = guard
        # What is saved last is what stays, though connections are shared.
        self._gate = Gate()

    async def get(self, slot: Slot, name: str) -> Stored | None:
        found = await self._ask(scripts.GET, self._keys(slot, name), name.encode())
        if found == 1:
            raise holds_list(slot, name)
        return None if found is None else Stored(found[0], int(found[1]))

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        keys = keys_of(self._names.places(slot)[0], name)
        wanted = b"" if expected is None else expected
        async with self._gate.turn(slot):
            version = await self._change(scripts.PUT, slot, name, fence, keys, text.encode(), wanted)
        if version == _OTHERWISE:
            assert expected is not None
            raise StaleState(*slot, name, expected)
        return int(version)

    async def get_list(self, slot: Slot, name: str) -> list[str | bytes]:
        found = await self._ask(scripts.GET_LIST, self._keys(slot, name), name.encode())
        if found == 1:
            raise holds_value(slot, name)
        return found

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        async with self._gate.turn(slot):
            await self._put_list(slot, name, texts, fence, fresh=fresh)

    async def _put_list(self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool) -> None:
        keys = keys_of(self._names.places(slot)[0], name)
        items = [text.encode() for text in texts]
        mark = (FILLED if items else EMPTY).encode()
        if fresh:
            args = mark, b"new", b"", b"", *items
            if await self._change(scripts.PUT_LIST, slot, name, fence, keys, *args) == _OTHERWISE:
                raise StaleState(*slot, name, 0)
            return
        length = await self._ask(scripts.LENGTH, keys[3:4])
        if length <= len(items):
            # With salt, so that nobody can have made items that differ and have one sum.
            salt = os.urandom(16).hex().encode()
            # An item is on one line.
            total = sha1(salt + b"\n".join(items[:length]), usedforsecurity=False).hexdigest().encode()
            args = mark, length, total, salt, *items[length:]
            if await self._change(scripts.PUT_LIST, slot, name, fence, keys, *args) != _OTHERWISE:
                return
        await self._change(scripts.PUT_LIST, slot, name, fence, keys, mark, b"", b"", b"", *items)

    async def exists(self, slot: Slot) -> bool:
        return await self._ask(scripts.EXISTS, self._sets(slot)) > 0

    async def names(self, slot: Slot) -> dict[str, bool]:
        members = map(_text, await self._ask(scripts.MEMBERS, self._sets(slot)[:1]))
        # Java may have both of one name: a value comes before its list.
        return {one.removesuffix(LIST): one.endswith(LIST) for one in sorted(members, reverse=True)}

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        async with self._gate.turn(slot):
            await self._change(scripts.DROP, slot, name or "", fence, self._sets(slot), _hidden(slot.user_id))

    async def forget(self, slot: Slot) -> bool:
        return int(await self._change(scripts.DROP, slot, "", None, self._sets(slot), _hidden(slot.user_id))) > 0

    async def sessions(self, user_id: str | None) -> set[str]:
        if isinstance(self._names, OfACluster):
            return set(map(_text, await self._ask(scripts.MEMBERS, [self._names.index(user_id)])))
        pattern = self._names.pattern(user_id)
        found: set[str] = set()
        cursor: bytes | None = b"0"
        while cursor is not None:
            following, keys = await self._ask(scripts.SCAN, [], cursor, pattern, _hidden(user_id))
            slots = [self._names.read(_text(key)) for key in keys]
            found.update(slot.session_id for slot in slots if slot is not None and slot.user_id == user_id)
            cursor = None if int(following) == 0 else following
        return found

    def _keys(self, slot: Slot, name: str) -> list[bytes]:
        return [key for place in self._names.places(slot) for key in keys_of(place, name)]

    def _sets(self, slot: Slot) -> list[bytes]:
        return [f"{place}{SET}".encode() for place in self._names.places(slot)]

    async def _ask(self, script: Script, keys: Sequence[bytes], *args: bytes) -> Any:
        self._guard.check()
        return await self._calls.ask(script, keys, args)

    async def _change(
        self, script: Script, slot: Slot, name: str, fence: Fence | None, keys: Sequence[bytes], *args: bytes | int
    ) -> Any:
        self._guard.check()
        answer = self._leases.answer(slot.user_id, os.urandom(16).hex())
        index = self._names.index(slot.user_id)
        unlisted = script is not scripts.DROP and name.encode() == _hidden(slot.user_id)
        session = b"" if index is None or unlisted else slot.session_id.encode()
        token = b"" if fence is None else fence.token
        all_keys = [self._leases.lease(slot)[0], answer, *keys, *(() if index is None else (index,))]
        found = (await self._calls.change(script, all_keys, [token, session, name.encode(), *args])).value
        if found == _LOST:
            raise LeaseLost(slot.session_id)
        return found


def _hidden(user_id: str | None) -> bytes:
    """Return the name of what alone makes no session: sandboxes are nobody's."""
    return OF_SANDBOXES.encode() if user_id is None else b""


def _text(value: bytes | str) -> str:
    # Keys of others need not be text; a client that was given may decode what it gets.
    return value if isinstance(value, str) else value.decode(errors="replace")
