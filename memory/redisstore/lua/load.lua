-- Looks at one history and says the least that brings the caller's copy up to date.
-- A whole value is never part of the answer: passing one through Lua costs more
-- than reading it.
-- KEYS  history, meta
-- ARGV  turn to raise to (0: only look), sum and len of the caller's copy (len 0: none)
local turn = tonumber(ARGV[1])
local meta = redis.call('HMGET', KEYS[2], 'sum', 'len', 'erased', 'turn', 'count', 'adopted')
if turn > 0 then
  if number(meta[4]) > turn then
    return {'moved', meta[4]}
  end
  redis.call('HSET', KEYS[2], 'turn', ARGV[1])
end
local len, stored = number(meta[2]), redis.call('STRLEN', KEYS[1])
if stored == 0 then
  if len > 0 then
    return {'deleted'}
  end
  return {meta[3] and 'erased' or 'absent'}
end
if not meta[1] or stored ~= len or redis.call('GETRANGE', KEYS[1], stored - 1, stored - 1) ~= ']' then
  return {'foreign'}
end
local mine = tonumber(ARGV[3])
if meta[1] == ARGV[2] and len == mine then
  return {'same'}
end
if mine > 2 and mine < len then
  return {'tail', meta[1], redis.call('GETRANGE', KEYS[1], mine - 1, -1)}
end
return {'whole', meta[1], meta[5] or '0', meta[6] or '0'}
