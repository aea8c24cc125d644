-- Drops the sum of a meta if it still is the one that was seen.
-- KEYS  history, meta
-- ARGV  sum
if redis.call('HGET', KEYS[2], 'sum') == ARGV[1] then
  return redis.call('HDEL', KEYS[2], 'sum')
end
return 0
