-- Looks at one history and says the least that brings the caller's copy up to date.
-- A whole value is never part of the answer: passing one through Lua costs more
-- than reading it. Behind its word every answer tells the turn of the last deliberate
-- change, the id of the first message that a trim kept, and the stored turn.
-- KEYS  history, meta
-- ARGV  turn to raise to (0: only look), sum and len of the caller's copy (len 0: none)
local turn = tonumber(ARGV[1])
local meta = redis.call('HMGET', KEYS[2], 'sum', 'len', 'erased', 'turn', 'count', 'adopted', 'cut', 'first')
if turn > 0 then
  if number(meta[4]) > turn then
    return {'moved', meta[4]}
  end
  redis.call('HSET', KEYS[2], 'turn', ARGV[1])
end
local function answer(word, ...)
  -- The version before wrote erased and adopted only.
  local cut = math.max(number(meta[3]), number(meta[6]), number(meta[7]))
  return {word, string.format('%.0f', cut), meta[8] or '', string.format('%.0f', number(meta[4])), ...}
end
local len, stored = number(meta[2]), redis.call('STRLEN', KEYS[1])
if stored == 0 then
  return answer(len > 0 and 'deleted' or 'absent')
end
if not meta[1] or stored ~= len or redis.call('GETRANGE', KEYS[1], stored - 1, stored - 1) ~= ']' then
  return answer('foreign', len > 0 and 'known' or '')
end
local mine = tonumber(ARGV[3])
if meta[1] == ARGV[2] and len == mine then
  return answer('same')
end
if mine > 2 and mine < len then
  return answer('tail', meta[1], redis.call('GETRANGE', KEYS[1], mine - 1, -1))
end
return answer('whole', meta[1], meta[5] or '0')
