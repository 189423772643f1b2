#!lua flags=allow-oom
-- Takes back the closing of a conversation whose lease was not touched.
-- KEYS: 1 warm (sorted set), 2 head (hash).
-- ARGV: 1 conversation, 2 token of whoever closed, 3 now (ms).
-- RETURNS: open | other.
-- WHY: only who closed it knows that its lease has not ended; anybody else's opening would give out numbers of an ended lease.
if redis.call('HGET', KEYS[2], 'closing') ~= ARGV[2] then return {'other'} end
redis.call('HDEL', KEYS[2], 'closing', 'closing_at')
redis.call('HSET', KEYS[2], 'state', 'open')
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return {'open'}
