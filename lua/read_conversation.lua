-- Reads a conversation as one member sees it.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 members (hash), 4 marks (hash), 5 window (hash), 6 uncounted (sorted set),
--       7 mentions (sorted set).
-- ARGV: 1 user.
-- RETURNS: here (head fields as a flat list, member record or false, mark or false, seqs after the mark and after what the user has
--          cleared that do not count, window value at the head or false, messages after both that name the user) | cold | stale_epoch.
-- WHY: head, watermark and what does not count belong to one moment; read apart, unread could come out negative. While a new epoch is not
--      open the archive may still be behind what survived: who was sent there then would take an old state for the newest.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'made', 'head')
if c[1] ~= shard[1] then return {'cold'} end
local mark = redis.call('HGET', KEYS[4], ARGV[1])
local member = redis.call('HGET', KEYS[3], ARGV[1])
local cleared = tonumber(string.match(member or '', '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)$') or '0')
local read = math.max(mark and tonumber(string.match(mark, '^(%d+)')) or 0, cleared)
return {'here', redis.call('HGETALL', KEYS[2]), member, mark,
  redis.call('ZCOUNT', KEYS[6], string.format('(%d', read), '+inf'), redis.call('HGET', KEYS[5], c[3]),
  redis.call('ZLEXCOUNT', KEYS[7], '(' .. ARGV[1] .. '\0' .. string.format('%016d', read), '(' .. ARGV[1] .. '\1')}
