#!lua flags=allow-oom
-- Gives a worker's sign of life and names all workers that ever gave one and were not taken off the list.
-- KEYS: 1 all workers (set), 2 this worker's sign of life (string with a time to live).
-- ARGV: 1 worker, 2 how long the sign lasts (ms).
-- RETURNS: registered (ids of all workers).
-- WHY: a worker that was taken off the list while it was slow stands on it again with its next sign; life is a time to live, so no two
--      clocks are compared.
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return {'registered', redis.call('SMEMBERS', KEYS[1])}
