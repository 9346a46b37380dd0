"""What Redis does with the head of a session, as Lua scripts; docs/formats/redis.md tells the keys."""

from __future__ import annotations

from leafward.stores.redis.scripts import KEPT, Script

# A running checksum goes on over a part of a line whose own checksum is known by a product of polynomials, as zlib has
# it in `crc32_combine`; over a short text byte by byte, by tables of four bits.
_CRC = """
local band, bxor, shift, bnot = bit.band, bit.bxor, bit.rshift, bit.bnot
local nibbles = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
}
local function over_text(crc, text)
    crc = bnot(crc)
    for n = 1, #text do
        crc = bxor(crc, string.byte(text, n))
        crc = bxor(shift(crc, 4), nibbles[band(crc, 15) + 1])
        crc = bxor(shift(crc, 4), nibbles[band(crc, 15) + 1])
    end
    return bnot(crc)
end
local function over_part(crc, part)
    local own, factor = part[2], part[3]
    if #part[1] == 0 then return crc end
    local product, highest = 0, -0x80000000
    while factor ~= 0 do
        if band(factor, highest) ~= 0 then product = bxor(product, crc) end
        factor = bit.lshift(factor, 1)
        if band(crc, 1) ~= 0 then crc = bxor(shift(crc, 1), 0xedb88320) else crc = shift(crc, 1) end
    end
    return bxor(product, own)
end
"""

# KEYS: the lease, the turn, the answer, the list, the mark, the three of the head, and the two of the listing. ARGV:
# whether this is a repetition, the nonce, the fencing token or nothing, who writes, the session, and the step.
# Returns first 1 done, 0 to be done by one who has read the session, 4 there is none, 2 another's turn, -1 lease lost,
# 3 another version than expected, which follows. After 1: the version, the window, the prompt, whether usage was
# counted, the leaf, and the numbers of the states that were attached.
STEP = Script(
    KEPT
    + _CRC
    + """
local nonce, token, writer, session = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local list, head, ids, used = KEYS[4], KEYS[6], KEYS[7], KEYS[8]
local infos, recent = KEYS[9], KEYS[10]
local answered = redis.call('GET', KEYS[3])
if answered then return cmsgpack.unpack(answered) end
if token ~= '' then
    local lease = redis.call('HMGET', KEYS[1], 'token', 'holder')
    if lease[1] ~= token or not lease[2] then return {-1} end
end
local turn = redis.call('GET', KEYS[2])
if turn and turn ~= writer then return {2} end
local mark = redis.call('GET', KEYS[5])
if not mark then return {4} end
local listed = redis.call('ZCARD', recent) and redis.call('HGET', infos, session)
local incarnation, length, crc = string.match(mark, '^([^:]*):(%d+):(%x+):')
local end_of_last = string.sub(redis.call('LINDEX', list, -1) or '', -10, -3)
if not listed or redis.call('LLEN', list) ~= tonumber(length) or end_of_last ~= crc then return {0} end
if not is_kept(mark, head, ids, used) then return {0} end

local at, updated, parent, expected, weighs, new_ids, tokens, lines, last_line, states, usage =
    unpack(cmsgpack.unpack(ARGV[6]))
local version, leaf, line, window, prompt, following =
    unpack(redis.call('HMGET', head, 'version', 'leaf', 'line', 'window', 'prompt', 'next'))
if (parent ~= '' and parent ~= leaf) or (weighs == 1 and window == '') then return {0} end
for _, id in ipairs(new_ids) do
    if redis.call('HEXISTS', ids, id) == 1 then return {0} end
end
local written, batch = {}, {}
for n, one in ipairs(states) do
    local found = redis.call('HGET', head, 'state:' .. one[1])
    if (found and string.sub(found, 1, 32) or '') ~= one[2] then
        written[#written + 1] = n
        lines[#lines + 1] = one[4]
    end
end
local info = string.sub(listed, 17)
local counted = #usage > 0 and (usage[1] == '' or redis.call('HEXISTS', used, usage[1]) == 0)
if counted then
    local a, input, b, output, c, cost, d = string.match(info,
        '^(.*"input_tokens":)(%d+)(,"output_tokens":)(%d+)(,"estimated_cost":)([^,]+)(,"end_reason":.*)$')
    if not a then return {0} end
    input, output, cost = input + usage[2], output + usage[3], cost + usage[4]
    -- Beyond, numbers of Lua are not exact.
    if input > 9007199254740991 or output > 9007199254740991 then return {0} end
    info = a .. string.format('%.0f', input) .. b .. string.format('%.0f', output)
        .. c .. string.format('%.17g', cost) .. d
    lines[#lines + 1] = usage[5]
end
local info_start = string.match(info, '^(.*:)"[^"]*"}$')
if not info_start then return {0} end

local function answer()
    local found = {1, version, window, prompt, counted and 1 or 0, leaf}
    for _, n in ipairs(written) do found[#found + 1] = n end
    return found
end
if #lines == 0 then
    if turn == writer then redis.call('UNLINK', KEYS[2]) end
    return answer()
end
if expected ~= '' and expected ~= version then return {3, version} end

crc = tonumber(crc, 16)
for n, one in ipairs(lines) do
    local first, gap, last, has_payload = unpack(one)
    local between, finish = '', ''
    if gap == 1 and line ~= '' then between = ',"parentId":' .. line end
    if gap == 2 then between = leaf == '' and 'null' or cjson.encode(leaf) end
    local more = #lines - n
    if has_payload == 1 then
        finish = (n == 1 and ',"at":' .. at or '') .. (more > 0 and ',"more":' .. more or '') .. '}}'
    else
        finish = more > 0 and ',"leafward":{"more":' .. more .. '}}' or '}'
    end
    crc = over_text(over_part(over_text(over_part(crc, first), between), last), finish)
    batch[n] = first[1] .. between .. last[1] .. string.sub(finish, 1, -2) .. ',"crc":"' .. bit.tohex(crc) .. '"}'
end

version = string.format('%.0f', version + 1)
local sorted_at = string.rep('0', 16 - #at) .. at
-- First what a server without memory refuses: once a script has written, Redis lets it go on.
redis.call('RPUSH', list, table.concat(batch, '\\n'))
mark = incarnation .. ':' .. string.format('%.0f', length + 1) .. ':' .. bit.tohex(crc) .. ':' .. nonce
redis.call('SET', KEYS[5], mark)
redis.call('ZREM', recent, string.sub(listed, 1, 16) .. session)
redis.call('HSET', infos, session, sorted_at .. info_start .. updated .. '}')
redis.call('ZADD', recent, 0, sorted_at .. session)
for _, n in ipairs(written) do
    local name, digest, text = unpack(states[n])
    if digest == '' then
        redis.call('HDEL', head, 'state:' .. name)
    else
        redis.call('HSET', head, 'state:' .. name, digest .. text)
    end
end
if counted and usage[1] ~= '' then redis.call('HSET', used, usage[1], '') end
if #new_ids > 0 then
    local lane, position = string.match(following, '^(%d+)%.(%d+)$')
    for n, id in ipairs(new_ids) do
        redis.call('HSET', ids, id, lane .. '.' .. string.format('%.0f', position + n - 1))
    end
    leaf, line = new_ids[#new_ids], last_line
    if window ~= '' then window = string.format('%.0f', window + tokens) end
    following = lane .. '.' .. string.format('%.0f', position + #new_ids)
end
redis.call('HSET', head, 'mark', mark, 'version', version, 'leaf', leaf, 'line', line, 'window', window,
    'next', following, 'messages', redis.call('HLEN', ids), 'used', redis.call('HLEN', used))
redis.call('SET', KEYS[3], cmsgpack.pack(answer()), 'PX', 60000)
if turn == writer then redis.call('UNLINK', KEYS[2]) end
return answer()
"""
)

