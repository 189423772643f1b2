#!lua flags=allow-oom,no-writes
-- Reads where a shard stands: its epoch, the server it is on, its cursors and what waits.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 aside (hash).
-- RETURNS: shard (epoch or false, replid of its opening or false, state or false, live replid, n or false, dispatched or false, archived or
--          false, outbox entries, time in ms of the oldest entry or false, entries set aside).
-- ARGV: none.
-- WHY: cursors and lengths of different moments would show a backlog that never was.
local s = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n', 'dispatched', 'archived')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local at = false
local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
if first then
  for i = 1, #first[2], 2 do
    if first[2][i] == 't' then at = first[2][i + 1] end
  end
end
return {'shard', s[1], s[2], s[3], live, s[4], s[5], s[6], redis.call('XLEN', KEYS[2]), at, redis.call('HLEN', KEYS[3])}
