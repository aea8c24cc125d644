-- Cuts the oldest messages off a history and keeps them as a segment of its archive, by
-- a place in bytes: none of them passes through the arguments.
-- KEYS  history, meta, archive
-- ARGV  turn, sum and len that must still hold, place of the first byte that stays, sum and
--       count of what stays, id of its first message, number of messages that go, 1 to keep
--       them in the archive, what describes the segment
local meta = redis.call('HMGET', KEYS[2], 'turn', 'sum', 'len', 'archived')
if number(meta[1]) > tonumber(ARGV[1]) then
  return {'moved', meta[1]}
end
local len, place = tonumber(ARGV[3]), tonumber(ARGV[4])
if meta[2] ~= ARGV[2] or number(meta[3]) ~= len or redis.call('STRLEN', KEYS[1]) ~= len then
  return {'changed'}
end
local position = string.format('%.0f', number(meta[4]))
if ARGV[9] == '1' then
  local segment = redis.call('GETRANGE', KEYS[1], 0, place - 2) .. ']'
  redis.call('HSET', KEYS[3], position, segment, position .. ':about', ARGV[10])
  redis.call('HINCRBY', KEYS[3], 'bytes', #segment)
  redis.call('HINCRBY', KEYS[3], 'messages', ARGV[8])
  if gap(KEYS[2]) then -- what came before is missing
    redis.call('HSET', KEYS[3], position .. ':gap', '1')
  end
end
local kept = '[' .. redis.call('GETRANGE', KEYS[1], place, -1)
redis.call('SET', KEYS[1], kept)
redis.call('HSET', KEYS[2], 'sum', ARGV[5], 'len', #kept, 'count', ARGV[6], 'first', ARGV[7],
  'archived', string.format('%.0f', number(meta[4]) + tonumber(ARGV[8])))
join(KEYS[2])
return {'ok', position}
