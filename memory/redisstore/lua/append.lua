-- Adds one message to a history in O(1): it is spliced before the closing bracket.
-- KEYS  history, meta
-- ARGV  run, seq, turn, sum and len that the writer believes, message, sum with it
-- The order of the checks matters: a re-sent append is a success even if the turn
-- has moved on or the value was changed since.
local run, seq, turn = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local meta = redis.call('HMGET', KEYS[2], 'sum', 'len', 'count', 'turn', 'applied', 'erased')
local sum, len, count = meta[1] or string.rep('0', 64), number(meta[2]), number(meta[3])
local applied = meta[5] or ''

-- applied: "run=seq run=seq …", newest run first
local kept, last, n = {}, -1, 0
for id, at in string.gmatch(applied, '(%S+)=(%d+)') do
  if id == run then
    last = tonumber(at)
  elseif n < 31 then
    n = n + 1
    kept[n] = id .. '=' .. at
  end
end
if seq <= last then
  return {'duplicate', sum, len, count}
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
table.insert(kept, 1, run .. '=' .. ARGV[2])
redis.call('HSET', KEYS[2], 'sum', ARGV[7], 'len', grown, 'count', count + 1, 'turn', ARGV[3],
  'applied', table.concat(kept, ' '))
redis.call('PERSIST', KEYS[2])
return {'ok', ARGV[7], grown, count + 1}
