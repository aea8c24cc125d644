-- Adds one message to a history in O(1): it is spliced before the closing bracket.
-- KEYS  history, meta
-- ARGV  run, seq, turn, sum and len that the writer believes, message, sum with it
-- The order of the checks matters: a re-sent append is a success even if the turn
-- has moved on or the value was changed since.
local run, seq, turn = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[2], 'sum', 'len', 'count', 'turn', 'applied', 'erased')
local sum, len, count = meta[1] or string.rep('0', 64), number(meta[2]), number(meta[3])
local applied = meta[5] or ''
-- applied: "run=seq run=seq …", newest run first. It is looked into as a text, since to
-- take it apart costs more than the rest of the script; ids hold neither spaces nor "=".
local others = applied ~= '' and ' ' .. applied or ''
local from, to = string.find(others, ' ' .. run .. '=', 1, true)
if from then
  local last = string.match(others, '^%d+', to + 1)
  if seq <= tonumber(last or '-1') then
    return {'duplicate', sum, len, count}
  end
  others = string.sub(others, 1, from - 1) .. string.sub(others, to + 1 + #(last or ''))
end
if number(meta[4]) > turn then
  return {'moved', meta[4], meta[6] or '0'}
end
local stored = redis.call('STRLEN', KEYS[1])
if stored ~= len or (stored > 0 and redis.call('GETRANGE', KEYS[1], stored - 1, stored - 1) ~= ']') then
  return {'foreign'}
end
if sum ~= ARGV[4] or len ~= tonumber(ARGV[5]) then
  return {'stale', sum, len, count}
end
local message = ARGV[6]
local grown = len > 2 and len + 1 + #message or 2 + #message
-- 128 MiB: see hardLimit in store.go
if grown > 134217728 then
  return {'full'}
end
if len > 2 then
  redis.call('SETRANGE', KEYS[1], len - 1, ',' .. message .. ']')
else
  redis.call('SET', KEYS[1], '[' .. message .. ']')
end
-- 32 runs are kept: an earlier one is not folded again.
local _, runs = string.gsub(others, '=', '')
for _ = 32, runs do
  others = string.match(others, '^(.*) ') or ''
end
redis.call('HSET', KEYS[2], 'sum', ARGV[7], 'len', grown, 'count', count + 1, 'turn', ARGV[3],
  'applied', run .. '=' .. ARGV[2] .. others)
redis.call('PERSIST', KEYS[2])
return {'ok', ARGV[7], grown, count + 1}
