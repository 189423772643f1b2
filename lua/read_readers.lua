-- Reads which members have read up to a message that was there after they had joined.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 members (hash), 4 marks (hash).
-- ARGV: 1 seq.
-- RETURNS: here (user and mark as a flat list; empty where one of a pair blocks the other) | cold | stale_epoch.
-- WHY: memberships and watermarks of one moment; who left a moment ago is no reader, who came later never was one.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'block_low', 'block_high')
if c[1] ~= shard[1] then return {'cold'} end
if (c[2] or '') ~= '' or (c[3] or '') ~= '' then return {'here', {}} end
local seq, found = tonumber(ARGV[1]), {}
local members, marks = redis.call('HGETALL', KEYS[3]), {}
local all = redis.call('HGETALL', KEYS[4])
for i = 1, #all, 2 do marks[all[i]] = all[i + 1] end
for i = 1, #members, 2 do
  local mark, joined = marks[members[i]], tonumber(string.match(members[i + 1], '^%a %d+ (%d+)'))
  if mark and joined < seq and tonumber(string.match(mark, '^(%d+)')) >= seq then
    found[#found + 1] = members[i]
    found[#found + 1] = mark
  end
end
return {'here', found}
