"""The version before heads were kept: it writes journals and marks, and leaves all other keys of a session alone."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from leafward import open_store
from leafward.core.errors import LeaseLost
from leafward.stores.leases import Fence, Slot
from leafward.stores.redis.opening import RedisStore
from leafward.stores.redis.scripts import Script
from leafward.stores.redis.server import TURN_MS, RedisServer, _listed, _mark
from leafward.stores.replicated.journals import FinishesCommits, Outcome, Write

COMMIT = Script("""
local repeated, nonce, token, writer, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local writes, writing = {}, false
for n = 1, (#KEYS - 3) / 4 do
    local k, a = 4 * n, 7 * n - 1
    local one = {
        list = KEYS[k], mark = KEYS[k + 1], infos = KEYS[k + 2], recent = KEYS[k + 3],
        expected = ARGV[a], new = ARGV[a + 1], batch = ARGV[a + 2],
        session = ARGV[a + 3], at = ARGV[a + 4], info = ARGV[a + 5], anew = ARGV[a + 6],
        stored = redis.call('GET', KEYS[k + 1]) or '', checks = ARGV[a] == ARGV[a + 1],
    }
    local done = one.new ~= '' and one.new .. ':' .. nonce or ''
    if repeated == '1' and not one.checks and one.stored == done then return 1 end
    writes[n] = one
    writing = writing or not one.checks
end
if token ~= '' then
    local lease = redis.call('HMGET', KEYS[1], 'token', 'holder')
    if lease[1] ~= token or not lease[2] then return -1 end
end
local turn = redis.call('GET', KEYS[2])
if writing and turn and turn ~= writer then return 2 end
for _, one in ipairs(writes) do
    local expected = one.expected ~= '' and one.expected .. ':' or ''
    if string.sub(one.stored, 1, #expected) ~= expected or (expected == '' and one.stored ~= '') then
        if writing and not turn and one.anew ~= '1' then redis.call('SET', KEYS[2], writer, 'PX', kept) end
        return 0
    end
    if not one.checks then
        local length = tonumber(string.match(one.expected, '^[^:]*:(%d+):') or '0')
        if redis.call('LLEN', one.list) ~= length then return -2 end
        one.listed = redis.call('ZCARD', one.recent) and redis.call('HGET', one.infos, one.session)
        if not one.listed then redis.call('SCARD', KEYS[3]) end
    end
end
for _, one in ipairs(writes) do
    if not one.checks then
        if one.anew == '1' then redis.call('UNLINK', one.list) end
        if one.new ~= '' then
            redis.call('RPUSH', one.list, one.batch)
            redis.call('SET', one.mark, one.new .. ':' .. nonce)
        else
            redis.call('UNLINK', one.list, one.mark)
            redis.call('HDEL', one.infos, one.session)
            if redis.call('EXISTS', one.infos) == 0 then redis.call('SREM', KEYS[3], one.infos) end
        end
        if one.listed then redis.call('ZREM', one.recent, string.sub(one.listed, 1, 16) .. one.session) end
        if one.new ~= '' and one.session ~= '' then
            redis.call('HSET', one.infos, one.session, one.at .. one.info)
            redis.call('ZADD', one.recent, 0, one.at .. one.session)
            if not one.listed then redis.call('SADD', KEYS[3], one.infos) end
        end
    end
end
if turn == writer then redis.call('UNLINK', KEYS[2]) end
return 1
""")


class ServerBefore(FinishesCommits):
    """A server as that version has it: the script above is the one it commits with."""

    def __init__(self, now: RedisServer) -> None:
        self._now = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)

    async def commit(self, writes: Sequence[Write], fence: Fence | None) -> Outcome:
        journal, names = writes[0].journal, self._now._keys
        slot = Slot(journal.owner.user_id, journal.session_id or "") if fence is None else fence.slot
        keys = [*names.lease(slot)[:1], names.turn(journal), names.listings(journal.owner.user_id)]
        token = b"" if fence is None else fence.token
        args: list[bytes | int] = [os.urandom(8).hex().encode(), token, self._now._writer, TURN_MS]
        for write in writes:
            keys += [*names.journal(write.journal), *names.listing(write.journal.owner)]
            args += [_mark(write.expected), _mark(write.mark), write.batch, *_listed(write.listing)]
            args.append(b"1" if write.anew else b"")
        done, _ = await self._now._calls.change(COMMIT, keys, args)
        if done == -1:
            raise LeaseLost(slot.session_id)
        return {1: Outcome.DONE, 2: Outcome.NOT_YET}.get(done, Outcome.REFUSED)


@asynccontextmanager
async def opened_before(url: str, prefix: str) -> AsyncGenerator[RedisStore]:
    """Open a store as a process of that version does."""
    async with open_store(url, key_prefix=prefix) as store:
        assert isinstance(store, RedisStore)
        server: Any = ServerBefore(store._server)  # pyright: ignore[reportArgumentType]
        store.runner._server = server
        yield store
