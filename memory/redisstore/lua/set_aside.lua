-- Sets messages aside that a rewind takes back. Only under the chat's newest turn, so that none
-- come behind an erasure.
-- KEYS  meta of the chat's history, what the rewind takes back
-- ARGV  turn, id of the rewind, life in ms, Unix ms at which it ends, field, value
redis.call('HSET', KEYS[1], 'a:' .. ARGV[2], ARGV[4])
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[2], ARGV[5], ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'ok'}
