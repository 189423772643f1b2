-- Lets a sign of typing pass, or holds it back.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 members (hash), 4 the user's last sign here (string with a time to live).
-- ARGV: 1 user, 2 '1' types or '0' has stopped, 3 life of a sign (ms), 4 time between two that pass (ms), 5 '1' if the archive was asked
--       and knows the user as a member.
-- RETURNS: passed (rev, list of members) | passed_cold | held | not_member | cold | stale_epoch.
-- WHY: one user types at several gateways at once, and may be removed meanwhile: who is a member, what passed before and that this one
--      passes are one step. The server's own end of life measures the time, so that no gateway's clock takes part.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'made', 'rev', 'block_low', 'block_high')
local is_cold = c[1] ~= shard[1]
if is_cold and ARGV[5] ~= '1' then return {'cold'} end
if not is_cold and (c[2] ~= '1' or redis.call('HEXISTS', KEYS[3], ARGV[1]) == 0) then return {'not_member'} end
if (c[4] or '') ~= '' or (c[5] or '') ~= '' then return {'held'} end

if ARGV[2] == '1' then
  if redis.call('PTTL', KEYS[4]) > tonumber(ARGV[3]) - tonumber(ARGV[4]) then return {'held'} end
  redis.call('SET', KEYS[4], '1', 'PX', ARGV[3])
else
  if redis.call('GET', KEYS[4]) ~= '1' then return {'held'} end
  redis.call('SET', KEYS[4], '0', 'KEEPTTL')
end
if is_cold then return {'passed_cold'} end
return {'passed', c[3], redis.call('HKEYS', KEYS[3])}
