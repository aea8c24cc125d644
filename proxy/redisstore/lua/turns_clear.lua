-- Removes a scope and answers with what it had.
-- KEYS  the scope's entries
-- ARGV  none
local entries = redis.call('HVALS', KEYS[1])
redis.call('DEL', KEYS[1])
return entries
