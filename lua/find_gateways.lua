#!lua flags=allow-oom,no-writes
-- Says which gateways hold open streams of each user.
-- KEYS: for each user 1: log info (hash).
-- ARGV: 1 now (ms).
-- RETURNS: found, then for each user the gateways, separated by spaces ('' for none).
-- WHY: what leaves no entry goes to gateways only, so the many members who have no stream open cost one look and nothing else; and a log
--      info of a wrong type costs its user alone.
local now, replies = tonumber(ARGV[1]), {'found'}
for i = 1, #KEYS do
  local all, gateways = redis.pcall('HGETALL', KEYS[i]), {}
  for at = 1, all.err and 0 or #all, 2 do
    local gateway = string.match(all[at], '^g:(.+)$')
    if gateway and (tonumber(all[at + 1]) or 0) > now then gateways[#gateways + 1] = gateway end
  end
  replies[#replies + 1] = table.concat(gateways, ' ')
end
return replies
