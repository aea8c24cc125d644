-- rest is how long something lives that is given a TTL, in ms: as long as its conversation
-- is kept, if that is longer.
local function rest(ttl, keep)
  local now = redis.call('TIME')
  return math.max(tonumber(ttl), tonumber(keep or '0') - tonumber(now[1]) * 1000 - math.floor(tonumber(now[2]) / 1000))
end
