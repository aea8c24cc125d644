-- Puts another answer in the place of the one that a run's record keeps, if there is one.
-- KEYS  record
-- ARGV  answer
if redis.call('HEXISTS', KEYS[1], 'result') == 0 then
  return {'none'}
end
redis.call('HSET', KEYS[1], 'result', ARGV[1])
return {'ok'}
