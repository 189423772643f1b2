-- Moves a member's read watermark forward, never back, and tells of it in the same step.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 head (hash), 4 members (hash), 5 marks (hash), 6 uncounted (sorted set),
--       7 mentions (sorted set).
-- ARGV: 1 now (ms), 2 outbox length above which changes are refused (entries), 3 conversation, 4 user, 5 seq, 6 members up to which the
--       others learn of it; then the change JSON in pieces, between which the script puts the seq: 7 beginning for everybody, 8 beginning
--       for the user alone, 9 middle, 10 end, 11 beginning where one of a pair has blocked the other.
-- RETURNS: advanced | unchanged, each with (read_seq, read_at ms, head, seqs after read_seq and after what the user has cleared that do not
--          count, voids JSON, member record) | not_member | cold | closed | overloaded | stale_epoch.
-- WHY: an old device that reports late must not take a position back, so the maximum is formed where the position is kept.
local shard = redis.call('HMGET', KEYS[1], 'epoch', 'replid', 'state', 'n')
local live = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if not shard[1] or shard[2] ~= live or shard[3] ~= 'open' then return {'stale_epoch'} end
local epoch = shard[1]
local c = redis.call('HMGET', KEYS[3], 'lease_epoch', 'state', 'made', 'head', 'rev', 'mver', 'mcount', 'voids', 'block_low',
  'block_high')
if c[1] ~= epoch then return {'cold'} end
local member = redis.call('HGET', KEYS[4], ARGV[4])
if c[3] ~= '1' or not member then return {'not_member'} end
local cleared = tonumber(string.match(member, '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)$') or '0')
local head = tonumber(c[4])
local old, old_at = string.match(redis.call('HGET', KEYS[5], ARGV[4]) or '0 0', '^(%d+) (%d+)$')
local seq = math.min(tonumber(ARGV[5]), head)
local function whole(number) return string.format('%d', number) end
local function answer(word, read, at)
  local from = string.format('(%d', math.max(tonumber(read), cleared))
  return {word, read, at, c[4], redis.call('ZCOUNT', KEYS[6], from, '+inf'), c[8], member}
end
if seq <= tonumber(old) then return answer('unchanged', old, old_at) end
if c[2] ~= 'open' then return {'closed'} end
if redis.call('XLEN', KEYS[2]) >= tonumber(ARGV[2]) then return {'overloaded'} end

local rev = whole(math.max(tonumber(c[5]), tonumber(epoch) * 4294967296) + 1)
local n = whole(tonumber(shard[4] or '0') + 1)
local s = whole(seq)
local beginning = tonumber(c[7]) <= tonumber(ARGV[6]) and ARGV[7] or ARGV[8]
if (c[9] or '') ~= '' or (c[10] or '') ~= '' then beginning = ARGV[11] end
redis.call('HSET', KEYS[5], ARGV[4], s .. ' ' .. ARGV[1])
redis.call('HSET', KEYS[3], 'rev', rev)
redis.call('ZREMRANGEBYLEX', KEYS[7], '[' .. ARGV[4] .. '\0', '[' .. ARGV[4] .. '\0' .. string.format('%016d', seq))
redis.call('HSET', KEYS[1], 'n', n)
redis.call('XADD', KEYS[2], epoch .. '-' .. n, 'c', ARGV[3], 'r', rev, 'v', c[6], 't', ARGV[1],
  'x', beginning .. s .. ARGV[9] .. s .. ARGV[10])
return answer('advanced', s, ARGV[1])
