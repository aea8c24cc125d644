-- Brings a conversation into the list of its tenant, from which those go that have ended.
-- KEYS  the list, a sorted set by the Unix ms of the last turn
-- ARGV  conversation, Unix ms, Unix ms before which none is kept any more, life of the list in ms
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 'ok'
