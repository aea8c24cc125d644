-- Lets a key of a turn lead to its conversation. One that leads to many says nothing, so
-- that their number need not grow.
-- KEYS  the set of conversations
-- ARGV  conversation, TTL in ms, most conversations
if redis.call('SCARD', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('SADD', KEYS[1], ARGV[1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'ok'
