-- Notes a deliberate change of a history that is not there.
-- KEYS  history, meta
-- ARGV  turn of the change, life of a tombstone in seconds
if redis.call('EXISTS', KEYS[1]) == 1 or number(redis.call('HGET', KEYS[2], 'cut')) >= tonumber(ARGV[1]) then
  return 0
end
local fresh = redis.call('EXISTS', KEYS[2]) == 0
redis.call('HSET', KEYS[2], 'cut', ARGV[1], 'adopted', ARGV[1])
if fresh then
  redis.call('EXPIRE', KEYS[2], ARGV[2])
end
return 1
