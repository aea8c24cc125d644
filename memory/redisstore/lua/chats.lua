-- Lists chats in the order of use, the latest first, behind a place in it that may be free by now. Of the same score
-- the last member in the order of bytes comes first.
-- KEYS  chats by their last run
-- ARGV  score and member of the place ("": the beginning), how many
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local from = 0
if ARGV[2] ~= '' then
  from = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[1], '+inf')
  local to = from + redis.call('ZCOUNT', KEYS[1], ARGV[1], ARGV[1])
  while from < to do -- the first of the same score that comes behind the member
    local middle = math.floor((from + to) / 2)
    if before(redis.call('ZREVRANGE', KEYS[1], middle, middle)[1], ARGV[2]) then
      to = middle
    else
      from = middle + 1
    end
  end
end
local places = redis.call('ZREVRANGE', KEYS[1], from, from + ARGV[3] - 1, 'WITHSCORES')
table.insert(places, 1, 'ok')
return places
