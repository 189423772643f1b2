#!lua flags=allow-oom
-- Forgets ended memberships that dispatch has passed.
-- KEYS: 1 left (list).
-- ARGV: 1 rev up to which everything was dispatched, 2 most intervals looked at.
-- RETURNS: forgotten (how many).
-- WHY: they stand in the order in which they ended, so only the front is looked at and what comes in meanwhile stays.
local forgotten = 0
while forgotten < tonumber(ARGV[2]) do
  local first = redis.call('LINDEX', KEYS[1], 0)
  if not first or tonumber(string.match(first, '^%d+ (%d+)')) > tonumber(ARGV[1]) then break end
  redis.call('LPOP', KEYS[1])
  forgotten = forgotten + 1
end
return {'forgotten', forgotten}
