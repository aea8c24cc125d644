-- Prolongs a lease, or gives it back; only for the token that holds it.
-- KEYS  lease, meta of the chat's history
-- ARGV  token, lease in ms (0: give it back), "-" if the run that was open is over, else "",
--       life of a tombstone in seconds (only to give back a lease)
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[3] == '-' then
  redis.call('HDEL', KEYS[2], 'open')
end
if ARGV[2] == '0' then
  -- A turn that added nothing to a tombstone leaves it as take.lua found it: expiring, without a conversation.
  local meta = redis.call('HMGET', KEYS[2], 'turn', 'erased', 'cut', 'conversation')
  if ARGV[4] and meta[1] and meta[2] and meta[3] and redis.call('HLEN', KEYS[2]) == (meta[4] and 4 or 3) then
    redis.call('HDEL', KEYS[2], 'conversation')
    redis.call('EXPIRE', KEYS[2], ARGV[4])
  end
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
