-- Moves a member's read watermark forward, never back, and tells of it in the same step.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 members (hash), 5 marks (hash), 6 uncounted (sorted set).
-- ARGV: 1 now (ms), 2 outbox length above which changes are refused (entries), 3 conversation, 4 user, 5 seq, 6 members up to which the
--       others learn of it; then the change JSON in pieces, between which the script puts the seq: 7 beginning for everybody, 8 beginning
--       for the user alone, 9 middle, 10 end.
-- RETURNS: advanced | unchanged, each with (read_seq, read_at ms, head, uncounted seqs after read_seq, voids JSON) | not_member | cold |
--          closed | overloaded | stale_epoch.
-- WHY: an old device that reports late must not take a position back, so the maximum is formed where the position is kept.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch = shard[1]
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'state', 'made', 'head', 'rev', 'mver', 'mcount', 'voids')
if c[1] ~= epoch then return {'cold'} end
if c[3] ~= '1' or redis.call('HEXISTS', KEYS[4], ARGV[4]) == 0 then return {'not_member'} end
local head = tonumber(c[4])
local old, old_at = string.match(redis.call('HGET', KEYS[5], ARGV[4]) or '0 0', '^(%d+) (%d+)$')
local seq = math.min(tonumber(ARGV[5]), head)
local function whole(number) return string.format('%d', number) end
local function answer(word, read, at)
  return {word, read, at, c[4], redis.call('ZCOUNT', KEYS[6], '(' .. read, '+inf'), c[8]}
end
if seq <= tonumber(old) then return answer('unchanged', old, old_at) end
if c[2] ~= 'open' then return {'closed'} end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return {'overloaded'} end

local rev = whole(math.max(tonumber(c[5]), tonumber(epoch) * 4294967296) + 1)
local n = whole(tonumber(shard[4] or '0') + 1)
local s = whole(seq)
local beginning = tonumber(c[7]) <= tonumber(ARGV[6]) and ARGV[7] or ARGV[8]
redis.call('HSET', KEYS[5], ARGV[4], s .. ' ' .. ARGV[1])
redis.call('HSET', KEYS[3], 'rev', rev)
redis.call('HSET', KEYS[1], 'n', n)
redis.call('XADD', KEYS[2], epoch .. '-' .. n, 'c', ARGV[3], 'r', rev, 'v', c[6], 't', ARGV[1],
  'x', beginning .. s .. ARGV[9] .. s .. ARGV[10])
return answer('advanced', s, ARGV[1])
