-- Takes a token out of a user's bucket, or gives one back.
-- KEYS: 1 bucket (string).
-- ARGV: 1 now (ms), 2 tokens that come back in a second, 3 size of the bucket (tokens), 4 '1' to take one, '-1' to give one back.
-- RETURNS: taken (tokens left, whole) | empty (ms until there is one) | given.
-- WHY: two gateways that read a bucket and then write it let one token through twice. Time is the callers': it only moves forward, so a clock
--      that lags brings nothing and takes nothing; one that is off by more than 5 s begins again from where the caller is, else a bucket
--      touched by a clock an hour ahead would stay empty for an hour. A bucket that is full is no key at all.
local now, rate, size, take = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local held, at = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
held, at = tonumber(held) or size, tonumber(at) or now
if now > at then held = held + (now - at) * rate / 1000 end
if now > at or at - now > 5000 then at = now end
held = math.min(size, held)
if take > 0 and held < 1 then
  return {'empty', string.format('%d', math.ceil((1 - held) * 1000 / rate) + at - now)}
end
held = math.min(size, held - take)
local life = math.ceil((size - held) * 1000 / rate) + at - now
if life <= 0 then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], string.format('%.3f %d', held, at), 'PX', string.format('%d', life))
end
if take < 0 then return {'given'} end
return {'taken', string.format('%d', math.floor(held))}
