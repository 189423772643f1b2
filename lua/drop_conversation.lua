#!lua flags=allow-oom
-- Takes a closed conversation, whose lease has ended, out of Redis.
-- KEYS: 1 warm (sorted set), 2 head (hash), 3 members (hash), 4 marks (hash), 5 window (hash), 6 revs (sorted set), 7 uncounted (sorted set),
--       8 keys0 (hash), 9 keys1 (hash), 10 left (list), 11 amended (sorted set), 12 mentions (sorted set).
-- ARGV: 1 conversation, 2 token of whoever closed it.
-- RETURNS: dropped | other.
-- WHY: between the end of the lease and this step somebody else may have finished and the conversation may live again under a new lease.
if redis.call('HGET', KEYS[2], 'closing') ~= ARGV[2] then return {'other'} end
for k = 2, 12 do redis.call('UNLINK', KEYS[k]) end
redis.call('ZREM', KEYS[1], ARGV[1])
return {'dropped'}