# KEYS: the mark, and the three of the head. ARGV: how many states, their names, and ids of messages. Returns 1, the
# version, the leaf, the next place, the path, the states and the places of the messages; or 0, or 4 as above.
HEAD = Script(
    KEPT
    + """
local mark = redis.call('GET', KEYS[1])
if not mark then return {4} end
if not is_kept(mark, KEYS[2], KEYS[3], KEYS[4]) then return {0} end
local states, places = {}, {}
for n = 2, #ARGV do
    if n - 1 <= tonumber(ARGV[1]) then
        states[#states + 1] = redis.call('HGET', KEYS[2], 'state:' .. ARGV[n]) or ''
    else
        places[#places + 1] = redis.call('HGET', KEYS[3], ARGV[n]) or ''
    end
end
local head = redis.call('HMGET', KEYS[2], 'version', 'leaf', 'next', 'path')
return {1, head[1], head[2], head[3], head[4], states, places}
"""
)

# KEYS: where ids or names of usage are gathered. ARGV: whether this is a repetition; fields and values; milliseconds
# after which an upload that is not finished goes.
STAGE = Script("""
local pairs = cmsgpack.unpack(ARGV[2])
for n = 1, #pairs, 2000 do redis.call('HSET', KEYS[1], unpack(pairs, n, math.min(n + 1999, #pairs))) end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
""")

# KEYS: the mark, the three of the head, and where ids and names of usage were gathered. ARGV: whether this is a
# repetition; the mark that they belong to; the fields of the head; how many ids and names were gathered.
KEEP = Script("""
local mark, ids, used = redis.call('GET', KEYS[1]) or '', tonumber(ARGV[4]), tonumber(ARGV[5])
local expected = ARGV[2] .. ':'
if string.sub(mark, 1, #expected) ~= expected
    or redis.call('HLEN', KEYS[5]) ~= ids or redis.call('HLEN', KEYS[6]) ~= used then
    redis.call('UNLINK', KEYS[5], KEYS[6])
    return 0
end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4])
redis.call('HSET', KEYS[2], unpack(cmsgpack.unpack(ARGV[3])))
for n, count in ipairs({ids, used}) do
    if count > 0 then
        redis.call('RENAME', KEYS[4 + n], KEYS[2 + n])
        redis.call('PERSIST', KEYS[2 + n])
    end
end
redis.call('HSET', KEYS[2], 'mark', mark, 'messages', ids, 'used', used)
return 1
""")

# KEYS: the three of the head. ARGV: whether this is a repetition.
DROP = Script("return redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])")
