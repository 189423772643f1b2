-- Reads a run of a user's log together with the facts that tell whether a position in it still holds.
-- KEYS: 1 log (stream), 2 log info (hash).
-- ARGV: 1 entry id after which to read ('' to read no entries), 2 how many at most, 3 nonce for a log that is born now.
-- RETURNS: log, log epoch, last entry id, last trimmed entry id, entries (a list of id and field list).
-- WHY: a reader that asks first for the bounds and then for the entries can be overtaken by a trim in between, and would take the hole
--      for the end. A log that is gone, or of the wrong type, begins again here with another epoch instead of refusing for ever.
local field, length = redis.pcall('HMGET', KEYS[2], 'nonce', 'last', 'trimmed'), redis.pcall('XLEN', KEYS[1])
if field.err then redis.call('DEL', KEYS[2]) field = {} end
local nonce, last, trimmed = field[1], field[2], field[3]
if not (nonce and last and trimmed and type(length) == 'number' and (length > 0 or last == trimmed)) then
  nonce, last, trimmed = ARGV[3], '0-0', '0-0'
  redis.call('HSET', KEYS[2], 'nonce', nonce, 'last', last, 'trimmed', trimmed)
  redis.call('DEL', KEYS[1])
end
local replid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local epoch = string.sub(redis.sha1hex(nonce .. replid .. KEYS[1]), 1, 12)
if ARGV[1] == '' then return {'log', epoch, last, trimmed, {}} end
return {'log', epoch, last, trimmed, redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])}
