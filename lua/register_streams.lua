#!lua flags=allow-oom
-- Says which users have streams at a gateway, or no longer have, and looks where their logs stand.
-- KEYS: for each user 2: log (stream), log info (hash).
-- ARGV: 1 field of the gateway in the log info, 2 time until which it wants wake-ups (ms), 'look' to change nothing, 'leave' to take it back,
--       3 nonce for a log that is born now.
-- RETURNS: places, then for each user 3: log epoch, last entry id, last trimmed entry id (three times '' for one who could not be looked at).
-- WHY: a wake-up may be lost with a worker, a failover or a full buffer. Whoever is registered is compared with the log now and then, in
--      the same call that says the gateway is still there, so that a silent stream is never more than one round behind. Also on a full
--      server: a few bytes for each reader, and one that cannot be written would leave everybody's streams without it.
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')

local function place(log, info)
  if ARGV[2] == 'leave' then redis.call('HDEL', info, ARGV[1]) return '', '', '' end
  local field, length = redis.pcall('HMGET', info, 'nonce', 'last', 'trimmed'), redis.pcall('XLEN', log)
  if field.err then redis.call('DEL', info) field = {} end
  local nonce, last, trimmed = field[1], field[2], field[3]
  if not (nonce and last and trimmed and type(length) == 'number' and (length > 0 or last == trimmed)) then
    nonce, last, trimmed = ARGV[3], '0-0', '0-0'
    redis.call('HSET', info, 'nonce', nonce, 'last', last, 'trimmed', trimmed)
    redis.call('DEL', log)
  end
  if ARGV[2] ~= 'look' then redis.call('HSET', info, ARGV[1], ARGV[2]) end
  return string.sub(redis.sha1hex(nonce .. replid .. log), 1, 12), last, trimmed
end

local replies = {'places'}
for i = 1, #KEYS, 2 do
  local done, epoch, last, trimmed = pcall(place, KEYS[i], KEYS[i + 1])
  if not done then epoch, last, trimmed = '', '', '' end
  replies[#replies + 1], replies[#replies + 2], replies[#replies + 3] = epoch, last, trimmed
end
return replies
