#!lua flags=allow-oom
-- Moves a shard's dispatch or archive cursor forward, sets entries aside that the archive refused, and trims what both have passed.
-- KEYS: 1 shard info (hash), 2 outbox (stream), 3 aside (hash).
-- ARGV: 1 dispatched|archived, 2 outbox id up to which all is done; then for each entry to set aside: 3 its outbox id, 4 the entry.
-- RETURNS: advanced (dispatched or false, archived or false, entries trimmed) | unchanged (the same) | absent.
-- WHY: a cursor that moved before the refused entry was kept would lose it; one that moves back would archive again for ever.
local s = redis.call('HMGET', KEYS[1], 'epoch', 'dispatched', 'archived')
if not s[1] then return {'absent'} end
local function parts(id)
  local e, n = string.match(id or '', '^(%d+)-(%d+)$')
  return tonumber(e or '-1'), tonumber(n or '-1')
end
local function below(a, b)
  local ae, an = parts(a)
  local be, bn = parts(b)
  return ae < be or (ae == be and an < bn)
end
local field = ARGV[1] == 'dispatched' and 2 or 3
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
local word = 'unchanged'
if below(s[field], ARGV[2]) then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  s[field] = ARGV[2]
  word = 'advanced'
end
local trimmed = 0
if s[2] and s[3] then
  local e, n = parts(below(s[2], s[3]) and s[2] or s[3])
  trimmed = redis.call('XTRIM', KEYS[2], 'MINID', string.format('%d-%d', e, n + 1))
end
return {word, s[2], s[3], trimmed}
