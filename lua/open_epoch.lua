#!lua flags=allow-oom
-- Looks at a shard's epoch, installs a new one (closed), or opens it.
-- KEYS: 1 shard info (hash).
-- ARGV: 1 look|install|open, 2 epoch ('' to look).
-- RETURNS: shard (epoch or false, replid of its opening or false, state or false, live replid) | installed | open | other.
-- WHY: a restart or a promotion may have lost writes without a trace in the data; the server's own replication id is the trace. The epoch
--      is decided in Postgres, once, and bound here to the server on which it was opened. Also on a full server: what makes room there,
--      the archive, waits for the epoch.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if ARGV[1] == 'look' then return {'shard', shard[1], shard[2], shard[3], live} end
local epoch = tonumber(shard[1] or '-1')
if ARGV[1] == 'install' then
  if epoch > tonumber(ARGV[2]) then return {'other'} end
  if epoch < tonumber(ARGV[2]) then
    redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'replid', live, 'state', 'closed', 'n', '0')
  elseif shard[2] ~= live then
    return {'other'}
  end
  return {'installed'}
end
if epoch ~= tonumber(ARGV[2]) or shard[2] ~= live then return {'other'} end
redis.call('HSET', KEYS[1], 'state', 'open')
return {'open'}
