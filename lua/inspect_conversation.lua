#!lua flags=allow-oom,no-writes
-- Reads everything that Redis holds of a conversation at one moment, its newest messages only.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 members (hash), 4 marks (hash), 5 window (hash), 6 revs (sorted set), 7 uncounted (sorted set),
--       8 mentions (sorted set), 9 amended (sorted set).
-- ARGV: 1 most messages, 2 most entries of every sorted set.
-- RETURNS: here (head fields as a flat list, members as a flat list, marks as a flat list, first seq looked at, then for each of the newest
--          messages three: seq, window value or false, its score in revs or false, as one flat list; the seqs of revs, uncounted and amended,
--          the mentions, messages in the window) | cold | stale_epoch.
-- WHY: an audit compares these with each other; read one after the other, a living conversation would look broken.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'head', 'floor')
if c[1] ~= shard[1] then return {'cold'} end
local most, entries = tonumber(ARGV[1]), tonumber(ARGV[2])
local head, floor = tonumber(c[2] or '0') or 0, tonumber(c[3] or '1') or 1
local from, messages = math.max(floor, head - most + 1), {}
for seq = from, head do
  local s = string.format('%d', seq)
  messages[#messages + 1] = s
  messages[#messages + 1] = redis.call('HGET', KEYS[5], s)
  messages[#messages + 1] = redis.call('ZSCORE', KEYS[6], s)
end
local function newest(key) return redis.call('ZREVRANGE', key, 0, entries - 1) end
return {'here', redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3]), redis.call('HGETALL', KEYS[4]), string.format('%d', from), messages,
  newest(KEYS[6]), newest(KEYS[7]), newest(KEYS[9]), newest(KEYS[8]), redis.call('HLEN', KEYS[5])}
