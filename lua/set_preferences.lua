-- Puts a member's preferences, or a block of the other one of a pair, in the place of what the decision was made on, with its event.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 members (hash), 5 marks (hash).
-- ARGV: 1 now (ms), 2 outbox length above which changes are refused (entries), 3 conversation, 4 user, 5 member record the decision was
--       made on, 6 member record afterwards, 7 head and 8 read_seq it was made on ('' where it does not hang on them), 9 seq cleared to, 10
--       the user's field of the head for a block ('' if it is not about one), 11 its value before ('' for none), 12 its value afterwards, 13
--       change JSON.
-- RETURNS: done (rev) | changed | not_member | cold | closed | overloaded | stale_epoch.
-- WHY: two devices that set different preferences at once must both be heard; and what the event says of a conversation that is hidden
--      until the next message must be so at that place among the messages.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch = shard[1]
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'state', 'made', 'head', 'rev', 'mver', 'cleared_max')
if c[1] ~= epoch then return {'cold'} end
local record = redis.call('HGET', KEYS[4], ARGV[4])
if c[3] ~= '1' or not record then return {'not_member'} end
if c[2] ~= 'open' then return {'closed'} end
if record ~= ARGV[5] or (ARGV[7] ~= '' and c[4] ~= ARGV[7]) then return {'changed'} end
if ARGV[8] ~= '' and string.match(redis.call('HGET', KEYS[5], ARGV[4]) or '0', '^%d+') ~= ARGV[8] then return {'changed'} end
if ARGV[10] ~= '' and (redis.call('HGET', KEYS[3], ARGV[10]) or '') ~= ARGV[11] then return {'changed'} end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return {'overloaded'} end

local function whole(number) return string.format('%d', number) end
local rev = whole(math.max(tonumber(c[5]), tonumber(epoch) * 4294967296) + 1)
local n = whole(tonumber(shard[4] or '0') + 1)
redis.call('HSET', KEYS[4], ARGV[4], ARGV[6])
redis.call('HSET', KEYS[3], 'rev', rev)
if tonumber(ARGV[9]) > tonumber(c[7] or '0') then redis.call('HSET', KEYS[3], 'cleared_max', ARGV[9]) end
if ARGV[10] ~= '' then redis.call('HSET', KEYS[3], ARGV[10], ARGV[12]) end
redis.call('HSET', KEYS[1], 'n', n)
redis.call('XADD', KEYS[2], epoch .. '-' .. n, 'c', ARGV[3], 'r', rev, 'v', c[6], 't', ARGV[1], 'x', ARGV[13])
return {'done', rev}
