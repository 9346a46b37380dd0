"""What Redis does with states in one atomic step; docs/formats/states-redis.md tells the keys.

A write leaves the answer it gave under a key of its own for a minute: whoever repeats it, and whatever was on its way
when it was repeated, gets that answer and changes nothing.
"""

from __future__ import annotations

from leafward.stores.redis.scripts import Script
from leafward.stores.redis.state_keys import FILLED, OLD_FILLED
from leafward.stores.states.table import EMPTY

_EXACTLY = "local function exactly(number) return string.format('%.0f', number) end\n"

# Versions. `:ver` counts the saves of leafward and of Java that knows versions, `:sum` holds a version, what `:ver` was
# then, and the checksum of the value. Each save that `:ver` counted since is one version more; so is a value with
# another checksum beside the same `:ver`, which Java of before there were versions saved. A value is at least version
# 1: at 0 there is none.
_VERSIONS = (
    _EXACTLY
    + """
-- A longer number is not exact in Lua, and nobody saves so often.
local function count(text) return #text <= 15 and tonumber(string.match(text, '^%d+$')) end
local function counted(key, text)
    local ver, sum = count(redis.call('GET', key .. ':ver') or '') or 0, redis.sha1hex(text)
    local noted = redis.call('GET', key .. ':sum')
    local version, at, of = string.match(noted or '', '^(%d+) (%d+) (%x+)$')
    version, at = count(version or ''), count(at or '')
    local found = ver
    if version and at then
        -- Where `:ver` went back, Java deleted the value, left the checksum, and saved another value.
        local saves = at > ver and 1 or ver - at
        found = version + saves + ((at == ver and of ~= sum) and 1 or 0)
    end
    found = math.max(found, 1)
    local note = exactly(found) .. ' ' .. exactly(ver) .. ' ' .. sum
    return found, note ~= noted and note
end
"""
)

# Whose a key is. `fixed` is how many bytes at the start of a key are the same for all.
_OWNERS = f"""
local function lists(set, member) return redis.call('SISMEMBER', set, member) == 1 end
-- Whether the state of an agent says that it is of this place if its name is literal, and if it is by the old rule.
local function says(place, key)
    local text = redis.pcall('GETRANGE', key, 0, 4000)
    text = type(text) == 'string' and text or ''
    local session, after = string.match(text, '^%s*{{%s*"session_id"%s*:%s*"([^"\\\\]+)"%s*,?%s*()')
    if not session then return false, false end
    local user = string.match(text, '^"user_id"%s*:%s*"([^"\\\\]+)"', after) or ''
    local wanted = user .. '/' .. session
    local function ends(text) return string.sub(text, -#wanted) == wanted end
    return ends(place), ends((string.gsub(place, '%%(%x%x)', {{['25'] = '%', ['3A'] = ':'}})))
end
-- Whether a slot was written under the old rule. Java has other hashes. Versions are a sign too, but Java 2.0.3 has
-- them as well: then it is 'maybe', unless the state of an agent says more.
local function is_old(set)
    local place, sure, java, versions = string.sub(set, 1, -7), false, false, false
    local literal, by_old_rule = false, false
    for _, member in ipairs(redis.call('SMEMBERS', set)) do
        local key = place .. ':' .. member
        local hash = redis.call('GET', key .. ':_hash')
        local has_sum = redis.call('EXISTS', key .. ':sum') == 1 and not lists(set, member .. ':sum')
        if hash == '{FILLED}' or has_sum then return false end
        sure = sure or hash == '{OLD_FILLED}'
        java = java or (string.sub(member, -5) == ':list' and hash ~= '{OLD_FILLED}' and hash ~= '{EMPTY}')
        versions = versions or redis.call('EXISTS', key .. ':ver') == 1
        if member == 'agent_state' then literal, by_old_rule = says(place, key) end
    end
    if sure then return 'surely' end
    if java or not versions or (literal and not by_old_rule) then return false end
    return by_old_rule and not literal and 'surely' or 'maybe'
end
-- Java writes colons in the names of states, so one key may be a state of two slots: their sets say whose it is.
local function is_free(set, member, fixed)
    local key = string.sub(set, 1, -6) .. member
    local at = string.find(key, ':', fixed + 1, true)
    while at do
        local other = string.sub(key, 1, at) .. '_keys'
        if other ~= set and redis.pcall('SISMEMBER', other, string.sub(key, at + 1)) == 1 then return false end
        at = string.find(key, ':', at + 1, true)
    end
    return true
end
-- Whether a key can be what belongs to a state, such as its version, because it is not a state itself.
local function is_beside(set, member, fixed) return not lists(set, member) and is_free(set, member, fixed) end
"""

