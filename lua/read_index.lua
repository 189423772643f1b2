-- Reads a page of a user's list, newest activity first.
-- KEYS: 1 index (sorted set).
-- ARGV: 1 score of the last one of the page before ('' for the first page), 2 that conversation, 3 how many at most.
-- RETURNS: page, 1 if the list is known to be whole, then for each conversation 2: conversation, score.
-- WHY: conversations move up between pages. A page begins below a place in the order, not at a count, so that none comes twice; and
--      whether the list is whole is read in the same step as the list.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'zset' then return {'page', '0'} end
local score, last, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local reply = {'page', redis.call('ZSCORE', KEYS[1], '') and '1' or '0'}
local start = 0
if score ~= '' then start = redis.call('ZCOUNT', KEYS[1], '(' .. score, '+inf') end
while limit > 0 do
  local run = redis.call('ZREVRANGE', KEYS[1], start, start + limit, 'WITHSCORES')
  if #run == 0 then break end
  for i = 1, #run, 2 do
    local passed = run[i] == '' or (score ~= '' and tonumber(run[i + 1]) == tonumber(score) and run[i] >= last)
    if not passed and limit > 0 then
      reply[#reply + 1], reply[#reply + 2] = run[i], string.format('%d', tonumber(run[i + 1]))
      limit = limit - 1
    end
  end
  start = start + #run / 2
end
return reply
