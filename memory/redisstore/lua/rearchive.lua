-- Changes segments of an archive that are still as they were read, and its totals.
-- KEYS  archive
-- ARGV  for each: position, what describes it, what describes the new one, the new one ('': it goes)
for i = 1, #ARGV, 4 do
  if (redis.call('HGET', KEYS[1], ARGV[i] .. ':about') or '') ~= ARGV[i + 1] then
    return {'changed'}
  end
end
local function messages(about)
  return tonumber(string.match(about, '^%d+') or '0')
end
for i = 1, #ARGV, 4 do
  local bytes = redis.call('HSTRLEN', KEYS[1], ARGV[i])
  if ARGV[i + 3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i], ARGV[i] .. ':about')
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 3], ARGV[i] .. ':about', ARGV[i + 2])
  end
  redis.call('HINCRBY', KEYS[1], 'bytes', #ARGV[i + 3] - bytes)
  redis.call('HINCRBY', KEYS[1], 'messages', messages(ARGV[i + 2]) - messages(ARGV[i + 1]))
end
if number(redis.call('HGET', KEYS[1], 'messages')) == 0 then
  redis.call('UNLINK', KEYS[1])
end
return {'ok'}
