"""Journals and leases on a Redis."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from redis import exceptions as redis

from leafward.core.errors import CorruptStore, LeaseLost
from leafward.core.ids import Owner, Scope
from leafward.stores.contracts import Durability
from leafward.stores.leases import Fence, Slot
from leafward.stores.redis.calls import Calls
from leafward.stores.redis.heads import RedisHeads, packed_change, written_mark
from leafward.stores.redis.keys import Keys
from leafward.stores.redis.leases import RedisLeases
from leafward.stores.redis.scripts import COMMIT, COUNT, FETCH, SESSION, SESSIONS, SHARED
from leafward.stores.replicated.journals import NOTHING, FinishesCommits, Journal, Listing, Mark, Outcome, Tail, Write

FETCHED = 1024 * 1024
"""About how many bytes of journals come at once."""
_ALL = 1 << 62
"""More sessions than anybody has; beyond, Redis cannot count."""
TURN_MS = 200
"""How long a writer that was too late has the next turn, if it does not come."""
_log = logging.getLogger(__name__)


class RedisServer(RedisHeads, RedisLeases, FinishesCommits):
    """Each call is one script, on keys of one slot."""

    def __init__(self, calls: Calls, keys: Keys, durability: Durability) -> None:
        self._calls = calls
        self._keys = keys
        self._writer = os.urandom(8).hex().encode()
        self._durability: Durability = durability

    # Journals.

    async def fetch(self, wanted: Sequence[tuple[Journal, Mark]]) -> list[Tail]:
        keys: list[bytes] = []
        args: list[bytes | int] = [FETCHED]
        for journal, mark in wanted:
            keys += [*self._keys.journal(journal), *self._keys.head(journal)]
            args += [mark.incarnation.encode(), mark.length, b"%08x" % mark.crc]
        rows = await self._calls.ask(FETCH, keys, args)
        return [
            Tail(_read_mark(mark), [_bytes(batch) for batch in batches], bool(foreign), bool(lacks_head))
            for mark, foreign, batches, lacks_head in rows
        ]

    async def commit(self, writes: Sequence[Write], fence: Fence | None) -> Outcome:
        journal = writes[0].journal
        slot = Slot(journal.owner.user_id, journal.session_id or "") if fence is None else fence.slot
        keys = [*self._keys.lease(slot)[:1], self._keys.turn(journal), self._keys.listings(journal.owner.user_id)]
        token = b"" if fence is None else fence.token
        args: list[bytes | int] = [os.urandom(8).hex().encode(), token, self._writer, TURN_MS]
        for write in writes:
            keys += [*self._keys.journal(write.journal), *self._keys.head(write.journal)]
            keys += self._keys.listing(write.journal.owner)
            args += [_mark(write.expected), _mark(write.mark), write.batch, *_listed(write.listing)]
            args += [b"1" if write.anew else b"", packed_change(write.head)]
        done, repeated = await self._calls.change(COMMIT, keys, args)
        if done == 1:
            return Outcome.DONE
        if done == -2:
            where = f"the journal of session {journal.session_id!r}"
            raise CorruptStore(where, "does not have as many batches as its mark says")
        if repeated:
            return Outcome.IN_DOUBT
        if done == -1:
            raise LeaseLost(slot.session_id)
        return Outcome.NOT_YET if done == 2 else Outcome.REFUSED

    async def marks(self, journals: Sequence[Journal]) -> list[Mark]:
        # A fetch of nothing: all journals are of one slot, and each reply is a mark.
        keys = [key for one in journals for key in (*self._keys.journal(one), *self._keys.head(one))]
        args: list[bytes | int] = [0]
        for _ in journals:
            args += [b"", 0, b"00000000"]
        rows = await self._calls.ask(FETCH, keys, args)
        return [_read_mark(row[0]) for row in rows]

    # The list of sessions.

    async def sessions(self, owner: Owner, limit: int | None, after: Listing | None) -> list[Listing]:
        start = b"+" if after is None else b"(%016d%b" % (after.updated_at, after.session_id.encode())
        args = [start, -1 if limit is None or limit > _ALL else limit]
        rows = await self._calls.ask(SESSIONS, self._keys.listing(owner), args)
        return [_read_listing(_bytes(session).decode(), _bytes(row)) for session, row in rows]

    async def session(self, scope: Scope) -> Listing | None:
        key = self._keys.listing(scope.owner)[:1]
        row = await self._calls.ask(SESSION, key, [scope.session_id.encode()])
        return None if row is None else _read_listing(scope.session_id, _bytes(row))

    async def count(self, owner: Owner) -> int:
        return await self._calls.ask(COUNT, self._keys.listing(owner)[:1], [])

    async def is_shared(self, scope: Scope) -> bool:
        keys = [self._keys.listings(scope.owner.user_id), *self._keys.listing(scope.owner)[:1]]
        return await self._calls.ask(SHARED, keys, [scope.session_id.encode()]) == 1

    # The rest.

    async def scrub(self) -> list[str]:
        left = [
            "the server's append-only file and snapshots, until they are written anew",
            "replicas and backups of the server",
            "the memory of other processes that had the session open, until they look at it again",
        ]
        try:
            await self._calls.rewrite()
        except (redis.RedisError, redis.RedisClusterException) as error:
            _log.info("%s does not write its append-only file anew when asked: %s", self._calls.where, error)
        else:
            left[0] = "the server's append-only file, until it is written anew, which was begun, and its snapshots"
        return left

    def durability(self) -> Durability:
        return self._durability

    async def close(self) -> None:
        await self._calls.close()


def _bytes(value: Any) -> bytes:
    # A client that was given may decode what it gets.
    return value.encode() if isinstance(value, str) else value


def _mark(mark: Mark) -> bytes:
    return b"" if mark == NOTHING else written_mark(mark)


def _read_mark(stored: Any) -> Mark:
    if not stored:
        return NOTHING
    incarnation, length, crc, _ = _bytes(stored).decode().split(":")
    return Mark(incarnation, int(length), int(crc, 16))


def _listed(listing: Listing | None) -> list[bytes]:
    if listing is None:
        return [b"", b"", b""]
    return [listing.session_id.encode(), b"%016d" % listing.updated_at, listing.info]


def _read_listing(session_id: str, row: bytes) -> Listing:
    return Listing(int(row[:16]), session_id, row[16:])
