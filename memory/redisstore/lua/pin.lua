-- Pins the tools of a server in the place of what is pinned, or where nothing is.
-- KEYS  pins
-- ARGV  replace or keep, then name and definition of each tool
if ARGV[1] == 'keep' and redis.call('EXISTS', KEYS[1]) == 1 then
  return {'kept'}
end
redis.call('DEL', KEYS[1])
for i = 2, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
return {'ok'}
