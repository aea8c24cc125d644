-- Gives a turn back whose run is over: it is open no more, the index says until when
-- something is kept of it, and forgets runs of which nothing is. Only for the token
-- that holds the lease.
-- KEYS  lease, meta of the chat's history
-- ARGV  token, the run's field in the index, its Unix ms, the Unix ms of now
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[2], 'open')
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
local fields = redis.call('HGETALL', KEYS[2])
for i = 1, #fields, 2 do
  local till = tonumber(fields[i + 1])
  if string.sub(fields[i], 1, 2) == 'r:' and till and till < tonumber(ARGV[4]) then
    redis.call('HDEL', KEYS[2], fields[i])
  end
end
return redis.call('DEL', KEYS[1])
