-- Notes a deliberate change that Redis has forgotten. What is written back is measured by it.
-- KEYS  history, meta
-- ARGV  turn of the change, life of a tombstone in seconds, 1 if all of the chat was erased: what was set for its list
--       goes too, which an erasure of its history keeps
local fresh = redis.call('EXISTS', KEYS[2]) == 0
if number(redis.call('HGET', KEYS[2], 'erased')) < tonumber(ARGV[1]) then
  redis.call('HDEL', KEYS[2], 'begins')
  if ARGV[3] == '1' then
    redis.call('HDEL', KEYS[2], 'title', 'metadata')
  end
end
for _, field in ipairs({'erased', 'cut'}) do
  if number(redis.call('HGET', KEYS[2], field)) < tonumber(ARGV[1]) then
    redis.call('HSET', KEYS[2], field, ARGV[1])
  end
end
if fresh and redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('EXPIRE', KEYS[2], ARGV[2])
end
return {'ok'}
