"""What Redis does with states in one atomic step; docs/formats/states-redis.md tells the keys.

A write leaves the answer it gave under a key of its own for a minute: whoever repeats it, and whatever was on its way
when it was repeated, gets that answer and changes nothing.
"""

from __future__ import annotations

from leafward.stores.redis.scripts import Script

# KEYS of all that write: the lease, the answer; then as each says; last the index, if there is one. ARGV of all that
# write: whether this is a repetition, the fencing token or nothing, the session if there is an index, the state's name.
# They return -1 when the lease is lost.
_WRITE = """
local lease, answer, set, value, ver, list, hash = unpack(KEYS)
local token, session, name = ARGV[2], ARGV[3], ARGV[4]
local index = session ~= '' and KEYS[#KEYS]
local answered = redis.call('GET', answer)
if answered then return answered end
if token ~= '' then
    local held = redis.call('HMGET', lease, 'token', 'holder')
    if held[1] ~= token or not held[2] then return -1 end
end
local function done(result)
    redis.call('SET', answer, result, 'PX', 60000)
    return result
end
"""

# Of a name that comes to hold something. A key of another type fails before anything is written, and a server without
# memory refuses the first write: once a script has written, Redis lets it go on.
_KEEP = """
local function keep(member, other)
    redis.call('SADD', set, member)
    redis.call('SREM', set, other)
    if index then redis.call('SADD', index, session) end
end
redis.call('SCARD', set)
if index then redis.call('SCARD', index) end
"""

_EXACTLY = "local function exactly(number) return string.format('%.0f', number) end"

# KEYS: of a name in each place where it may be, the set, the value, the version, the list and the hash. ARGV: the
# name. Returns the value and its version, 1 for a list, or nothing.
GET = Script(
    _EXACTLY
    + """
for n = 1, #KEYS, 5 do
    local text = redis.call('GET', KEYS[n + 1])
    if text then
        -- What another layout left has no version that a save would go on from.
        return {text, exactly(n == 1 and tonumber(redis.call('GET', KEYS[n + 2]) or '') or 0)}
    end
    if redis.call('EXISTS', KEYS[n + 3]) == 1 or redis.call('SISMEMBER', KEYS[n], ARGV[1] .. ':list') == 1 then
        return 1
    end
end
return false
"""
)

# KEYS and ARGV as above. Returns the items, or 1 for a value.
GET_LIST = Script("""
for n = 1, #KEYS, 5 do
    local items = redis.call('LRANGE', KEYS[n + 3], 0, -1)
    if #items > 0 or redis.call('SISMEMBER', KEYS[n], ARGV[1] .. ':list') == 1 then return items end
    if redis.call('EXISTS', KEYS[n + 1]) == 1 then return 1 end
end
return {}
""")

# KEYS: the set, the value, the version, the list, the hash. ARGV: the text; the version that is expected, or nothing.
# Returns the version, or -2 when it is another one.
PUT = Script(
    _WRITE
    + _KEEP
    + _EXACTLY
    + """
local text, expected = ARGV[5], ARGV[6]
local version = 0
-- Java of before there were versions leaves them behind when it deletes what they counted.
if redis.call('EXISTS', value) == 1 then version = tonumber(redis.call('GET', ver) or '') or 0 end
if expected ~= '' and exactly(version) ~= expected then return -2 end
-- Nor is there nothing where there is a list; Java may have both.
local listed = redis.call('EXISTS', list) == 1 or redis.call('SISMEMBER', set, name .. ':list') == 1
if expected ~= '' and listed and redis.call('EXISTS', value) == 0 then return -2 end
local new = done(exactly(version + 1))
redis.call('SET', value, text)
redis.call('SET', ver, new)
redis.call('UNLINK', list, hash)
keep(name, name .. ':list')
return new
"""
)

LENGTH = Script("return redis.call('LLEN', KEYS[1])")

# KEYS: as PUT. ARGV: the hash; how many items are to stay, and the sum of the salt and these, or nothing, or `new` if
# there must be nothing; the salt; the items that follow. Returns 1, or -2 when there is something else.
PUT_LIST = Script(
    _WRITE
    + _KEEP
    + """
local mark, stay, sum, salt = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local items = redis.call('LRANGE', list, 0, stay == '' and 0 or -1)
if stay == 'new' then
    local listed = redis.call('SISMEMBER', set, name .. ':list') == 1
    if listed or redis.call('EXISTS', value, list) > 0 then return -2 end
elseif stay ~= '' then
    if #items ~= tonumber(stay) or redis.sha1hex(salt .. table.concat(items, '\\n')) ~= sum then return -2 end
end
local kept = done('1')
if stay == '' then redis.call('UNLINK', list) end
-- As many at once as Lua can hand over.
for first = 9, #ARGV, 1000 do
    redis.call('RPUSH', list, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('SET', hash, mark)
redis.call('UNLINK', value, ver)
keep(name .. ':list', name)
return kept
"""
)

# KEYS: the set of each place. ARGV: the name of what alone makes no session. With no name, all that is there goes.
# Returns whether there was anything.
DROP = Script(
    _WRITE
    + """
local removed = 0
for n = 3, #KEYS - (index and 1 or 0) do
    local members = name ~= '' and {name, name .. ':list'} or redis.call('SMEMBERS', KEYS[n])
    for _, member in ipairs(members) do
        local key = string.sub(KEYS[n], 1, -6) .. member
        removed = removed + redis.call('UNLINK', key, key .. ':ver', key .. ':_hash')
        removed = removed + redis.call('SREM', KEYS[n], member)
    end
end
local hidden = redis.call('SISMEMBER', set, ARGV[5])
if index and redis.call('SCARD', set) == hidden then redis.call('SREM', index, session) end
-- A server without memory lets go of things, and takes a note once it has.
return removed > 0 and done('1') or 0
"""
)

EXISTS = Script("return redis.call('EXISTS', unpack(KEYS))")

MEMBERS = Script("return redis.call('SMEMBERS', KEYS[1])")

# ARGV: where to go on, what the keys match, and the name of what alone makes no session. Returns where to go on, and
# keys of sets.
SCAN = Script("""
local next, found = unpack(redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000))
local sets = {}
for _, key in ipairs(found) do
    if redis.call('TYPE', key).ok == 'set' then
        if redis.call('SCARD', key) > 1 or redis.call('SISMEMBER', key, ARGV[3]) == 0 then sets[#sets + 1] = key end
    end
end
return {next, sets}
""")