# KEYS: after those of a write, the set of each place where the slot may be. ARGV, after those of a write: a letter for
# each place, `fixed`, the name of the state as keys spell it, and the name itself. All return the keys of the sets
# of old places that are not used; then what their `main` returns. The letters:
# n  a new place
# u  a new place, but another slot's if its content was written under the old rule
# o  an old place: this slot's only then, and only while the new place before it holds nothing
# Capitals stand for places of another layout, which are read and not written to.
_SLOT = (
    _OWNERS
    + """
local letters, fixed, name, raw = ARGV[args + 1], tonumber(ARGV[args + 2]), ARGV[args + 3], ARGV[args + 4]
local places, unused, taken, newer = {}, {}, false, false
local doubtful = string.find(string.lower(letters), '[uo]')
for n = 1, #letters do
    local set, letter = KEYS[keys + n], string.sub(letters, n, n)
    local kind = string.lower(letter)
    local exists = doubtful and redis.call('EXISTS', set) == 1
    local old = kind ~= 'n' and exists and is_old(set)
    if kind == 'u' and old then
        taken, newer = taken or (n == 1 and old), false
    elseif kind == 'o' and newer then
        if old then unused[#unused + 1] = set end
    elseif kind ~= 'o' or old then
        places[#places + 1] = {set = set, start = string.sub(set, 1, -6), old = old, older = letter ~= kind}
        newer = exists
    end
end
local function is_ours(set, member) return lists(set, member) or is_free(set, member, fixed) end
-- Java and the old rule write a name as it is. In a new place that is newer than our spelling: a save of ours leaves
-- none. But `a%3Ab` is not looked for there, for `a:b` is spelled so.
local alike = string.find(raw, '%', 1, true) and not string.find(raw, ':', 1, true)
local function spellings(place)
    if place.old then return {raw} end
    if raw == name or alike or not (lists(place.set, raw) or lists(place.set, raw .. ':list')) then return {name} end
    return {raw, name}
end
local function has_list(place, name)
    local member = name .. ':list'
    if lists(place.set, member) then return true end
    return redis.call('EXISTS', place.start .. member) == 1 and is_free(place.set, member, fixed)
end
-- Removes a state with what belongs to it; returns how many keys it had.
local function remove(set, member)
    local key, removed = string.sub(set, 1, -6) .. member, 0
    if redis.call('EXISTS', key, key .. ':ver', key .. ':sum', key .. ':_hash') == 0 then return 0 end
    if not is_ours(set, member) then return 0 end
    for _, ending in ipairs({'', ':ver', ':sum', ':_hash'}) do
        if ending == '' or is_beside(set, member .. ending, fixed) then
            removed = removed + redis.call('UNLINK', key .. ending)
        end
    end
    return removed
end
"""
)

_RETURN = "\nreturn {unused, main() or false}"


def _reading(main: str) -> Script:
    return Script(f"local keys, args = 0, 0\n{_SLOT}{_VERSIONS}local function main()\n{main}end{_RETURN}")


# ARGV: whether the version is asked for; other names. Returns the value and its version, 1 for a list, or nothing; 2 if
# that is so, but one of the other names holds something.
GET = _reading("""
for _, place in ipairs(places) do
    for _, name in ipairs(spellings(place)) do
        local key = place.start .. name
        local text = redis.call('GET', key)
        if text and is_ours(place.set, name) then
            -- What another layout left has no version that a save would go on from.
            if place.older or ARGV[args + 5] == '' then return {text, '0'} end
            local version, note = counted(key, text)
            -- Without a note, the next save by Java of before there were versions would be this version too. One who
            -- may not write, or for whom there is no memory, goes without.
            if note and not place.old and is_beside(place.set, name .. ':sum', fixed) then
                redis.pcall('SET', key .. ':sum', note)
            end
            return {text, exactly(version)}
        end
        if has_list(place, name) then return 1 end
    end
end
for n = args + 6, #ARGV do
    for _, place in ipairs(places) do
        if redis.call('EXISTS', place.start .. ARGV[n]) == 1 or has_list(place, ARGV[n]) then return 2 end
    end
end
""")

