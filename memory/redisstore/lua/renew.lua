-- Prolongs a lease (ARGV 2 in ms) or gives it back (0), if ARGV 1 still holds it.
-- KEYS  lease
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
