#!lua flags=allow-oom
-- Tells a gateway what its users got.
-- KEYS: 1 wake-ups of the gateway (stream).
-- ARGV: 1 how many wake-ups are kept, 2 for how long at most, and how long the stream outlives its last one (ms); then the wake-ups.
-- RETURNS: woken, id of the last.
-- WHY: appending and setting the end of life are one step: a stream of a gateway that is gone would otherwise stay for ever when the
--      worker dies in between. Wake-ups are hints; one that is lost is found by the gateway's own comparison with the log. Old ones are no
--      use to anybody, and hold words that may have been taken back since.
local id
for i = 3, #ARGV do id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'w', ARGV[i]) end
local oldest = tonumber(string.match(id, '^%d+')) - tonumber(ARGV[2])
if oldest > 0 then redis.call('XTRIM', KEYS[1], 'MINID', string.format('%d', oldest)) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'woken', id}