# Returns the items, or 1 for a value.
GET_LIST = _reading("""
for _, place in ipairs(places) do
    for _, name in ipairs(spellings(place)) do
        if has_list(place, name) then return redis.call('LRANGE', place.start .. name .. ':list', 0, -1) end
        if redis.call('EXISTS', place.start .. name) == 1 and is_ours(place.set, name) then return 1 end
    end
end
return {}
""")

# Returns how many items there are where a list is written to.
LENGTH = _reading("return redis.call('LLEN', string.sub(KEYS[1], 1, -6) .. name .. ':list')\n")

# Returns 1 if the slot holds anything.
EXISTS = _reading("""
for _, place in ipairs(places) do
    if redis.call('EXISTS', place.set) == 1 then return 1 end
end
""")

# Returns what the sets name, of places that are written to.
NAMES = _reading("""
local found = {}
for _, place in ipairs(places) do
    for _, member in ipairs(place.older and {} or redis.call('SMEMBERS', place.set)) do found[#found + 1] = member end
end
return found
""")

# KEYS of all that write: the lease, the answer, the sets; last the index, if there is one. ARGV of all that write:
# whether this is a repetition, the fencing token or nothing, the session if there is an index; then as above. They
# return -1 when the lease is lost.
_WRITE = """
local keys, args = 2, 3
local lease, answer, set = KEYS[1], KEYS[2], KEYS[3]
local token, session = ARGV[2], ARGV[3]
local index = session ~= '' and KEYS[#KEYS]
local function done(result)
    redis.call('SET', answer, result, 'PX', 60000)
    return result
end
"""

_ALLOWED = """
local answered = redis.call('GET', answer)
if answered then return answered end
if token ~= '' then
    local held = redis.call('HMGET', lease, 'token', 'holder')
    if held[1] ~= token or not held[2] then return -1 end
end
"""

# Of a name that comes to hold something; -3 when its key is another slot's, -4 when something is to be moved before, -5
# when the whole place may be another slot's. A key of another type fails before anything is written, and a server
# without memory refuses the first write: once a script has written, Redis lets it go on.
_KEEP = """
if taken then return taken == 'maybe' and -5 or -3 end
for _, place in ipairs(places) do
    if place.old and not place.older then return -4 end
end
if #spellings(places[1]) > 1 then return -4 end
local key = string.sub(set, 1, -6) .. name
local list = key .. ':list'
local function keep(member, other)
    redis.call('SADD', set, member)
    redis.call('SREM', set, other)
    if index then redis.call('SADD', index, session) end
end
redis.call('SCARD', set)
if index then redis.call('SCARD', index) end
"""


def _writing(main: str) -> Script:
    return Script(f"{_WRITE}{_SLOT}{_VERSIONS}local function main()\n{_ALLOWED}{main}end{_RETURN}")


# ARGV: the text, its checksum, and the version that is expected, or nothing. Returns the version, or -2 when it is
# another one.
PUT = _writing(
    _KEEP
    + """
local text, sum, expected = ARGV[args + 5], ARGV[args + 6], ARGV[args + 7]
for _, ending in ipairs({':ver', ':sum'}) do
    if not is_beside(set, name .. ending, fixed) then return -3 end
end
if not is_ours(set, name) then return -3 end
-- Java of before there were versions leaves them behind when it deletes what they counted.
local held = redis.call('GET', key)
local version = held and counted(key, held) or 0
if expected ~= '' and exactly(version) ~= expected then return -2 end
-- Nor is there nothing where there is a list; Java may have both.
if expected ~= '' and not held and has_list(places[1], name) then return -2 end
local new = done(exactly(version + 1))
redis.call('SET', key, text)
redis.call('SET', key .. ':ver', new)
redis.call('SET', key .. ':sum', new .. ' ' .. new .. ' ' .. sum)
remove(set, name .. ':list')
keep(name, name .. ':list')
return new
"""
)

# ARGV: the hash; how many items are to stay, and the sum of the salt and these, or nothing, or `new` if there must be
# nothing; the salt; the items that follow. Returns 1, or -2 when there is something else.
PUT_LIST = _writing(
    _KEEP
    + """
local mark, stay, sum, salt = ARGV[args + 5], ARGV[args + 6], ARGV[args + 7], ARGV[args + 8]
if not is_ours(set, name .. ':list') or not is_beside(set, name .. ':list:_hash', fixed) then return -3 end
local items = redis.call('LRANGE', list, 0, stay == '' and 0 or -1)
if stay == 'new' then
    if has_list(places[1], name) or (redis.call('EXISTS', key) == 1 and is_ours(set, name)) then return -2 end
elseif stay ~= '' then
    if #items ~= tonumber(stay) or redis.sha1hex(salt .. table.concat(items, '\\n')) ~= sum then return -2 end
end
local kept = done('1')
if stay == '' then redis.call('UNLINK', list) end
-- As many at once as Lua can hand over.
for first = args + 9, #ARGV, 1000 do
    redis.call('RPUSH', list, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('SET', list .. ':_hash', mark)
remove(set, name)
keep(name .. ':list', name)
return kept
"""
)

