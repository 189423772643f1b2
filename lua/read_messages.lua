-- Reads recent messages of a conversation, together with the caller's membership.
-- KEYS: 1 shard info (hash), 2 head (hash), 3 members (hash), 4 window (hash), 5 revs (sorted set), 6 amended (sorted set).
-- ARGV: 1 user (empty: whoever, for what is no member's doing), 2 down|up|rev|at, 3 how many at most; down: 4 first seq, going down; up: 4 first seq, going up; rev: 4 rev, exclusive, going
--       up; at: 4 and so on, seqs.
-- RETURNS: here (head fields as a flat list, member record or false, list of seq and window value in the order read, the same of
--          messages below the window that were changed and are not archived yet; only going down and up) | cold | stale_epoch.
-- WHY: the page and the right to see it belong to one moment: who was removed a moment ago gets nothing.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local c = redis.call('HMGET', KEYS[2], 'lease_epoch', 'floor', 'head', 'voids')
if c[1] ~= shard[1] then return {'cold'} end
local facts, member = redis.call('HGETALL', KEYS[2]), redis.call('HGET', KEYS[3], ARGV[1])
if not member and ARGV[1] ~= '' then return {'here', facts, false, {}, {}} end
local mode, limit, found = ARGV[2], tonumber(ARGV[3]), {}
local function take(seqs)
  if #seqs == 0 then return end
  local values = redis.call('HMGET', KEYS[4], unpack(seqs))
  for i, value in ipairs(values) do
    if value and #found < 2 * limit then
      found[#found + 1] = seqs[i]
      found[#found + 1] = value
    end
  end
end

if mode == 'at' then
  local seqs = {}
  for i = 4, #ARGV do seqs[#seqs + 1] = ARGV[i] end
  take(seqs)
elseif mode == 'rev' then
  take(redis.call('ZRANGEBYSCORE', KEYS[5], '(' .. ARGV[4], '+inf', 'LIMIT', 0, limit))
else
  local step = mode == 'down' and -1 or 1
  local floor, head = tonumber(c[2]), tonumber(c[3])
  local seq = tonumber(ARGV[4])
  seq = mode == 'down' and math.min(seq, head) or math.max(seq, floor)
  local gaps = {}
  for from, to in string.gmatch(c[4] or '', '%[(%d+),(%d+)%]') do gaps[#gaps + 1] = {tonumber(from), tonumber(to)} end
  while #found < 2 * limit and seq >= floor and seq <= head do
    local seqs = {}
    while #seqs < 100 and seq >= floor and seq <= head do
      local gap = false
      for _, g in ipairs(gaps) do
        if seq >= g[1] and seq <= g[2] then gap = g end
      end
      if gap then
        seq = step < 0 and gap[1] - 1 or gap[2] + 1
      else
        seqs[#seqs + 1] = string.format('%d', seq)
        seq = seq + step
      end
    end
    take(seqs)
  end
end
local amended = {}
if mode == 'down' or mode == 'up' then
  local seqs = redis.call('ZRANGE', KEYS[6], 0, 999)
  local values = #seqs > 0 and redis.call('HMGET', KEYS[4], unpack(seqs)) or {}
  for i, value in ipairs(values) do
    if value then
      amended[#amended + 1] = seqs[i]
      amended[#amended + 1] = value
    end
  end
end
return {'here', facts, member, found, amended}
