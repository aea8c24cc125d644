-- Adds members to a list of text in a field of a chat's meta, or takes them out, unless a newer turn has begun.
-- KEYS  meta of the chat's history
-- ARGV  turn (-1: of none), field, 1 to take them out, then the members
local read, before = pcall(cjson.decode, redis.call('HGET', KEYS[1], ARGV[2]) or '[]')
if not read or type(before) ~= 'table' then
  before = {}
end
local given, after = {}, {}
for i = 4, #ARGV do
  given[ARGV[i]] = true
end
for _, member in ipairs(before) do
  if not given[member] then
    after[#after + 1] = member
  end
end
if ARGV[3] ~= '1' then
  for i = 4, #ARGV do
    -- 1000: see memory.MaxQuarantine
    if #after == 1000 then
      return {'full'}
    end
    after[#after + 1] = ARGV[i]
  end
end
if #after == 0 then
  redis.call('HDEL', KEYS[1], ARGV[2])
else
  redis.call('HSET', KEYS[1], ARGV[2], cjson.encode(after))
end
return {'ok'}
