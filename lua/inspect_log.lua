#!lua flags=allow-oom,no-writes
-- Reads a run of a user's log with what the log says of itself; begins no log that is not there.
-- KEYS: 1 log (stream), 2 log info (hash), 3 index (sorted set).
-- ARGV: 1 entry id after which to read ('' from the beginning), 2 how many at most, 3 most entries of the index ('0' for none).
-- RETURNS: log (nonce or false, last or false, trimmed or false, length, id of the last entry or false, entries, index) | absent | broken.
-- WHY: reading a log as a stream does makes it anew when it is lost; an audit changes nothing.
local info, length = redis.pcall('HMGET', KEYS[2], 'nonce', 'last', 'trimmed'), redis.pcall('XLEN', KEYS[1])
local index = redis.pcall('ZREVRANGE', KEYS[3], 0, tonumber(ARGV[3]) - 1)
if tonumber(ARGV[3]) == 0 then index = {} end
if info.err or type(length) ~= 'number' or index.err then return {'broken'} end
if not info[1] and length == 0 and #index == 0 then return {'absent'} end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
return {'log', info[1], info[2], info[3], length, newest and newest[1] or false, redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', ARGV[2]), index}
