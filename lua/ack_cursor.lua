-- Moves the stored cursor of a user's device forward.
-- KEYS: 1 cursors (hash), 2 log (stream), 3 log info (hash).
-- ARGV: 1 device, 2 log epoch of the new place, 3 its ms, 4 its n, 5 now (ms), 6 how many devices are kept.
-- RETURNS: moved | kept (the stored place is at or beyond it) | future (beyond the log) | lost (of another epoch).
-- WHY: two tabs of one device report in any order. Comparing and writing in one step keeps the later place, and the check against the
--      log in the same step keeps a place that the log never had from ever being stored.
local field = redis.call('HMGET', KEYS[3], 'nonce', 'last')
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not field[1] or string.sub(redis.sha1hex(field[1] .. replid .. KEYS[2]), 1, 12) ~= ARGV[2] then return {'lost'} end

-- Compares digits as numbers of any length: a double holds 53 bits, a place 64.
local function compare(a, b)
  a, b = string.gsub(a, '^0+', ''), string.gsub(b, '^0+', '')
  if #a ~= #b then return #a < #b and -1 or 1 end
  if a == b then return 0 end
  return a < b and -1 or 1
end
local function is_beyond(ms, n, place)
  local other_ms, other_n = string.match(place, '(%d+)-(%d+)$')
  if not other_ms then return true end
  local by_ms = compare(ms, other_ms)
  return by_ms > 0 or (by_ms == 0 and compare(n, other_n) > 0)
end

if is_beyond(ARGV[3], ARGV[4], field[2]) then return {'future'} end
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local place, word = ARGV[2] .. '.' .. ARGV[3] .. '-' .. ARGV[4], 'moved'
if stored then
  local old = string.match(stored, '^(%S+) ')
  if old and string.match(old, '^(%w+)%.') == ARGV[2] and not is_beyond(ARGV[3], ARGV[4], old) then place, word = old, 'kept' end
end
redis.call('HSET', KEYS[1], ARGV[1], place .. ' ' .. ARGV[5])
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[6]) then
  local all, oldest, device = redis.call('HGETALL', KEYS[1]), nil, nil
  for i = 1, #all, 2 do
    local used = tonumber(string.match(all[i + 1], ' (%d+)$') or 0)
    if all[i] ~= ARGV[1] and (not oldest or used < oldest) then oldest, device = used, all[i] end
  end
  redis.call('HDEL', KEYS[1], device)
end
return {word}
