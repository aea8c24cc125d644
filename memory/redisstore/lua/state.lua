-- Keeps what a run goes on from that is about to wait; only for the token that holds the lease.
-- KEYS  lease, what a waiting run goes on from
-- ARGV  token, Unix ms until which it is kept, then fields and values
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
redis.call('PEXPIREAT', KEYS[2], ARGV[2])
return {'ok'}
