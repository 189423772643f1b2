#!lua flags=allow-oom
-- Tells a gateway what its users got.
-- KEYS: 1 wake-ups of the gateway (stream).
-- ARGV: 1 how many wake-ups are kept, 2 how long the stream outlives its last one (ms); then the wake-ups.
-- RETURNS: woken, id of the last.
-- WHY: appending and setting the end of life are one step: a stream of a gateway that is gone would otherwise stay for ever when the
--      worker dies in between. Wake-ups are hints; one that is lost is found by the gateway's own comparison with the log.
local id
for i = 3, #ARGV do id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'w', ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'woken', id}
