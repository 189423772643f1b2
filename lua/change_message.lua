-- Puts a message's new state in the place of the one it was decided on, with its event, or does nothing.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 members (hash), 5 window (hash), 6 revs (sorted set), 7 uncounted (sorted
--       set), 8 amended (sorted set), 9 mentions (sorted set).
-- ARGV: 1 now (ms), 2 outbox length above which changes are refused (entries), 3 conversation, 4 user who must be a member ('' for nobody),
--       5 role that the user must have ('' for any, else o or m), 6 seq, 7 rev of the message that the decision was made on, 8 rev of the
--       conversation when it was read, 9 message JSON, 10 change JSON, 11 '1' if the message does not count as unread any more,
--       12 '1' if the decision was made where one of a pair blocks the other, 13 the highest seq that was cleared by a member then, 14 users
--       that the message no longer names (one a line).
-- RETURNS: done (rev) | changed | not_member | cold | closed | overloaded | stale_epoch.
-- WHY: an edit and a deletion that cross must end in one order for everybody; comparing the message's own rev makes the later one decide
--      again on what the earlier one left. A message that has left the window is compared by what has left since it was read.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch = shard[1]
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'state', 'made', 'rev', 'mver', 'floor', 'under_rev', 'block_low',
  'block_high', 'cleared_max')
if c[1] ~= epoch then return {'cold'} end
if c[3] ~= '1' then return {'not_member'} end
if ARGV[4] ~= '' then
  local record = redis.call('HGET', KEYS[4], ARGV[4])
  if not record then return {'not_member'} end
  if ARGV[5] ~= '' and string.sub(record, 1, 1) ~= ARGV[5] then return {'changed'} end
end
if c[2] ~= 'open' then return {'closed'} end
local blocked = ((c[8] or '') ~= '' or (c[9] or '') ~= '') and '1' or '0'
if blocked ~= ARGV[12] or (c[10] or '0') ~= ARGV[13] then return {'changed'} end
local value = redis.call('HGET', KEYS[5], ARGV[6])
if value then
  if string.match(value, '^(%d+)') ~= ARGV[7] then return {'changed'} end
elseif tonumber(c[7] or '0') > tonumber(ARGV[8]) or tonumber(ARGV[6]) >= tonumber(c[6]) then
  return {'changed'}
end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return {'overloaded'} end

local function whole(number) return string.format('%d', number) end
local rev = whole(math.max(tonumber(c[4]), tonumber(epoch) * 4294967296) + 1)
local n = whole(tonumber(shard[4] or '0') + 1)
redis.call('HSET', KEYS[5], ARGV[6], rev .. ' ' .. ARGV[9])
redis.call('ZADD', KEYS[6], rev, ARGV[6])
if tonumber(ARGV[6]) < tonumber(c[6]) then redis.call('ZADD', KEYS[8], ARGV[6], ARGV[6]) end
if ARGV[11] == '1' then redis.call('ZADD', KEYS[7], ARGV[6], ARGV[6]) end
for name in string.gmatch(ARGV[14], '[^\n]+') do redis.call('ZREM', KEYS[9], name .. '\0' .. string.format('%016d', tonumber(ARGV[6]))) end
redis.call('HSET', KEYS[3], 'rev', rev)
redis.call('HSET', KEYS[1], 'n', n)
redis.call('XADD', KEYS[2], epoch .. '-' .. n, 'c', ARGV[3], 'r', rev, 'v', c[5], 't', ARGV[1], 'q', ARGV[6], 'b', ARGV[9], 'x', ARGV[10])
return {'done', rev}
