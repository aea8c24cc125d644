-- Removes a history; what stays of its meta is the turn of the erasure, as a
-- tombstone on which late appends die. The chat's conversation goes with it.
-- KEYS  history, meta
-- ARGV  turn, life of the tombstone in seconds
local turn = redis.call('HGET', KEYS[2], 'turn')
if tonumber(turn or '0') > tonumber(ARGV[1]) then
  return {'moved', turn}
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[2], 'turn', ARGV[1], 'erased', ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return {'ok'}
