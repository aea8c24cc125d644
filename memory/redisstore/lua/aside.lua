-- Moves a key of the wrong type out of the way, to be looked at, and notes where it went.
-- KEYS  key, where it goes, the meta that notes it (absent: it is noted elsewhere)
-- ARGV  the type that it should have, field of the note
local found = redis.call('TYPE', KEYS[1]).ok
if found == 'none' or found == ARGV[1] then
  return {'fine'}
end
if redis.call('RENAMENX', KEYS[1], KEYS[2]) == 0 then
  return {'taken'}
end
if KEYS[3] then
  redis.call('HSET', KEYS[3], ARGV[2], found)
  redis.call('PERSIST', KEYS[3])
end
return {'aside', found}
