#!lua flags=allow-oom
-- Takes a free shard for a worker, or holds on to one that it has.
-- KEYS: 1 lease (string with a time to live).
-- ARGV: 1 worker, 2 how long the lease lasts (ms).
-- RETURNS: taken | renewed | held (the other worker).
-- WHY: looking whose it is and writing one's name are one step, so that two workers never both believe they took a free shard.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {'held', owner} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {owner and 'renewed' or 'taken'}