# ARGV: the name of what alone makes no session. With no name of a state, all that is there goes. What goes also goes
# from an old place that is not used: it may be used then. Returns whether there was anything.
DROP = _writing("""
for _, set in ipairs(unused) do places[#places + 1] = {set = set, old = true} end
local removed = 0
for _, place in ipairs(places) do
    local members = name == '' and redis.call('SMEMBERS', place.set) or {}
    for _, name in ipairs(name == '' and {} or spellings(place)) do
        members[#members + 1] = name
        members[#members + 1] = name .. ':list'
    end
    for _, member in ipairs(members) do
        removed = removed + remove(place.set, member) + redis.call('SREM', place.set, member)
    end
end
local hidden = redis.call('SISMEMBER', set, ARGV[args + 5])
if index and redis.call('SCARD', set) == hidden then redis.call('SREM', index, session) end
-- A server without memory lets go of things, and takes a note once it has.
return removed > 0 and done('1') or 0
""")

# KEYS: the set of a slot, and the set that names what is to be moved there, which may be the same. ARGV: whether this
# is a repetition, `fixed`; what the second set names, each with its name in the first. What was moved already stays.
# What may be Java's is copied; there are only strings then.
MOVE = Script(
    _OWNERS
    + _VERSIONS
    + f"""
local set, from, fixed = KEYS[1], KEYS[2], tonumber(ARGV[2])
local old = set ~= from and is_old(from)
if set ~= from and (redis.call('EXISTS', set) == 1 or not old) then return 0 end
local beside = {{':ver', ':sum', ':_hash'}}
local function has_room(new)
    for _, ending in ipairs(beside) do
        if not is_beside(set, new .. ending, fixed) then return false end
    end
    return is_free(set, new, fixed)
end
local function move(key, target)
    redis.call('UNLINK', target)
    if redis.call('EXISTS', key) == 0 then return end
    if old == 'maybe' then redis.call('SET', target, redis.call('GET', key)) else redis.call('RENAME', key, target) end
end
for n = 3, #ARGV, 2 do
    local member, new = ARGV[n], ARGV[n + 1]
    if lists(from, member) and is_free(from, member, fixed) and has_room(new) then
        local key, target = string.sub(from, 1, -6) .. member, string.sub(set, 1, -6) .. new
        move(key, target)
        for _, ending in ipairs(beside) do
            if is_beside(from, member .. ending, fixed) then move(key .. ending, target .. ending) end
        end
        redis.call('SADD', set, new)
        if old ~= 'maybe' then redis.call('SREM', from, member) end
        -- What is here now was written under the new rule.
        local hash = target .. ':_hash'
        if redis.call('GET', hash) == '{OLD_FILLED}' then redis.call('SET', hash, '{FILLED}') end
        if redis.call('EXISTS', target .. ':ver') == 1 then
            local _, note = counted(target, redis.call('GET', target) or '')
            if note then redis.call('SET', target .. ':sum', note) end
        end
    end
end
return 1
"""
)

MEMBERS = Script("return redis.call('SMEMBERS', KEYS[1])")

# ARGV: where to go on, what the keys match, and the name of what alone makes no session. Returns where to go on, and
# keys of sets, each with 1 if what it names was written under the old rule.
SCAN = Script(
    _OWNERS
    + """
local next, found = unpack(redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000))
local sets = {}
for _, key in ipairs(found) do
    if redis.call('TYPE', key).ok == 'set' then
        if redis.call('SCARD', key) > 1 or redis.call('SISMEMBER', key, ARGV[3]) == 0 then
            sets[#sets + 1] = {key, string.find(key, '%%[237]') and is_old(key) and 1 or 0}
        end
    end
end
return {next, sets}
"""
)

# KEYS: what may be a set. Returns 1 if what it names was written under the old rule.
IS_OLD = Script(_OWNERS + "return redis.call('TYPE', KEYS[1]).ok == 'set' and is_old(KEYS[1]) and 1 or 0")
