-- Refuses a write of a process that does not hold the lease.
-- KEYS  lease
-- ARGV  token
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'moved'}
end
