-- Removes a history; what stays of its meta is the turn of the erasure, as a
-- tombstone on which late appends die.
-- KEYS  history, meta, archive, notes, what was set aside of it
-- ARGV  turn, life of the tombstone in seconds, 1 to keep what a chat's meta says beside its history
local turn = redis.call('HGET', KEYS[2], 'turn')
if number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
redis.call('DEL', KEYS[1])
redis.call('UNLINK', KEYS[3], KEYS[4])
for i = 5, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('HDEL', KEYS[2], 'd:' .. string.match(KEYS[i], ':damaged:(.*)$'))
end
if ARGV[3] == '1' then
  redis.call('HDEL', KEYS[2], 'sum', 'len', 'count', 'applied', 'adopted', 'first', 'joins', 'archived', 'begins')
else
  redis.call('DEL', KEYS[2])
end
redis.call('HSET', KEYS[2], 'turn', ARGV[1], 'erased', ARGV[1], 'cut', ARGV[1])
if redis.call('HLEN', KEYS[2]) == 3 then
  redis.call('EXPIRE', KEYS[2], ARGV[2])
end
return {'ok'}
