"""Leases, and texts for their holders, as Lua scripts; docs/formats/redis.md describes the keys."""

from __future__ import annotations

from leafward.stores.redis.scripts import Script

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function exactly(number) return string.format('%.0f', number) end
"""

# Whether a text of the list waits for a holder with this label; a text for all has none.
_WAITS = """
local function waits(sent, label)
    if redis.call('LLEN', sent) == 0 then return false end
    for _, one in ipairs(redis.call('LRANGE', sent, 0, -1)) do
        local wanted = string.match(one, '^%d+:(.*)$')
        if wanted == '' or wanted == label then return true end
    end
    return false
end
"""

# KEYS: the lease, the queue, the waiting. ARGV: whether this is a repetition, the holder, microseconds that the
# lease and that a place in the queue last, milliseconds after which keys that are not used may go, the label or
# nothing. Returns a token, or nothing.
TAKE = Script(
    _NOW
    + """
local lease, queue, waiting = KEYS[1], KEYS[2], KEYS[3]
local holder = ARGV[2]
local facts = redis.call('HMGET', lease, 'token', 'holder', 'expires')
local token, held_by, expires = tonumber(facts[1] or '0'), facts[2], tonumber(facts[3] or '0')
if held_by == holder then return exactly(token) end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', exactly(now))) do
    redis.call('ZREM', queue, dead)
    redis.call('ZREM', waiting, dead)
end
local first = redis.call('ZRANGE', queue, 0, 0)[1]
if (held_by and expires > now) or (first and first ~= holder) then
    local kept = redis.call('ZSCORE', waiting, holder)
    if not kept then
        redis.call('ZADD', queue, redis.call('HINCRBY', lease, 'tickets', 1), holder)
    end
    if not kept or tonumber(kept) < now + ARGV[4] / 2 then
        redis.call('ZADD', waiting, exactly(now + ARGV[4]), holder)
        redis.call('PEXPIRE', queue, ARGV[5])
        redis.call('PEXPIRE', waiting, ARGV[5])
    end
    return false
end
token = math.max(token + 1, now)
redis.call('HSET', lease, 'token', exactly(token), 'holder', holder, 'expires', exactly(now + ARGV[3]),
    'since', exactly(now), 'label', ARGV[6])
if first then
    redis.call('ZREM', queue, holder)
    redis.call('ZREM', waiting, holder)
end
redis.call('PEXPIRE', lease, ARGV[5])
return exactly(token)
"""
)

# KEYS: the lease, the texts that wait. ARGV: whether this is a repetition, the holder, microseconds that it lasts,
# milliseconds after which the key may go. Returns 0 lost, 1 held, 2 held and texts wait.
RENEW = Script(
    _NOW
    + _WAITS
    + """
local facts = redis.call('HMGET', KEYS[1], 'holder', 'label')
if facts[1] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'expires', exactly(now + ARGV[3]))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return waits(KEYS[2], facts[2]) and 2 or 1
"""
)

_FREE = "redis.call('HDEL', KEYS[1], 'holder', 'expires', 'since', 'label')"

# KEYS: the lease, the queue, the waiting. ARGV: whether this is a repetition, the holder.
LEAVE = Script(f"""
if redis.call('HGET', KEYS[1], 'holder') == ARGV[2] then {_FREE} end
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZREM', KEYS[3], ARGV[2])
return 1
""")

# KEYS: the lease. ARGV: whether this is a repetition, the token. Returns 1 ended, 0 not held. One that finds the lease
# free under its token ended it before.
END = Script(f"""
local facts = redis.call('HMGET', KEYS[1], 'token', 'holder')
if facts[1] ~= ARGV[2] then return 0 end
if not facts[2] then return ARGV[1] == '1' and 1 or 0 end
{_FREE}
return 1
""")

# KEYS: the lease. Returns nothing, or its token, since when and until when it is held, and its label. A lease of the
# version before says not since when; its token is by the clock.
HOLDER = Script(
    _NOW
    + """
