-- Takes a turn again that Redis lost together with its lease, under the same token and
-- number; only if nobody has taken another one since.
-- KEYS  lease, meta of the chat's history
-- ARGV  token, lease in ms, turn, conversation, the open run's record ("": none)
if redis.call('EXISTS', KEYS[1]) == 1 or tonumber(redis.call('HGET', KEYS[2], 'turn') or '0') > tonumber(ARGV[3]) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'turn', ARGV[3])
redis.call('HSETNX', KEYS[2], 'conversation', ARGV[4])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[2], 'open', ARGV[5])
end
redis.call('PERSIST', KEYS[2])
return 1
