-- Looks up a message by its sender's idempotency key.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 keys0 (hash), 4 keys1 (hash), 5 window (hash).
-- ARGV: 1 sender, 2 client id.
-- RETURNS: found (seq, fingerprint, window value or false) | unknown ('1' if Redis holds every key of the conversation) | cold | stale_epoch.
-- WHY: the key and the message it names belong to one moment.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'keys_all')
if c[1] ~= shard[1] then return {'cold'} end
local key = ARGV[1] .. '\0' .. ARGV[2]
local known = redis.call('HGET', KEYS[3], key) or redis.call('HGET', KEYS[4], key)
if not known then return {'unknown', c[2]} end
local seq, print = string.match(known, '^(%d+) (.*)$')
return {'found', seq, print, redis.call('HGET', KEYS[5], seq)}
