-- Lets a conversation give out more numbers, as the archive has granted.
-- KEYS: 1 head (hash).
-- ARGV: 1 epoch, 2 last seq of the lease.
-- RETURNS: extended | other.
-- WHY: the end only moves up, so that two gateways that ask at the same time cannot take back what the later one was granted.
local c = redis.call('HMGET', KEYS[1], 'lease_epoch', 'lease_to')
if c[1] ~= ARGV[1] then return {'other'} end
if tonumber(c[2]) < tonumber(ARGV[2]) then redis.call('HSET', KEYS[1], 'lease_to', ARGV[2]) end
return {'extended'}
