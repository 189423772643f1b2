#!lua flags=allow-oom,no-writes
-- Reads who belongs to a conversation, and who left it lately.
-- KEYS: 1 head (hash), 2 members (hash), 3 left (list).
-- ARGV: none.
-- RETURNS: here (membership version, flat list of user and member record, list of ended intervals) | cold.
-- WHY: read one after the other, somebody who leaves and comes back in between would be missed or counted for the time in between.
local version = redis.call('HGET', KEYS[1], 'mver')
if not version then return {'cold'} end
return {'here', version, redis.call('HGETALL', KEYS[2]), redis.call('LRANGE', KEYS[3], 0, -1)}
