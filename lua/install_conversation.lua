-- Brings a conversation into Redis, still closed.
-- KEYS: 1 shard info (hash), 2 warm (sorted set), 3 head (hash), 4 members (hash), 5 marks (hash), 6 window (hash), 7 revs (sorted set),
--       8 uncounted (sorted set), 9 keys0 (hash), 10 keys1 (hash), 11 left (list), 12 amended (sorted set), 13 mentions (sorted set).
-- ARGV: 1 epoch, 2 now (ms), 3 conversation; then six lists, each its length and its items: head fields (name, value), members (user,
--       record), marks (user, mark), messages (seq, rev, window value), uncounted seqs, mentions (user, NUL, seq of 16 digits).
-- RETURNS: installed | present | stale_epoch.
-- WHY: whoever asks first installs what the archive holds; a second gateway that comes later must not put the old head over a newer one.
--      What another epoch left behind is thrown away: its numbers were closed.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if shard[1] ~= ARGV[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
if redis.call('HGET', KEYS[3], 'lease_epoch') == ARGV[1] then return {'present'} end
for k = 3, 13 do redis.call('UNLINK', KEYS[k]) end
local at = 4
local function each(width, act)
  local count = tonumber(ARGV[at])
  for i = 0, count - 1 do act(at + 1 + i * width) end
  at = at + 1 + count * width
end
each(2, function(i) redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end)
each(2, function(i) redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1]) end)
each(2, function(i) redis.call('HSET', KEYS[5], ARGV[i], ARGV[i + 1]) end)
each(3, function(i)
  redis.call('HSET', KEYS[6], ARGV[i], ARGV[i + 2])
  redis.call('ZADD', KEYS[7], ARGV[i + 1], ARGV[i])
end)
each(1, function(i) redis.call('ZADD', KEYS[8], ARGV[i], ARGV[i]) end)
each(1, function(i) redis.call('ZADD', KEYS[13], 0, ARGV[i]) end)
redis.call('HSET', KEYS[3], 'state', 'closed', 'lease_epoch', ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
return {'installed'}
