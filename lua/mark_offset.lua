#!lua flags=allow-oom
-- Makes one small write, so that the WAIT behind it on the same connection covers every write that came before.
--
-- KEYS[1]  string: the mark, in a slot of this node; lives one minute
-- ARGV[1]  the mark's value, any text
-- RETURNS  'marked'
-- WHY      WAIT counts only the writes of its own connection: without a write on this one it would confirm at once, whatever others
--          wrote. Allowed when memory is full, because what frees memory waits for replicas too.
redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000)
return 'marked'
