-- Gives the heads of some documents in the order of their ids.
-- KEYS  documents, heads, ids, meta, log, vectors
-- ARGV  the id before the first, or nothing; how many at most
if redis.call('EXISTS', KEYS[4]) == 0 then
  return {'missing'}
end
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
local reply = {'ok'}
local ids = redis.call('ZRANGEBYLEX', KEYS[3], from, '+', 'LIMIT', 0, ARGV[2])
if #ids > 0 then
  for i, head in ipairs(redis.call('HMGET', KEYS[2], unpack(ids))) do
    reply[i + 1] = head
  end
end
return reply
