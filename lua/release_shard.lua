#!lua flags=allow-oom
-- Gives a shard back before its lease ends.
-- KEYS: 1 lease (string with a time to live).
-- ARGV: 1 worker.
-- RETURNS: released | other.
-- WHY: a worker that was slow must not give away a shard that is another's by now.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'other'} end
redis.call('DEL', KEYS[1])
return {'released'}
