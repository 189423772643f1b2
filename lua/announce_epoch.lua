#!lua flags=allow-oom
-- Puts a resync mark for the members of each of these conversations at the beginning of a shard's new epoch.
-- KEYS: 1 shard info (hash), 2 outbox (stream).
-- ARGV: 1 epoch, 2 rev at which the epoch begins, 3 now (ms), 4 change JSON, then conversations.
-- RETURNS: announced | other.
-- WHY: what a lost server had accepted and not archived is gone, and its numbers are void; members whose own logs lived elsewhere would
--      never learn of it. It is written while the shard is closed, so that it comes before everything else of the epoch.
local s = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if s[1] ~= ARGV[1] or s[2] ~= live or s[3] ~= 'closed' then return {'other'} end
local n = tonumber(s[4] or '0')
for i = 5, #ARGV do
  n = n + 1
  local id = ARGV[1] .. '-' .. string.format('%d', n)
  redis.call('XADD', KEYS[2], id, 'c', ARGV[i], 'r', ARGV[2], 'v', '0', 't', ARGV[3], 'x', ARGV[4])
end
redis.call('HSET', KEYS[1], 'n', string.format('%d', n))
return {'announced'}
