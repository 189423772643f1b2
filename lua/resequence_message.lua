#!lua flags=allow-oom
-- Gives a message whose number another one has in the archive a new number above everything known, and brings in what stands there.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 members (hash), 5 marks (hash), 6 window (hash), 7 revs (sorted set),
--       8 uncounted (sorted set), 9 keys0 (hash), 10 keys1 (hash), 11 amended (sorted set), 12 mentions (sorted set).
-- ARGV: 1 now (ms), 2 conversation, 3 first seq of the lease under which the archive was asked, 4 old seq, 5 message id, 6 message JSON as it
--       was accepted, 7 change JSON of the new number, 8 change JSON of an answer that names it, 9 '1' if nothing stands in the archive
--       above the messages given; then, ascending, those that stand at the old seq and above the head: seq, JSON.
-- RETURNS: moved (new seq) | done (new seq, given before) | adopted (more to come) | other (another lease, or not in Redis) | closed |
--          lease_used_up | stale_epoch.
-- WHY: members were told of one message on this number and Postgres has another. Number, key, window and events of both change in one step,
--      once, whoever tries and however often: what was moved is remembered in the head for as long as the lease, and a caller that asked
--      the archive under an older lease asks again. Numbers that the archive knows are passed in the same step, so none meets them again.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch, n, old = shard[1], tonumber(shard[4] or '0'), tonumber(ARGV[4])
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'lease_from', 'state', 'next', 'lease_to', 'rev', 'mver', 'kgen', 'floor', 'voids',
  'updated_at', 'moved:' .. ARGV[5])
if c[1] ~= epoch or c[2] ~= ARGV[3] then return {'other'} end
if c[12] then return {'done', c[12]} end
if c[3] ~= 'open' then return {'closed'} end
local start, next, last = tonumber(c[4]), tonumber(c[4]), tonumber(ARGV[#ARGV - 1])
if math.max(start, last + 1) > tonumber(c[5]) then return {'lease_used_up'} end
local rev, floor, voids = math.max(tonumber(c[6]), tonumber(epoch) * 4294967296), tonumber(c[9]), c[10] or '[]'
local current = KEYS[9 + tonumber(c[8])]

local function whole(number) return string.format('%d', number) end
local function mark(user) return tonumber(string.match(redis.call('HGET', KEYS[5], user) or '0', '^%d+')) end

-- Puts a message on a number and tells of it.
local function write(seq, json, change)
  rev, n = rev + 1, n + 1
  local r, s = whole(rev), whole(seq)
  redis.call('HSET', KEYS[6], s, r .. ' ' .. json)
  redis.call('ZADD', KEYS[7], r, s)
  if seq < floor then redis.call('ZADD', KEYS[11], s, s) end
  redis.call('XADD', KEYS[2], epoch .. '-' .. whole(n), 'c', ARGV[2], 'r', r, 'v', c[7], 't', ARGV[1], 'q', s, 'b', json, 'x', change)
end

-- Everything that hangs on a message's number: whether it counts, its sender's watermark and key, whom it names.
local function settle(seq, json, takes_key)
  local m, s = cjson.decode(json), whole(seq)
  if m.t == 'system' or m.dat then redis.call('ZADD', KEYS[8], s, s) else redis.call('ZREM', KEYS[8], s) end
  if m.k then
    if mark(m.s) < seq then redis.call('HSET', KEYS[5], m.s, s .. ' ' .. whole(m.at)) end
    local key = m.s .. '\0' .. m.k
    local known = redis.call('HEXISTS', KEYS[9], key) + redis.call('HEXISTS', KEYS[10], key) > 0
    if takes_key then redis.call('HDEL', KEYS[9], key) redis.call('HDEL', KEYS[10], key) end
    if takes_key or not known then redis.call('HSET', current, key, s .. ' ' .. (m.f or '')) end
  end
  for _, name in ipairs(m.mt or {}) do
    if takes_key then redis.call('ZREM', KEYS[12], name .. '\0' .. string.format('%016d', old)) end
    if not m.dat and name ~= m.s and mark(name) < seq and redis.call('HEXISTS', KEYS[4], name) == 1 then
      redis.call('ZADD', KEYS[12], 0, name .. '\0' .. string.format('%016d', seq))
    end
  end
end

local stands
for i = 10, #ARGV, 2 do
  local seq, void = tonumber(ARGV[i]), '{}'
  if seq == old and old < start then stands = ARGV[i + 1] end
  if seq >= start then
    if seq > next then
      local range = '[' .. whole(next) .. ',' .. whole(seq - 1) .. ']'
      voids, void = voids == '[]' and '[' .. range .. ']' or string.sub(voids, 1, -2) .. ',' .. range .. ']', '{"voids":[' .. range .. ']}'
    end
    settle(seq, ARGV[i + 1], false)
    write(seq, ARGV[i + 1], void)
    next = seq + 1
  end
end
local answer = {'adopted'}
if ARGV[9] == '1' then
  local rest, json = redis.call('HGET', KEYS[6], ARGV[4]), ARGV[6]
  local ours = rest and string.match(rest, '^%d+ {"id":"([^"]+)"') == ARGV[5]
  -- What was changed since it was accepted is in the window alone.
  if ours then json = string.match(rest, '^%d+ (.*)$') end
  local s, answers = whole(next), '"re":' .. ARGV[4] .. '([,}])'
  settle(next, json, true)
  write(next, json, ARGV[7])
  if stands then
    settle(old, stands, false)
    write(old, stands, '{}')
  end
  for seq = old + 1, ours and start - 1 or old do
    local value = redis.call('HGET', KEYS[6], whole(seq))
    if value and string.find(value, answers) then
      write(seq, string.gsub(string.match(value, '^%d+ (.*)$'), answers, '"re":' .. s .. '%1', 1), ARGV[8])
    end
  end
  redis.call('HSET', KEYS[3], 'moved:' .. ARGV[5], s)
  next, answer = next + 1, {'moved', s}
end
redis.call('HSET', KEYS[3], 'next', whole(next), 'head', whole(next - 1), 'rev', whole(rev), 'voids', voids,
  'updated_at', whole(math.max(tonumber(c[11]), tonumber(ARGV[1]))))
redis.call('HSET', KEYS[1], 'n', whole(n))
return answer
