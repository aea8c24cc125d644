-- Stands before every script. A number in a meta; 0 for what is none, since anybody
-- may have written there.
local function number(text)
  local n = tonumber(text or '0')
  if n and n >= 0 and n < 9007199254740992 then
    return n
  end
  return 0
end
-- joins in a meta is the id of the message that follows the archive, and how many messages had left the history then:
-- an earlier version moves messages and leaves joins as it is. '?' says that what was archived is not known.
local function gap(meta)
  local of = redis.call('HMGET', meta, 'first', 'joins', 'archived')
  if not of[1] or not of[2] then
    return false
  end
  local id, moved = string.match(of[2], '^(%S+) (%d+)$')
  return of[2] == '?' or id ~= nil and tonumber(moved) == number(of[3]) and id ~= of[1]
end
local function join(meta)
  local first = redis.call('HGET', meta, 'first')
  if first then
    redis.call('HSET', meta, 'joins', first .. string.format(' %.0f', number(redis.call('HGET', meta, 'archived'))))
  else
    redis.call('HDEL', meta, 'joins')
  end
end
