-- Notes that a run exists, unless something of it is known already.
-- KEYS  record
-- ARGV  hash of the post, life in seconds, 1 if no post can repeat the run
if redis.call('HSETNX', KEYS[1], 'body', ARGV[1]) == 0 then
  return {'found'}
end
if ARGV[3] == '1' then
  redis.call('HSET', KEYS[1], 'unkeyed', 1)
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return {'ok'}