local facts = redis.call('HMGET', KEYS[1], 'token', 'since', 'expires', 'label', 'holder')
if not facts[5] or tonumber(facts[3] or '0') <= now then return false end
return {facts[1], facts[2] or facts[1], facts[3], facts[4] or ''}
"""
)

# KEYS: the lease, the texts that wait, the texts, the answer. ARGV: whether this is a repetition, the label or nothing,
# the text, how many may wait. Returns 1 sent, 0 not held, -1 too many wait. The answer is kept for a minute, for one
# that repeats the call, and for what was on its way when it was repeated.
SEND = Script(
    _NOW
    + """
if redis.call('GET', KEYS[4]) then return 1 end
local facts = redis.call('HMGET', KEYS[1], 'holder', 'expires', 'label', 'sent')
if not facts[1] or tonumber(facts[2] or '0') <= now then return 0 end
if ARGV[2] ~= '' and facts[3] ~= ARGV[2] then return 0 end
if redis.call('LLEN', KEYS[2]) >= tonumber(ARGV[4]) then
    local wait = 0
    for _, one in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
        local wanted = string.match(one, '^%d+:(.*)$')
        if wanted == '' or wanted == ARGV[2] then wait = wait + 1 end
    end
    if wait >= tonumber(ARGV[4]) then return -1 end
end
-- By the clock as well, so that numbers grow even where the lease was lost.
local number = exactly(math.max(tonumber(facts[4] or '0') + 1, now))
redis.call('HSET', KEYS[3], number, ARGV[3])
redis.call('RPUSH', KEYS[2], number .. ':' .. ARGV[2])
redis.call('HSET', KEYS[1], 'sent', number)
redis.call('SET', KEYS[4], '1', 'PX', 60000)
return 1
"""
)

# KEYS: the lease, the texts that wait, the texts. ARGV: the holder. Returns nothing when the lease is lost, else
# numbers and texts.
TEXTS = Script(
    """
local facts = redis.call('HMGET', KEYS[1], 'holder', 'label')
if facts[1] ~= ARGV[1] then return false end
local numbers = {}
for _, one in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local number, wanted = string.match(one, '^(%d+):(.*)$')
    if wanted == '' or wanted == facts[2] then numbers[#numbers + 1] = number end
end
if #numbers == 0 then return {{}, {}} end
return {numbers, redis.call('HMGET', KEYS[3], unpack(numbers))}
"""
)

# KEYS: the lease, the texts that wait, the texts. ARGV: whether this is a repetition, the holder, up to which number it
# has the texts. Returns 0 when the lease is lost.
RECEIVED = Script(
    """
local facts = redis.call('HMGET', KEYS[1], 'holder', 'label')
if facts[1] ~= ARGV[2] then return 0 end
local had, kept = {}, {}
for _, one in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    local number, wanted = string.match(one, '^(%d+):(.*)$')
    if (wanted == '' or wanted == facts[2]) and tonumber(number) <= tonumber(ARGV[3]) then
        had[#had + 1] = number
    else
        kept[#kept + 1] = one
    end
end
if #had == 0 then return 1 end
redis.call('HDEL', KEYS[3], unpack(had))
redis.call('UNLINK', KEYS[2])
if #kept > 0 then redis.call('RPUSH', KEYS[2], unpack(kept)) end
return 1
"""
)

# KEYS: for each slot its lease and the texts that wait. Returns 1 or 0 for each.
WAITING = Script(
    _WAITS
    + """
local found = {}
for n = 1, #KEYS / 2 do
    found[n] = waits(KEYS[2 * n], redis.call('HGET', KEYS[2 * n - 1], 'label')) and 1 or 0
end
return found
"""
)

# KEYS: the texts that wait, the texts. Returns how many of the keys there were.
CLEAR = Script("return redis.call('UNLINK', KEYS[1], KEYS[2])")
