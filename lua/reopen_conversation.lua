#!lua flags=allow-oom
-- Takes back the closing of a conversation whose lease was not touched.
-- KEYS: 1 head (hash).
-- ARGV: 1 token of whoever closed.
-- RETURNS: open | other.
-- WHY: only who closed it knows that its lease has not ended; anybody else's opening would give out numbers of an ended lease.
if redis.call('HGET', KEYS[1], 'closing') ~= ARGV[1] then return {'other'} end
redis.call('HDEL', KEYS[1], 'closing', 'closing_at')
redis.call('HSET', KEYS[1], 'state', 'open')
return {'open'}
