-- Opens a conversation whose lease the archive has marked as installed.
-- KEYS: 1 shard info (hash), 2 head (hash).
-- ARGV: 1 epoch, 2 first seq of the lease.
-- RETURNS: open | closing | other | stale_epoch.
-- WHY: between installing and the mark another gateway may get the same lease; only after the mark may numbers be given out of it.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if shard[1] ~= ARGV[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'lease_from', 'state', 'closing')
if c[1] ~= ARGV[1] or c[2] ~= ARGV[2] then return {'other'} end
if c[4] then return {'closing'} end
if c[3] ~= 'open' then redis.call('HSET', KEYS[2], 'state', 'open') end
return {'open'}
