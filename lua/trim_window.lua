#!lua flags=allow-oom
-- Drops messages and idempotency keys from Redis that the archive has and that are no longer recent.
-- KEYS: 1 head (hash), 2 window (hash), 3 revs (sorted set), 4 keys0 (hash), 5 keys1 (hash), 6 amended (sorted set).
-- ARGV: 1 seq and 2 rev up to which the conversation is archived, 3 recent messages to keep, 4 most messages dropped in one call, 5 now (ms),
--       6 time for which a generation of keys takes new ones (ms).
-- RETURNS: trimmed (messages dropped, '1' if more could be, '1' if a generation of keys was dropped) | absent.
-- WHY: a message whose last change is not archived yet must stay, or readers would see the version before it; and `keys_since` moves in
--      the step that drops keys, or a repetition could pass for a first send.
local c = redis.call('HMGET', KEYS[1], 'floor', 'head', 'rev', 'kgen', 'kgen_at', 'kgen_rev', 'keys_since', 'under_rev')
if not c[1] then return {'absent'} end
local archived_rev, most, now = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])
local function whole(number) return string.format('%d', number) end
local floor, dropped, under = tonumber(c[1]), 0, tonumber(c[8] or '0')
local last = math.min(tonumber(ARGV[1]), tonumber(c[2]) - tonumber(ARGV[3]))
local waits = false
while floor <= last and dropped < most and not waits do
  local seqs = {}
  for seq = floor, math.min(last, floor + 99) do seqs[#seqs + 1] = whole(seq) end
  local values = redis.call('HMGET', KEYS[2], unpack(seqs))
  local gone = {}
  for i, value in ipairs(values) do
    local rev = value and tonumber(string.match(value, '^(%d+)')) or 0
    if rev > archived_rev then
      waits = true
      break
    end
    under = math.max(under, rev)
    gone[#gone + 1] = seqs[i]
  end
  if #gone > 0 then
    redis.call('HDEL', KEYS[2], unpack(gone))
    redis.call('ZREM', KEYS[3], unpack(gone))
    floor, dropped = floor + #gone, dropped + #gone
  end
end
-- What was changed below the window goes when the archive has the change. `under_rev` remembers the highest rev that went: whoever read such
-- a message from the archive before that must not take it for the newest.
for _, seq in ipairs(redis.call('ZRANGE', KEYS[6], 0, most - 1)) do
  local value = redis.call('HGET', KEYS[2], seq)
  local rev = value and tonumber(string.match(value, '^(%d+)')) or 0
  if rev <= archived_rev then
    under = math.max(under, rev)
    redis.call('ZREM', KEYS[6], seq)
    if tonumber(seq) < floor then
      redis.call('HDEL', KEYS[2], seq)
      redis.call('ZREM', KEYS[3], seq)
    end
  end
end
if dropped > 0 then redis.call('HSET', KEYS[1], 'floor', whole(floor)) end
if under > 0 then redis.call('HSET', KEYS[1], 'under_rev', whole(under)) end

-- The generation in use becomes the older one, an empty one takes its place. What the older one held is dropped only when it is archived.
local rotated = '0'
local since = tonumber(c[5])
if since and now - since > tonumber(ARGV[6]) then
  local other = c[4] == '1' and '0' or '1'
  local older = KEYS[4 + tonumber(other)]
  local full = redis.call('EXISTS', older) == 1
  if not full or archived_rev >= tonumber(c[6] or c[3]) then
    if full then
      redis.call('UNLINK', older)
      redis.call('HSET', KEYS[1], 'keys_all', '0', 'keys_since', whole(math.max(tonumber(c[7] or '0'), since + 60000)))
      rotated = '1'
    end
    redis.call('HSET', KEYS[1], 'kgen', other, 'kgen_at', ARGV[5], 'kgen_rev', c[3])
  end
end
return {'trimmed', dropped, (floor <= last and not waits) and '1' or '0', rotated}
