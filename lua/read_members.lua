-- Reads who belongs to a conversation.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 members (hash), 4 marks (hash).
-- ARGV: 1 user.
-- RETURNS: here (head fields as a flat list, users and member records as a flat list, the user's mark or false) | cold | stale_epoch.
-- WHY: a decision about members is made on all of them and on the version they have together.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
if redis.call('HGET', KEYS[2], 'lease_epoch') ~= shard[1] then return {'cold'} end
return {'here', redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]), redis.call('HGET', KEYS[4], ARGV[1])}
