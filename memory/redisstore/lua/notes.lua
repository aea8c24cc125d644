-- Changes notes that are still as they were read.
-- KEYS  meta of the history (of a user's notes: these notes, since no meta is read or written), notes
-- ARGV  turn of the writer (-1: no turn's write), old value, new value ('': none are left)
if (redis.call('GET', KEYS[2]) or '') ~= ARGV[2] then
  return {'changed'}
end
if ARGV[3] == '' then
  redis.call('DEL', KEYS[2])
  return {'ok'}
end
redis.call('SET', KEYS[2], ARGV[3])
if tonumber(ARGV[1]) > 0 then
  -- by which an erasure that Redis forgets finds them
  redis.call('HSET', KEYS[1], 'turn', ARGV[1])
  redis.call('PERSIST', KEYS[1])
end
return {'ok'}
