-- Puts conversations into a user's list, or raises them in it.
-- KEYS: 1 index (sorted set).
-- ARGV: 1 '1' if with these the list is whole, '' if it is not known; then for each conversation 2: score (ms * 4096 + n), conversation.
-- RETURNS: touched.
-- WHY: the script that delivers raises conversations at the same time; a score therefore only ever grows, whoever comes last. That the list
--      is whole is a member of the list itself (the empty one), so that it is lost with it and never outlives it.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'zset' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
for i = 2, #ARGV, 2 do redis.call('ZADD', KEYS[1], 'GT', ARGV[i], ARGV[i + 1]) end
if ARGV[1] == '1' then redis.call('ZADD', KEYS[1], 0, '') end
return {'touched'}
