#!lua flags=allow-oom
-- Takes the key from a message whose key names another one in the archive, and takes its words back where they are the same.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 window (hash), 5 revs (sorted set), 6 uncounted (sorted set), 7 keys0
--       (hash), 8 keys1 (hash), 9 amended (sorted set), 10 mentions (sorted set).
-- ARGV: 1 now (ms), 2 conversation, 3 seq, 4 rev that the message has, 5 message JSON without its key, 6 change JSON, 7 the key (sender, NUL,
--       client id), 8 what the key names: seq and fingerprint, 9 '1' if the message does not count as unread any more, 10 users that the
--       message no longer names (one a line).
-- RETURNS: done | changed | cold | closed | stale_epoch.
-- WHY: a key names one message for ever. The number was given out and told, so it keeps a message; but the key must lead to the first one
--      from the very step on in which this one loses it.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch = shard[1]
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'state', 'rev', 'mver', 'kgen', 'floor')
if c[1] ~= epoch then return {'cold'} end
if c[2] ~= 'open' then return {'closed'} end
local value = redis.call('HGET', KEYS[4], ARGV[3])
if not value or string.match(value, '^%d+') ~= ARGV[4] then return {'changed'} end

local function whole(number) return string.format('%d', number) end
local rev = whole(math.max(tonumber(c[3]), tonumber(epoch) * 4294967296) + 1)
local n = whole(tonumber(shard[4] or '0') + 1)
redis.call('HSET', KEYS[4], ARGV[3], rev .. ' ' .. ARGV[5])
redis.call('ZADD', KEYS[5], rev, ARGV[3])
if tonumber(ARGV[3]) < tonumber(c[6]) then redis.call('ZADD', KEYS[9], ARGV[3], ARGV[3]) end
if ARGV[9] == '1' then redis.call('ZADD', KEYS[6], ARGV[3], ARGV[3]) end
for name in string.gmatch(ARGV[10], '[^\n]+') do
  redis.call('ZREM', KEYS[10], name .. '\0' .. string.format('%016d', tonumber(ARGV[3])))
end
redis.call('HDEL', KEYS[7], ARGV[7])
redis.call('HDEL', KEYS[8], ARGV[7])
redis.call('HSET', KEYS[7 + tonumber(c[5])], ARGV[7], ARGV[8])
redis.call('HSET', KEYS[3], 'rev', rev)
redis.call('HSET', KEYS[1], 'n', n)
redis.call('XADD', KEYS[2], epoch .. '-' .. n, 'c', ARGV[2], 'r', rev, 'v', c[4], 't', ARGV[1], 'q', ARGV[3], 'b', ARGV[5], 'x', ARGV[6])
return {'done'}
