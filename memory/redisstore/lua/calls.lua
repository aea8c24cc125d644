-- Puts back what was lost of a run's calls; only for the token that holds the lease. What is there stays.
-- KEYS  lease, meta of the chat's history, calls of the run
-- ARGV  token, the run's field in the index, its Unix ms, life in ms, then fields and values
redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[3])
for i = 5, #ARGV, 2 do
  redis.call('HSETNX', KEYS[3], ARGV[i], ARGV[i + 1])
end
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
return {'ok'}
