#!lua flags=allow-oom
-- Closes an idle conversation, so that nothing is written to it while it leaves Redis.
-- KEYS: 1 shard info (hash), 2 warm (sorted set), 3 head (hash).
-- ARGV: 1 conversation, 2 token of whoever closes, 3 now (ms), 4 last use after which it counts as used (ms), 5 closing begun after which
--       another one still works on it (ms).
-- RETURNS: closed (lease epoch, head, rev, made, shard epoch, shard n, '1' if it was closing before) | used | opening | busy | absent |
--          stale_epoch.
-- WHY: a message that comes between the look at a conversation and the end of its lease would get a number that is given out again.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'head', 'rev', 'made', 'state', 'updated_at', 'closing', 'closing_at')
if not c[1] then
  redis.call('ZREM', KEYS[2], ARGV[1])
  return {'absent'}
end
if c[7] then
  if c[7] ~= ARGV[2] and tonumber(c[8] or '0') > tonumber(ARGV[5]) then return {'busy'} end
else
  if c[1] == shard[1] and c[5] ~= 'open' then
    redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
    return {'opening'}
  end
  local used = math.max(tonumber(c[6] or '0'), tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or '0'))
  if used > tonumber(ARGV[4]) then
    redis.call('ZADD', KEYS[2], string.format('%d', used), ARGV[1])
    return {'used'}
  end
end
redis.call('HSET', KEYS[3], 'state', 'closed', 'closing', ARGV[2], 'closing_at', ARGV[3])
-- Should the one who closes it die, it is the first that others find, however lately it was used.
redis.call('ZADD', KEYS[2], '0', ARGV[1])
return {'closed', c[1], c[2], c[3], c[4], shard[1], shard[3], c[7] and '1' or '0'}
