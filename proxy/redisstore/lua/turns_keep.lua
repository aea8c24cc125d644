-- Notes until when a conversation is kept, which is the latest time that was told. Answers with
-- the ms until then and the conversation's routes.
-- KEYS  the conversation's meta
-- ARGV  time in ms
local keep = math.max(tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[1], 'keep') or '0'))
redis.call('HSET', KEYS[1], 'keep', string.format('%.0f', keep))
local left = rest('0', keep)
atleast(KEYS[1], left)
local reply = {string.format('%.0f', left)}
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 6) == 'route:' then
    reply[#reply + 1] = string.sub(field, 7)
  end
end
return reply
