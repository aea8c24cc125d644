-- Notes how a chat begins, if nothing of what it was read from has changed.
-- KEYS  meta of the chat's history
-- ARGV  sum, turn and cut as they were read, the beginning that is in its place ("": none), the new one
local meta = redis.call('HMGET', KEYS[1], 'sum', 'turn', 'cut', 'begins')
for i = 1, 4 do
  if (meta[i] or '') ~= ARGV[i] then
    return {'changed'}
  end
end
redis.call('HSET', KEYS[1], 'begins', ARGV[5])
return {'ok'}
