-- Numbers and keeps a run of messages of one shard, each by itself: one refused send does not touch its neighbours.
-- KEYS: 1 shard info (hash), 2 outbox (stream); then for each send 8: head (hash), members (hash), marks (hash), window (hash),
--       revs (sorted set), keys0 (hash), keys1 (hash), mentions (sorted set).
-- ARGV: 1 now (ms), 2 outbox length above which sends are refused (entries), 3 how many sends, 4 messages a second that one conversation
--       takes on average (0: as many as come), 5 messages it takes at once after a pause; then for each send 13: conversation,
--       sender, client id, fingerprint, time inside the key (ms, '' if none), '1' if the archive was asked for this key, message JSON,
--       pair JSON when a peer was named ('' if not), low user and high user of the pair, change JSON for a conversation that is made now,
--       words: refuse (say whether the caller may, but do not write), open (the sender needs no membership), and the users that the
--       message names (one a line).
-- RETURNS: one list per send, first a word: sent (seq, rev, numbers left in the lease, live replid, 1 if it made the conversation,
--          whole tokens left in its bucket) | replayed (seq, window value or false) | conflict | cold | closed | unmade | ask_archive |
--          not_member | dissolved | stranger_named | refused ('1' if it would be blocked) | blocked | limited (ms until the conversation
--          takes one more) | lease_used_up | overloaded | stale_epoch.
-- WHY: two gateways that read a counter and then write it give one number twice. Here looking up the key, checking the membership,
--      numbering and appending are one step; and a server that restarted or was promoted (another master_replid) may have forgotten
--      numbers, so it gives none before a new epoch is opened.
local now, outbox_max, count = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local rate, size = tonumber(ARGV[4]), tonumber(ARGV[5])
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local stale = not shard[1] or shard[2] ~= live or shard[3] ~= 'open'
local epoch, n = shard[1], tonumber(shard[4] or '0')
local length = stale and 0 or redis.call('XLEN', KEYS[2])

local function whole(number) return string.format('%d', number) end

local function send(k, a)
  if stale then return {'stale_epoch'} end
  local head, members, marks, window, revs = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]
  local conversation, sender, key, print = ARGV[a], ARGV[a + 1], ARGV[a + 1] .. '\0' .. ARGV[a + 2], ARGV[a + 3]
  local c = redis.call('HMGET', head, 'lease_epoch', 'state', 'made', 'kgen', 'keys_all', 'keys_since', 'next', 'lease_to', 'rev',
    'updated_at', 'mver', 'dissolved', 'bucket', 'block_low', 'block_high')
  if c[1] ~= epoch then return {'cold'} end
  local current = KEYS[k + 5 + tonumber(c[4])]
  local known = redis.call('HGET', KEYS[k + 5], key) or redis.call('HGET', KEYS[k + 6], key)
  if known then
    local seq, first = string.match(known, '^(%d+) (.*)$')
    if first ~= print then return {'conflict'} end
    return {'replayed', seq, redis.call('HGET', window, seq)}
  end
  if c[2] ~= 'open' then return {'closed'} end
  local making = c[3] ~= '1'
  if making and ARGV[a + 7] == '' then return {'unmade'} end
  local stamp = tonumber(ARGV[a + 4])
  local decidable = c[5] == '1' or ARGV[a + 5] == '1' or (stamp and stamp > tonumber(c[6]) and stamp <= now + 60000)
  if not decidable then return {'ask_archive'} end
  if making then
    if sender ~= ARGV[a + 8] and sender ~= ARGV[a + 9] then return {'not_member'} end
  elseif not string.find(ARGV[a + 11], 'open') and redis.call('HEXISTS', members, sender) == 0 then
    return {c[12] == '1' and redis.call('HEXISTS', marks, sender) == 1 and 'dissolved' or 'not_member'}
  end
  local names = {}
  for name in string.gmatch(ARGV[a + 12], '[^\n]+') do
    local known = redis.call('HEXISTS', members, name) == 1 or (making and (name == ARGV[a + 8] or name == ARGV[a + 9]))
    if not known then return {'stranger_named'} end
    if name ~= sender then names[#names + 1] = name end
  end
  local blocked = (c[14] or '') ~= '' or (c[15] or '') ~= ''
  if string.find(ARGV[a + 11], 'refuse') then return {'refused', blocked and '1' or '0'} end
  if blocked then return {'blocked'} end
  -- The bucket that take_token.lua explains, in the head of the conversation.
  local held, at = string.match(c[13] or '', '^(%S+) (%d+)$')
  held, at = tonumber(held) or size, tonumber(at) or now
  if now > at then held = held + (now - at) * rate / 1000 end
  if now > at or at - now > 5000 then at = now end
  held = math.min(size, held)
  if rate > 0 and held < 1 then return {'limited', whole(math.ceil((1 - held) * 1000 / rate) + at - now)} end
  local seq = tonumber(c[7])
  if seq > tonumber(c[8]) then return {'lease_used_up'} end
  if length >= outbox_max then return {'overloaded'} end

  local rev = math.max(tonumber(c[9]), tonumber(epoch) * 4294967296) + 1
  local s, r, mver = whole(seq), whole(rev), c[11]
  local updated = whole(math.max(tonumber(c[10]), now))
  redis.call('HSET', head, 'next', whole(seq + 1), 'head', s, 'rev', r, 'updated_at', updated)
  if rate > 0 then redis.call('HSET', head, 'bucket', string.format('%.3f %d', held - 1, at)) end
  if making then
    mver = r
    local record = 'm ' .. whole(cjson.decode(ARGV[a + 10]).conversation.at) .. ' 0 ' .. r
    redis.call('HSET', head, 'made', '1', 'pair', ARGV[a + 7], 'created_at', string.match(record, '%d+'), 'mver', mver, 'mcount', '2')
    redis.call('HSET', members, ARGV[a + 8], record, ARGV[a + 9], record)
  end
  redis.call('HSET', window, s, r .. ' ' .. ARGV[a + 6])
  redis.call('ZADD', revs, r, s)
  redis.call('HSET', current, key, s .. ' ' .. print)
  redis.call('HSET', marks, sender, s .. ' ' .. ARGV[1])
  for _, name in ipairs(names) do redis.call('ZADD', KEYS[k + 7], 0, name .. '\0' .. string.format('%016d', seq)) end
  n, length = n + 1, length + 1
  local entry = {'c', conversation, 'r', r, 'v', mver, 't', ARGV[1], 'q', s, 'b', ARGV[a + 6]}
  if making then entry[13], entry[14] = 'x', ARGV[a + 10] end
  redis.call('XADD', KEYS[2], epoch .. '-' .. whole(n), unpack(entry))
  return {'sent', s, r, whole(tonumber(c[8]) - seq), live, making and '1' or '0', whole(math.max(0, math.floor(held - 1)))}
end

local replies, before = {}, n
for i = 1, count do
  replies[i] = send(3 + (i - 1) * 8, 6 + (i - 1) * 13)
end
if n > before then redis.call('HSET', KEYS[1], 'n', whole(n)) end
return replies
