-- atleast lets a key live at least so long, in ms: the meta of a conversation as long as the longest of its scopes.
local function atleast(key, ttl)
  if redis.call('PTTL', key) < tonumber(ttl) then
    redis.call('PEXPIRE', key, ttl)
  end
end
