-- Notes that a conversation is erased and answers with its routes.
-- KEYS  the conversation's meta
-- ARGV  time in µs, how long an erasure is remembered in ms
local routes = {}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 6) == 'route:' then
    routes[#routes + 1] = string.sub(field, 7)
  end
end
local erased = redis.call('HGET', KEYS[1], 'erased')
if not erased or tonumber(erased) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'erased', ARGV[1])
end
redis.call('HDEL', KEYS[1], 'keep')
if #routes == 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
  atleast(KEYS[1], ARGV[2]) -- what leads to the scopes stays until they are gone, see turns_clear
end
return routes
