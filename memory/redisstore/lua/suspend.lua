-- Gives a turn back whose run waits: it is open no more, the chat says that it waits, and all that
-- is kept of it lives as long. Only for the token that holds the lease, and with the state at hand.
-- KEYS  lease, meta of the chat's history, what the run goes on from, calls of the run
-- ARGV  token, run, what the chat says of the wait, Unix ms until which it is kept, then the run's
--       fields in the index
if redis.call('HGET', KEYS[3], 'run') ~= ARGV[2] then
  return {'lost'}
end
redis.call('HDEL', KEYS[2], 'open')
redis.call('HSET', KEYS[2], 'waits', ARGV[3])
for i = 5, #ARGV do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[4])
end
redis.call('PERSIST', KEYS[2])
redis.call('PEXPIREAT', KEYS[3], ARGV[4])
redis.call('PEXPIREAT', KEYS[4], ARGV[4])
redis.call('DEL', KEYS[1])
return {'ok'}
