-- Keeps what a run goes on from that is about to wait; only for the token that holds the lease.
-- KEYS  lease, what a waiting run goes on from
-- ARGV  token, Unix ms until which it is kept, then fields and values
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'moved'}
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
redis.call('PEXPIREAT', KEYS[2], ARGV[2])
return {'ok'}
