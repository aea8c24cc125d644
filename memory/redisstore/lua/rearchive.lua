-- Changes segments of an archive that are still as they were read.
-- KEYS  archive
-- ARGV  for each: position, what described it, what describes the new one, the new one ('': it goes)
for i = 1, #ARGV, 4 do
  if redis.call('HGET', KEYS[1], ARGV[i] .. ':about') ~= ARGV[i + 1] then
    return {'changed'}
  end
end
for i = 1, #ARGV, 4 do
  if ARGV[i + 3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i], ARGV[i] .. ':about')
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 3], ARGV[i] .. ':about', ARGV[i + 2])
  end
end
return {'ok'}
