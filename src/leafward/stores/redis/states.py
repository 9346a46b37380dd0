"""`StateTable` on Redis."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from leafward.core.errors import LeaseLost, StaleState, StoreError
from leafward.stores.gate import Gate
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence, Slot
from leafward.stores.redis import state_scripts as scripts
from leafward.stores.redis.calls import Calls
from leafward.stores.redis.keys import Keys
from leafward.stores.redis.scripts import Script
from leafward.stores.redis.state_keys import FILLED, LIST, OfACluster, Place, StateKeys
from leafward.stores.states.table import EMPTY, LONG, OF_SANDBOXES, Stored, holds_list, holds_value

_LOST, _OTHERWISE, _TAKEN, _UNMOVED, _UNSURE = -1, -2, -3, -4, -5

_log = logging.getLogger(__name__)


class RedisStates:
    """Each call is one script; that of a list, which sends only what is new, asks for its length before."""

    def __init__(self, calls: Calls, names: StateKeys, leases: Keys, guard: Guard) -> None:
        self._calls = calls
        self._names = names
        self._leases = leases
        self._guard = guard
        # What is saved last is what stays, though connections are shared.
        self._gate = Gate()
        self._reported: set[str] = set()

    async def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        return (await self._get(slot, name, b"1" if versioned else b""))[0]

    async def get_beside(self, slot: Slot, name: str, others: Sequence[str]) -> tuple[Stored | None, bool]:
        place = self._names.places(slot)[0]
        return await self._get(slot, name, b"1", *(self._names.spelled(other, place).encode() for other in others))

    async def _get(self, slot: Slot, name: str, *args: bytes) -> tuple[Stored | None, bool]:
        found = await self._look(scripts.GET, slot, name, *args)
        if found == 1:
            raise holds_list(slot, name)
        # Beside a value the others are not looked at.
        return (None, found == 2) if found in (None, 2) else (Stored(found[0], int(found[1])), True)

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        async with self._gate.turn(slot):
            data, total = await asyncio.to_thread(_summed, text) if len(text) > LONG else _summed(text)
            args = data, total, b"" if expected is None else expected
            version = await self._change(scripts.PUT, slot, name, fence, *args)
        if version == _OTHERWISE:
            assert expected is not None
            raise StaleState(*slot, name, expected)
        return int(version)

    async def get_list(self, slot: Slot, name: str) -> list[str | bytes]:
        found = await self._look(scripts.GET_LIST, slot, name)
        if found == 1:
            raise holds_value(slot, name)
        return found

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        async with self._gate.turn(slot):
            await self._put_list(slot, name, texts, fence, fresh=fresh)

    async def _put_list(self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool) -> None:
        items = [text.encode() for text in texts]
        mark = (FILLED if items else EMPTY).encode()
        if fresh:
            args = mark, b"new", b"", b"", *items
            if await self._change(scripts.PUT_LIST, slot, name, fence, *args) == _OTHERWISE:
                raise StaleState(*slot, name, 0)
            return
        length = await self._look(scripts.LENGTH, slot, name)
        if length <= len(items):
            # With salt, so that nobody can have made items that differ and have one sum.
            salt = os.urandom(16).hex().encode()
            # An item is on one line.
            total = sha1(salt + b"\n".join(items[:length]), usedforsecurity=False).hexdigest().encode()
            args = mark, length, total, salt, *items[length:]
            if await self._change(scripts.PUT_LIST, slot, name, fence, *args) != _OTHERWISE:
                return
        await self._change(scripts.PUT_LIST, slot, name, fence, mark, b"", b"", b"", *items)

    async def exists(self, slot: Slot) -> bool:
        return await self._look(scripts.EXISTS, slot) is not None

    async def names(self, slot: Slot) -> dict[str, bool]:
        members = map(_text, await self._look(scripts.NAMES, slot))
        # Java may have both of one name: a value comes before its list.
        return {
            self._names.read_name(one.removesuffix(LIST)): one.endswith(LIST) for one in sorted(members, reverse=True)
        }

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        async with self._gate.turn(slot):
            await self._change(scripts.DROP, slot, name or "", fence, _hidden(slot.user_id))

    async def forget(self, slot: Slot) -> bool:
        return int(await self._change(scripts.DROP, slot, "", None, _hidden(slot.user_id))) > 0

    async def sessions(self, user_id: str | None) -> set[str]:
        self._guard.check()
        if isinstance(self._names, OfACluster):
            return set(map(_text, await self._calls.ask(scripts.MEMBERS, [self._names.index(user_id)], [])))
        pattern = self._names.pattern(user_id)
        found: set[str] = set()
        cursor: bytes | None = b"0"
        while cursor is not None:
            following, keys = await self._calls.ask(scripts.SCAN, [], [cursor, pattern, _hidden(user_id)])
            slots = [self._names.read(_text(key), old=old == 1) for key, old in keys]
            found.update(slot.session_id for slot in slots if slot is not None and slot.user_id == user_id)
            cursor = None if int(following) == 0 else following
        return found

    async def _look(self, script: Script, slot: Slot, name: str = "", *args: bytes) -> Any:
        """Call a script that changes nothing of a slot."""
        self._guard.check()
        places = self._names.places(slot)
        unused, found = await self._calls.ask(
            script, [place.set for place in places], [*self._args(places, name), *args]
        )
        self._report(slot, unused)
        return found

    async def _change(self, script: Script, slot: Slot, name: str, fence: Fence | None, *args: bytes | int) -> Any:
        """Call a script that changes a slot, once what the old rule wrote is where it belongs."""
        self._guard.check()
        places = self._names.places(slot)
        answer = self._leases.answer(slot.user_id, os.urandom(16).hex())
        index = self._names.index(slot.user_id)
        unlisted = script is not scripts.DROP and name.encode() == _hidden(slot.user_id)
        session = b"" if index is None or unlisted else slot.session_id.encode()
        token = b"" if fence is None else fence.token
        keys = [
            self._leases.lease(slot)[0],
            answer,
            *(place.set for place in places),
            *(() if index is None else (index,)),
        ]
        all_args = [token, session, *self._args(places, name), *args]
        unused, found = (await self._calls.change(script, keys, all_args)).value
        # Another slot may have to make way before what is this one's can be moved.
        for _ in range(2):
            if found in (_TAKEN, _UNMOVED):
                await self._move(self._names.in_the_way(places[0]) if found == _TAKEN else places, name)
                unused, found = (await self._calls.change(script, keys, all_args)).value
        self._report(slot, unused)
        if found == _LOST:
            raise LeaseLost(slot.session_id)
        if found == _UNSURE:
            raise StoreError(
                f"session {slot.session_id!r} cannot be saved: what {places[0].set.decode()!r} on {self._calls.where} "
                "names may be another session of an earlier leafward; use another id"
            )
        if found in (_TAKEN, _UNMOVED):
            key = f"{places[0].start}:{self._names.spelled(name, places[0])}"
            raise StoreError(
                f"state {name!r} of session {slot.session_id!r} cannot be saved: the key {key!r} on "
                f"{self._calls.where}, or one that begins with it, is a state of another session; "
                "give the state another name"
            )
        return found

    async def _move(self, places: Sequence[Place], name: str) -> None:
        """Move what the old rule wrote to where it belongs: a whole slot, and a state with this name."""
        for place in [place for place in places if not place.is_older]:
            target = places[0]
            members = map(_text, await self._calls.ask(scripts.MEMBERS, [place.set], []))
            wanted = [one for one in members if place.kind == "old" or one.removesuffix(LIST) == name]
            moves = [part.encode() for one in wanted for part in (one, self._member(one, target))]
            await self._calls.change(scripts.MOVE, [target.set, place.set], [self._names.fixed, *moves])

    def _member(self, old: str, place: Place) -> str:
        """Return what the set of a place calls what it is called otherwise elsewhere."""
        return self._names.spelled(old.removesuffix(LIST), place) + (LIST if old.endswith(LIST) else "")

    def _args(self, places: Sequence[Place], name: str) -> list[bytes | int]:
        letters = "".join(place.kind[0].upper() if place.is_older else place.kind[0] for place in places)
        return [letters.encode(), self._names.fixed, self._names.spelled(name, places[0]).encode(), name.encode()]

    def _report(self, slot: Slot, unused: Sequence[bytes | str]) -> None:
        """Warn, once, of what was kept for a slot under the old rule beside what Java keeps for it."""
        for key in {*map(_text, unused)} - self._reported:
            self._reported.add(key)
            _log.warning(
                "%s: session %r is read as AgentScope keeps it; what an earlier leafward kept for it is left under %r",
                *(self._calls.where, slot.session_id, key),
            )


def _summed(text: str) -> tuple[bytes, bytes]:
    """Return a text as bytes, and their checksum."""
    data = text.encode()
    return data, sha1(data, usedforsecurity=False).hexdigest().encode()


def _hidden(user_id: str | None) -> bytes:
    """Return the name of what alone makes no session: sandboxes are nobody's."""
    return OF_SANDBOXES.encode() if user_id is None else b""


def _text(value: bytes | str) -> str:
    # Keys of others need not be text; a client that was given may decode what it gets.
    return value if isinstance(value, str) else value.decode(errors="replace")
