-- Prolongs a lease, or gives it back; only for the token that holds it.
-- KEYS  lease, meta of the chat's history
-- ARGV  token, lease in ms (0: give it back), "-" if the run that was open is over, else ""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[3] == '-' then
  redis.call('HDEL', KEYS[2], 'open')
end
if ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
