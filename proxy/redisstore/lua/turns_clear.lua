-- Removes a scope that is erased and answers with what it had. A conversation without scopes keeps its
-- erasure, for as long as something that was said before it may be on its way.
-- KEYS  the scope's entries, the conversation's meta
-- ARGV  route, how long an erasure is remembered in ms
local entries = redis.call('HVALS', KEYS[1])
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'route:' .. ARGV[1])
if redis.call('HLEN', KEYS[2]) == 1 and redis.call('HEXISTS', KEYS[2], 'erased') == 1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
return entries
