-- Keeps how a run's waits were answered in its record.
-- KEYS  record
-- ARGV  the answers, Unix ms until which the record lives
redis.call('HSET', KEYS[1], 'answers', ARGV[1])
redis.call('PEXPIREAT', KEYS[1], ARGV[2])
return {'ok'}
