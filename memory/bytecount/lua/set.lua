-- Sets the bytes of a part of what a tenant stores, and the sum of all parts.
-- KEYS  counts of the tenant
-- ARGV  the part, its bytes
local before = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '0') or 0
if tonumber(ARGV[2]) == before then
  return {'ok'}
end
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
if redis.call('HINCRBY', KEYS[1], '*', string.format('%.0f', ARGV[2] - before)) <= 0 then
  redis.call('HDEL', KEYS[1], '*')
end
return {'ok'}
