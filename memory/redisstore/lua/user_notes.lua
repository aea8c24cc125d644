-- Changes the notes of a user that are still as they were read.
-- KEYS  notes
-- ARGV  old value, new value ('': none are left)
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then
  return {'changed'}
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2])
end
return {'ok'}
