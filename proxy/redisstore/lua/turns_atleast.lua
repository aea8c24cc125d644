-- atleast extends the TTL of a key to at least ttl ms. It always sends the same commands.
local function atleast(key, ttl)
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), tonumber(ttl)))
end
