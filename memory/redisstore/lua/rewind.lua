-- Takes messages out of a history and its archive, as a deliberate change. What stays at hand
-- comes whole, since it may take up messages of the archive again.
-- KEYS  history, meta, archive
-- ARGV  1 turn of the writer (0: no turn's write), 2 sum and 3 len that must still hold
--       4 new value ("": none), 5 its sum, 6 count, 7 id of its first message ("": none was trimmed)
--       8 number of messages that have left it ("": as before), 9 turn of the change
--       10 life of a tombstone in seconds, from 11 on: see segments.lua
local meta = redis.call('HMGET', KEYS[2], 'turn', 'sum', 'len', 'cut')
if ARGV[1] ~= '0' and number(meta[1]) > tonumber(ARGV[1]) then
  return {'moved', meta[1]}
end
local len = tonumber(ARGV[3])
if meta[2] ~= ARGV[2] or number(meta[3]) ~= len or redis.call('STRLEN', KEYS[1]) ~= len or
    not unchanged(KEYS[3], 11) then
  return {'changed'}
end
resegment(KEYS[3], 11)
local apart = gap(KEYS[2])
if number(meta[4]) < tonumber(ARGV[9]) then
  -- adopted is what the version before goes by
  redis.call('HSET', KEYS[2], 'cut', ARGV[9], 'adopted', ARGV[9])
end
if ARGV[8] ~= '' then
  redis.call('HSET', KEYS[2], 'archived', ARGV[8])
end
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[2], 'first', ARGV[7])
else
  redis.call('HDEL', KEYS[2], 'first')
end
if not apart then
  join(KEYS[2])
end
if ARGV[4] ~= '' then
  redis.call('SET', KEYS[1], ARGV[4])
  redis.call('HSET', KEYS[2], 'sum', ARGV[5], 'len', #ARGV[4], 'count', ARGV[6])
  return {'ok'}
end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], 'sum', 'len', 'count', 'archived', 'joins')
if string.sub(KEYS[1], 1, 9) == 'subagent:' then
  redis.call('EXPIRE', KEYS[2], ARGV[10])
else
  redis.call('HSET', KEYS[2], 'begins', ' ') -- with nothing; it is a chat still
end
return {'ok'}
