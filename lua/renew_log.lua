-- Begins a user's log anew, so that whoever reads it is told to read everything again.
-- KEYS: 1 log (stream), 2 log info (hash).
-- ARGV: 1 nonce of the new log, 2 now (ms).
-- RETURNS: renewed | empty (nothing was ever in it), each with (log epoch, gateways that want to know, separated by spaces).
-- WHY: which gateways hold the user stays known; deleted as a whole, the log would be found by their next comparison only. One that has never
--      held anything has nobody who could have missed something in it, so that doing it again tells nobody twice.
local all, length = redis.pcall('HGETALL', KEYS[2]), redis.pcall('XLEN', KEYS[1])
local field, gateways = {}, {}
if all.err then redis.call('DEL', KEYS[2]) else for i = 1, #all, 2 do field[all[i]] = all[i + 1] end end
for name, until_ms in pairs(field) do
  local gateway = string.match(name, '^g:(.+)$')
  if gateway and tonumber(until_ms) and tonumber(until_ms) > tonumber(ARGV[2]) then gateways[#gateways + 1] = gateway end
end
local word, nonce = 'empty', field.nonce
if not nonce or field.last ~= '0-0' or field.trimmed ~= '0-0' or length ~= 0 then
  word, nonce = 'renewed', ARGV[1]
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[2], 'nonce', nonce, 'last', '0-0', 'trimmed', '0-0')
end
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
return {word, string.sub(redis.sha1hex(nonce .. replid .. KEYS[1]), 1, 12), table.concat(gateways, ' ')}
