#!lua flags=allow-oom
-- Appends pointers to the logs of many users, each log by itself, and moves the marks of what was delivered.
-- KEYS: first the marks (string), one per partition; then for each user 3: log (stream), log info (hash), index (sorted set).
-- ARGV: 1 now (ms), 2 entries that a log keeps, 3 time before which a log keeps nothing (ms), 4 nonce for a log that is born now, 5 how many
--       marks, 6 how many deliveries; then for each mark 1: the outbox id it moves to; for each delivery 6: outbox epoch, outbox n, pointer,
--       facts as JSON ('' for none), conversation, what becomes of it in the index (touch|remove|leave); for each user: number of its mark,
--       how many deliveries, and their numbers.
-- RETURNS: delivered, then for each user a list: log epoch, gateways that want to know (separated by spaces), 1 if a log that was there
--          before had to begin again, then delivery number, entry id and the id before it, for each entry; or failed and why.
-- WHY: two owners of a shard, or one that did not hear the answer, deliver the same entries again. What is at or below the mark is passed
--      over in the same step that appends, so that no log ever holds an entry twice; and a log of the wrong type costs its user alone.
local now, entries_max, oldest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local mark_count, delivery_count = tonumber(ARGV[5]), tonumber(ARGV[6])
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

local function whole(number) return string.format('%d', number) end

local function is_new(mark, delivery)
  local at = 7 + mark_count + (delivery - 1) * 6
  local epoch, n = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  return epoch > mark[1] or (epoch == mark[1] and n > mark[2])
end

-- Drops the given oldest entries and remembers the last of them, so that a reader who stands before it is told.
local function trim(log, info, entries)
  local id = entries[#entries][1]
  local ms, n = string.match(id, '^(%d+)-(%d+)$')
  redis.call('XTRIM', log, 'MINID', '=', ms .. '-' .. whole(tonumber(n) + 1))
  redis.call('HSET', info, 'trimmed', id)
end

local function append(log, info, index, picks)
  local all, length = redis.pcall('HGETALL', info), redis.pcall('XLEN', log)
  local field, gateways = {}, {}
  if all.err then redis.call('DEL', info) else for i = 1, #all, 2 do field[all[i]] = all[i + 1] end end
  local last_ms, last_n = string.match(field.last or '', '^(%d+)-(%d+)$')
  local sound = field.nonce and last_ms and field.trimmed and type(length) == 'number' and (length > 0 or field.last == field.trimmed)
  local begun_again = not sound and (all.err or type(length) ~= 'number' or length > 0 or field.nonce) and '1' or '0'
  local nonce, last = field.nonce, field.last
  if not sound then
    nonce, last, last_ms, last_n, length = ARGV[4], '0-0', 0, 0, 0
    redis.call('DEL', log)
    redis.call('HSET', info, 'nonce', nonce, 'last', last, 'trimmed', last)
  end
  local ms, n, reply = tonumber(last_ms), tonumber(last_n), {}
  local minute_before = math.floor(ms / 60000)
  for _, delivery in ipairs(picks) do
    local at = 7 + mark_count + (delivery - 1) * 6
    if now > ms then ms, n = now, 0 else n = n + 1 end
    local id = whole(ms) .. '-' .. whole(n)
    if ARGV[at + 3] == '' then redis.call('XADD', log, id, 'p', ARGV[at + 2])
    else redis.call('XADD', log, id, 'p', ARGV[at + 2], 'd', ARGV[at + 3]) end
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = whole(delivery), id, last
    last = id
    local change, indexed = ARGV[at + 5], nil
    if change == 'touch' then indexed = redis.pcall('ZADD', index, 'GT', whole(ms * 4096 + math.min(n, 4095)), ARGV[at + 4])
    elseif change == 'remove' then indexed = redis.pcall('ZREM', index, ARGV[at + 4]) end
    if type(indexed) == 'table' and indexed.err then redis.call('DEL', index) end
  end
  redis.call('HSET', info, 'last', last)
  length = length + #picks
  -- Both bounds are looked at now and then only: the first 64 entries late, the age once a minute.
  if length > entries_max + 64 then
    trim(log, info, redis.call('XRANGE', log, '-', '+', 'COUNT', math.min(length - entries_max, 1000)))
  elseif minute_before ~= math.floor(ms / 60000) then
    local old = redis.call('XRANGE', log, '-', whole(math.max(oldest - 1, 0)), 'COUNT', 1000)
    if #old > 0 then trim(log, info, old) end
  end
  for name, until_ms in pairs(field) do
    local gateway = string.match(name, '^g:(.+)$')
    if gateway and tonumber(until_ms) and tonumber(until_ms) > now then gateways[#gateways + 1] = gateway
    elseif gateway then redis.call('HDEL', info, name) end
  end
  return {string.sub(redis.sha1hex(nonce .. replid .. log), 1, 12), table.concat(gateways, ' '), begun_again, unpack(reply)}
end

local marks, replies = {}, {'delivered'}
for i = 1, mark_count do
  local epoch, n = string.match(redis.call('GET', KEYS[i]) or '', '^(%d+)-(%d+)$')
  marks[i] = {tonumber(epoch or -1), tonumber(n or -1)}
end
local at, key = 7 + mark_count + delivery_count * 6, mark_count + 1
while at <= #ARGV do
  local mark, picks = marks[tonumber(ARGV[at])], {}
  for i = 1, tonumber(ARGV[at + 1]) do
    local delivery = tonumber(ARGV[at + 1 + i])
    if is_new(mark, delivery) then picks[#picks + 1] = delivery end
  end
  local done, reply = true, {}
  if #picks > 0 then done, reply = pcall(append, KEYS[key], KEYS[key + 1], KEYS[key + 2], picks) end
  replies[#replies + 1] = done and reply or {'failed', type(reply) == 'table' and reply.err or tostring(reply)}
  at, key = at + 2 + tonumber(ARGV[at + 1]), key + 3
end
for i = 1, mark_count do
  local epoch, n = string.match(ARGV[6 + i], '^(%d+)-(%d+)$')
  if tonumber(epoch) > marks[i][1] or (tonumber(epoch) == marks[i][1] and tonumber(n) > marks[i][2]) then redis.call('SET', KEYS[i], ARGV[6 + i]) end
end
return replies
