-- Notes that a run which waited goes on; only for the token that holds the lease. What it goes on
-- from stays until the run is over or waits again.
-- KEYS  lease, meta of the chat's history, what the run goes on from
-- ARGV  token, lease in ms, run, the open run's record
if redis.call('HGET', KEYS[3], 'run') ~= ARGV[3] or redis.call('HEXISTS', KEYS[2], 'waits') == 0 then
  return {'lost'}
end
redis.call('HSET', KEYS[2], 'open', ARGV[4])
redis.call('HDEL', KEYS[2], 'waits')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok'}
