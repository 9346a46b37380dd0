"""What Redis does in one atomic step, as Lua scripts; docs/formats/redis.md tells the keys.

A mark is kept as `incarnation:length:crc:nonce`; the nonce names the commit that made it.
"""

from __future__ import annotations

from hashlib import sha1


class Script:
    """A script, by its text and by the name a server knows it under."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()


KEPT = """
local function is_kept(mark, head, ids, used)
    local kept = redis.call('HMGET', head, 'mark', 'format', 'messages', 'used')
    local messages, names = redis.call('HLEN', ids), redis.call('HLEN', used)
    return mark ~= '' and kept[1] == mark and kept[2] == '1'
        and messages == tonumber(kept[3]) and names == tonumber(kept[4])
end
"""
"""Tells whether what is kept beside a journal belongs to its mark and is complete."""

# KEYS: for each journal its list, its mark, and the three of its head. ARGV: how many bytes to return about; for each
# journal the incarnation, length and crc that the caller has. Returns for each the stored mark, whether it is foreign,
# batches, and, to one who has none of it, whether its head is missing.
FETCH = Script(
    KEPT
    + """
local room = tonumber(ARGV[1])
local found = {}
for n = 1, #KEYS / 5 do
    local k = 5 * n - 4
    local list, mark = KEYS[k], redis.call('GET', KEYS[k + 1]) or ''
    local incarnation, length, crc = ARGV[3 * n - 1], tonumber(ARGV[3 * n]), ARGV[3 * n + 1]
    local known = incarnation .. ':' .. ARGV[3 * n] .. ':' .. crc .. ':'
    local foreign, batches = 0, {}
    if string.sub(mark, 1, #known) ~= known and (mark ~= '' or length > 0) then
        if length > 0 then
            local same = string.sub(mark, 1, #incarnation + 1) == incarnation .. ':'
            local last = same and redis.call('LINDEX', list, length - 1)
            if not last or string.sub(last, -10, -3) ~= crc then foreign = 1 end
        end
        local from = length
        while foreign == 0 and room > 0 do
            local some = redis.call('LRANGE', list, from, from + 15)
            for _, batch in ipairs(some) do
                room = room - #batch
                batches[#batches + 1] = batch
            end
            from = from + #some
            if #some < 16 then break end
        end
    end
    local lacks = mark ~= '' and length == 0 and not is_kept(mark, KEYS[k + 2], KEYS[k + 3], KEYS[k + 4])
    found[n] = {mark, foreign, batches, lacks and 1 or 0}
end
return found
"""
)

# KEYS: the lease; the turn; the user's listings; for each write the list, the mark, the three of the head, and the two
# of the owner's listing. ARGV: whether this is a repetition, the nonce, the fencing token or nothing, who writes, and
# for how long a turn is kept; for each write the mark that is expected, the mark to set, the batch, the session, its
# time and its description, whether it takes the place of all others, and what becomes of the head: whether it is
# written whole (1), and the ids as well (2); whether all ids go; fields and states to set; states to drop; ids to set
# and to drop; names of usage to set. Returns 1 done, 0 refused, 2 another's turn, -1 lease lost, -2 damaged.
COMMIT = Script(
    KEPT
    + """
local repeated, nonce, token, writer, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local writes, writing = {}, false
for n = 1, (#KEYS - 3) / 7 do
    local k, a = 7 * n - 3, 8 * n - 2
    local one = {
        list = KEYS[k], mark = KEYS[k + 1], head = KEYS[k + 2], ids = KEYS[k + 3], used = KEYS[k + 4],
        infos = KEYS[k + 5], recent = KEYS[k + 6],
        expected = ARGV[a], new = ARGV[a + 1], batch = ARGV[a + 2],
        session = ARGV[a + 3], at = ARGV[a + 4], info = ARGV[a + 5], anew = ARGV[a + 6], change = ARGV[a + 7],
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
-- Whoever wrote last knows the newest mark and would win again and again: one that was too late has the next turn.
local turn = redis.call('GET', KEYS[2])
if writing and turn and turn ~= writer then return 2 end
for _, one in ipairs(writes) do
    local expected = one.expected ~= '' and one.expected .. ':' or ''
    if string.sub(one.stored, 1, #expected) ~= expected or (expected == '' and one.stored ~= '') then
        -- A journal that is better written anew can wait for its next write.
        if writing and not turn and one.anew ~= '1' then redis.call('SET', KEYS[2], writer, 'PX', kept) end
        return 0
    end
    if not one.checks then
        local length = tonumber(string.match(one.expected, '^[^:]*:(%d+):') or '0')
        if redis.call('LLEN', one.list) ~= length then return -2 end
        -- Also so that a key of another type fails before anything is written.
        one.listed = redis.call('ZCARD', one.recent) and redis.call('HGET', one.infos, one.session)
        if not one.listed then redis.call('SCARD', KEYS[3]) end
        one.is_kept = is_kept(one.stored, one.head, one.ids, one.used)
    end
end
local function set(key, pairs)
    -- A call takes some thousand arguments.
    for n = 1, #pairs, 2000 do
        redis.call('HSET', key, unpack(pairs, n, math.min(n + 1999, #pairs)))
    end
end
local function drop(key, fields)
    for _, field in ipairs(fields) do redis.call('HDEL', key, field) end
end
local function keep(one)
    local whole, emptied, fields, gone_states, ids, gone_ids, used = unpack(cmsgpack.unpack(one.change))
    if whole < 2 and not one.is_kept then
        -- A version that does not keep it has written since.
        redis.call('UNLINK', one.head, one.ids, one.used)
        return
    end
    if whole > 0 then redis.call('UNLINK', one.head) end
    if whole > 1 then redis.call('UNLINK', one.ids, one.used) end
    if emptied == 1 then redis.call('UNLINK', one.ids) end
    drop(one.ids, gone_ids)
    set(one.ids, ids)
    set(one.used, used)
    drop(one.head, gone_states)
    set(one.head, fields)
    redis.call('HSET', one.head, 'mark', one.new .. ':' .. nonce,
        'messages', redis.call('HLEN', one.ids), 'used', redis.call('HLEN', one.used))
end
for _, one in ipairs(writes) do
    if not one.checks then
        -- First what a server without memory refuses: once a script has written, Redis lets it go on.
        if one.anew == '1' then redis.call('UNLINK', one.list) end
        if one.new ~= '' then
            redis.call('RPUSH', one.list, one.batch)
            redis.call('SET', one.mark, one.new .. ':' .. nonce)
        else
            redis.call('UNLINK', one.list, one.mark)
            redis.call('HDEL', one.infos, one.session)
            if redis.call('EXISTS', one.infos) == 0 then redis.call('SREM', KEYS[3], one.infos) end
        end
        if one.change ~= '' then keep(one) else redis.call('UNLINK', one.head, one.ids, one.used) end
        if one.listed then redis.call('ZREM', one.recent, string.sub(one.listed, 1, 16) .. one.session) end
        if one.new ~= '' and one.session ~= '' then
            redis.call('HSET', one.infos, one.session, one.at .. one.info)
            redis.call('ZADD', one.recent, 0, one.at .. one.session)
            if not one.listed then redis.call('SADD', KEYS[3], one.infos) end
        end
    end
end
-- Also by one that finds it has nothing to write.
if turn == writer then redis.call('UNLINK', KEYS[2]) end
return 1
"""
)

# KEYS: the two of a listing. ARGV: where to begin, in the order of the members; how many, or -1 for all.
SESSIONS = Script("""
local found = {}
local members = redis.call('ZREVRANGEBYLEX', KEYS[2], ARGV[1], '-', 'LIMIT', 0, ARGV[2])
for n, member in ipairs(members) do
    local session = string.sub(member, 17)
    found[n] = {session, redis.call('HGET', KEYS[1], session)}
end
return found
""")

SESSION = Script("return redis.call('HGET', KEYS[1], ARGV[1])")

# KEYS: the user's listings, and that of the agent who asks. ARGV: the session.
SHARED = Script("""
for _, infos in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    if infos ~= KEYS[2] and redis.call('HEXISTS', infos, ARGV[1]) == 1 then return 1 end
end
return 0
""")

COUNT = Script("return redis.call('HLEN', KEYS[1])")
