-- Appends an entry to a scope, unless its conversation was erased since. The oldest
-- entries go where there are too many. Answers with a word, born, the entry's number and the
-- entries that went.
-- KEYS  the conversation's meta, the scope's entries
-- ARGV  time of the entry in µs, the entry, route, TTL of the scope in ms, how long an erasure is
--       remembered in ms, most entries, most bytes, random text
local known = redis.call('HMGET', KEYS[1], 'erased', 'keep')
local erased, keep = known[1], known[2]
if erased and tonumber(ARGV[1]) <= tonumber(erased) then
  return {'erased'}
end
redis.call('HSET', KEYS[1], 'route:' .. ARGV[3], ARGV[1])
local ttl = keep and rest(ARGV[4], keep) or ARGV[4]
atleast(KEYS[1], erased and math.max(tonumber(ttl), tonumber(ARGV[5])) or ttl)
local state = redis.call('HMGET', KEYS[2], 'last', 'first', 'bytes', 'born')
local last, first = tonumber(state[1] or '0'), tonumber(state[2] or '1')
if last > 0 and redis.call('HGET', KEYS[2], tostring(last)) == ARGV[2] then
  redis.call('PEXPIRE', KEYS[2], ttl)
  return {'ok', state[4], tostring(last)} -- sent twice
end
last = last + 1
local bytes = tonumber(state[3] or '0') + #ARGV[2]
local born = state[4] or ARGV[8]
local reply = {'ok', born, tostring(last)}
-- What is over a bound goes with an eighth of what it allows, so that it goes seldom.
local most, room = tonumber(ARGV[6]), tonumber(ARGV[7])
if last - first >= most or bytes > room then
  most, room = most - math.floor(most / 8), room - math.floor(room / 8)
end
while first < last and (last - first >= most or bytes > room) do
  local old = redis.call('HGET', KEYS[2], tostring(first))
  if old then
    redis.call('HDEL', KEYS[2], tostring(first))
    bytes = bytes - #old
    reply[#reply + 1] = old
  end
  first = first + 1
end
redis.call('HSET', KEYS[2], tostring(last), ARGV[2], 'last', last, 'first', first, 'bytes', bytes,
  'born', born)
redis.call('PEXPIRE', KEYS[2], ttl)
return reply
