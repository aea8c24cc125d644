-- Adds tools to those that were approved in a chat for good, under the chat's newest turn.
-- KEYS  meta of the chat's history
-- ARGV  turn, then names of tools
local turn = redis.call('HGET', KEYS[1], 'turn')
if number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
local read, names = pcall(cjson.decode, redis.call('HGET', KEYS[1], 'approved') or '[]')
if not read or type(names) ~= 'table' then
  names = {}
end
for i = 2, #ARGV do
  local known = false
  for _, name in ipairs(names) do
    known = known or name == ARGV[i]
  end
  if not known and #names < 1000 then
    names[#names + 1] = ARGV[i]
  end
end
redis.call('HSET', KEYS[1], 'approved', cjson.encode(names))
return {'ok'}
