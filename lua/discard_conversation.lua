#!lua flags=allow-oom
-- Takes away a conversation that was installed under a lease that had ended or was lost by then.
-- KEYS: 1 warm (sorted set), 2 head (hash), 3 members (hash), 4 marks (hash), 5 window (hash), 6 revs (sorted set), 7 uncounted (sorted set),
--       8 keys0 (hash), 9 keys1 (hash), 10 left (list), 11 amended (sorted set), 12 mentions (sorted set).
-- ARGV: 1 conversation, 2 epoch of the lease, 3 first seq of the lease.
-- RETURNS: discarded | other.
-- WHY: a gateway that sleeps between taking a lease and installing it may wake after others used the lease up and cooled the
--      conversation. Opened, its copy would give their numbers out again; left closed, it would bar the way for good.
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'lease_from', 'state', 'closing')
if c[1] ~= ARGV[2] or c[2] ~= ARGV[3] or c[3] ~= 'closed' or c[4] then return {'other'} end
for k = 2, 12 do redis.call('UNLINK', KEYS[k]) end
redis.call('ZREM', KEYS[1], ARGV[1])
return {'discarded'}
