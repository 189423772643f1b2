#!lua flags=allow-oom,no-writes
-- Reads a part of the entries that Postgres refused, together with the epoch and the server they are read from.
-- KEYS: 1 shard info (hash), 2 aside (hash).
-- ARGV: 1 scan cursor ('0' to begin), 2 about how many (entries).
-- RETURNS: aside (epoch, live replid, next scan cursor, flat list of outbox id and entry) | stale_epoch.
-- WHY: like a batch of the backlog, what is tried again must name the server that holds it.
local s = redis.call('HMGET', KEYS[1], 'epoch', 'replid')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not s[1] or s[2] ~= live then return {'stale_epoch'} end
local scan = redis.call('HSCAN', KEYS[2], ARGV[1], 'COUNT', ARGV[2])
return {'aside', s[1], live, scan[1], scan[2]}
