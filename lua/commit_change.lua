-- Applies a decision about a conversation (made, joined, left, renamed) with its timeline messages and events, whole or not at all.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 members (hash), 5 marks (hash), 6 window (hash), 7 revs (sorted set),
--       8 uncounted (sorted set), 9 left (list), 10 mentions (sorted set).
-- ARGV: 1 now (ms), 2 outbox length above which changes are refused (entries), 3 conversation, 4 membership version (the rev of the last
--       change of this kind) the decision was made on, 5 request id, 6 how many steps; then for each step: message JSON ('' if none), change JSON, how many head fields, those as
--       name and value, how many member acts, those as verb (join|role|leave), user, role (o|m).
-- RETURNS: done (rev, head) | changed | cold | closed | lease_used_up | overloaded | stale_epoch.
-- WHY: a membership and the events that tell of it must never be seen apart; the version makes a decision on old facts void, and the
--      request id makes a repetition by a client that never got the answer harmless.
local now, outbox_max = tonumber(ARGV[1]), tonumber(ARGV[2])
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch, n = shard[1], tonumber(shard[4] or '0')
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'state', 'mver', 'next', 'lease_to', 'rev', 'updated_at', 'mcount', 'last_request',
  'head')
if c[1] ~= epoch then return {'cold'} end
if c[9] == ARGV[5] then return {'done', c[6], c[10]} end
if c[2] ~= 'open' then return {'closed'} end
if c[3] ~= ARGV[4] then return {'changed'} end
local steps, messages, at = tonumber(ARGV[6]), 0, 7
for _ = 1, steps do
  if ARGV[at] ~= '' then messages = messages + 1 end
  at = at + 3 + 2 * tonumber(ARGV[at + 2])
  at = at + 1 + 3 * tonumber(ARGV[at])
end
local seq, rev = tonumber(c[4]), math.max(tonumber(c[6]), tonumber(epoch) * 4294967296)
if seq + messages - 1 > tonumber(c[5]) then return {'lease_used_up'} end
if redis.call('XLEN', KEYS[2]) + steps > outbox_max then return {'overloaded'} end

local function whole(number) return string.format('%d', number) end
local mcount, head = tonumber(c[8]), c[10]
at = 7
for _ = 1, steps do
  local json, change, own = ARGV[at], ARGV[at + 1], '0'
  rev, n = rev + 1, n + 1
  local r = whole(rev)
  if json ~= '' then
    own, head = whole(seq), whole(seq)
    redis.call('HSET', KEYS[6], own, r .. ' ' .. json)
    redis.call('ZADD', KEYS[7], r, own)
    redis.call('ZADD', KEYS[8], own, own)
    seq = seq + 1
  end
  local fields = tonumber(ARGV[at + 2])
  for f = 1, fields do redis.call('HSET', KEYS[3], ARGV[at + 1 + 2 * f], ARGV[at + 2 + 2 * f]) end
  at = at + 3 + 2 * fields
  local acts = tonumber(ARGV[at])
  for act = 1, acts do
    local verb, user, role = ARGV[at + 3 * act - 2], ARGV[at + 3 * act - 1], ARGV[at + 3 * act]
    local record = redis.call('HGET', KEYS[4], user)
    if verb == 'join' then
      redis.call('HSET', KEYS[4], user, role .. ' ' .. ARGV[1] .. ' ' .. own .. ' ' .. r)
      redis.call('HSET', KEYS[5], user, head .. ' ' .. ARGV[1])
      mcount = mcount + 1
    elseif record and verb == 'role' then
      redis.call('HSET', KEYS[4], user, role .. string.sub(record, 2))
    elseif record then
      redis.call('RPUSH', KEYS[9], string.match(record, '^%S+ %S+ %S+ (%d+)') .. ' ' .. r .. ' ' .. user)
      redis.call('HDEL', KEYS[4], user)
      redis.call('ZREMRANGEBYLEX', KEYS[10], '[' .. user .. '\0', '(' .. user .. '\1')
      mcount = mcount - 1
    end
  end
  at = at + 1 + 3 * acts
  local id = epoch .. '-' .. whole(n)
  if json ~= '' then
    redis.call('XADD', KEYS[2], id, 'c', ARGV[3], 'r', r, 'v', r, 't', ARGV[1], 'q', own, 'b', json, 'x', change)
  else
    redis.call('XADD', KEYS[2], id, 'c', ARGV[3], 'r', r, 'v', r, 't', ARGV[1], 'x', change)
  end
end
redis.call('HSET', KEYS[3], 'made', '1', 'next', whole(seq), 'head', head, 'rev', whole(rev), 'mver', whole(rev), 'mcount', whole(mcount),
  'updated_at', whole(math.max(tonumber(c[7]), now)), 'last_request', ARGV[5])
redis.call('HSET', KEYS[1], 'n', whole(n))
return {'done', whole(rev), head}
