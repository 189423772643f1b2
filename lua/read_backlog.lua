#!lua flags=allow-oom,no-writes
-- Reads the next entries that the archive has not got, together with the epoch and the server they are read from.
-- KEYS: 1 shard info (hash), 2 outbox (stream).
-- ARGV: 1 how many (entries).
-- RETURNS: backlog (epoch, live replid, archived or false, entries) | stale_epoch.
-- WHY: the archive accepts a batch only from the server that the shard's epoch names. Read apart, entries of a server that was just
--      replaced could be handed in under the name of its successor.
local s = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'archived')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not s[1] or s[2] ~= live then return {'stale_epoch'} end
return {'backlog', s[1], live, s[3], redis.call('XRANGE', KEYS[2], s[3] and '(' .. s[3] or '-', '+', 'COUNT', ARGV[1])}
