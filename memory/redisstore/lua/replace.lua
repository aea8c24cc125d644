-- Puts a value in the place of the one that the caller saw: compare and set.
-- KEYS  history, meta, where a damaged value goes
-- ARGV  1 turn of the writer (0: no turn's write, which the cut alone fences)
--       2 what must still hold: "value", "version", "absent", or "deleted" by hand
--       3 the old value or its sum, 4 old len
--       5 new value ("": none), 6 its sum, 7 count
--       8 keep the old value (1 or 0), 9 a copy to keep there instead ("": none)
--       10 "run=seq …" of what is written back
--       11 turn in which the copy that is written back was proven ("": none is)
--       12 turn of the deliberate change that the new value follows (0: none)
--       13 id of the first message that a trim kept ("": none)
--       14 turn to raise the stored one to at least
local meta = redis.call('HMGET', KEYS[2], 'turn', 'len', 'erased', 'adopted', 'cut')
local turn, cut = tonumber(ARGV[1]), math.max(number(meta[3]), number(meta[4]), number(meta[5]))
if turn > 0 and number(meta[1]) > turn then
  return {'moved', meta[1]}
end
local stored, len = redis.call('STRLEN', KEYS[1]), number(meta[2])
local same
if ARGV[2] == 'value' then
  same = stored == #ARGV[3] and redis.call('GET', KEYS[1]) == ARGV[3]
elseif ARGV[2] == 'version' then
  same = stored == tonumber(ARGV[4]) and redis.call('HGET', KEYS[2], 'sum') == ARGV[3]
else
  same = stored == 0 and (ARGV[2] == 'deleted') == (len > 0)
end
-- A copy from before a deliberate change brings nothing back.
if not same or ARGV[11] ~= '' and cut > tonumber(ARGV[11]) then
  return {'changed'}
end
local aside = stored
if ARGV[9] ~= '' then
  aside = #ARGV[9]
  redis.call('SET', KEYS[3], ARGV[9])
elseif ARGV[8] == '1' and stored > 0 then
  redis.call('RENAME', KEYS[1], KEYS[3])
else
  aside = 0
end
if aside > 0 then
  redis.call('HSET', KEYS[2], 'd:' .. string.match(KEYS[3], ':damaged:(.*)$'), aside)
  redis.call('PERSIST', KEYS[2])
end
if ARGV[5] == '' then
  redis.call('DEL', KEYS[1])
  -- marked with the turn, so that a copy elsewhere is not taken for what Redis lost
  redis.call('HDEL', KEYS[2], 'sum', 'len', 'count', 'begins')
  redis.call('HSET', KEYS[2], 'erased', ARGV[12])
else
  redis.call('SET', KEYS[1], ARGV[5])
  redis.call('HSET', KEYS[2], 'sum', ARGV[6], 'len', #ARGV[5], 'count', ARGV[7])
  redis.call('PERSIST', KEYS[2])
end
if tonumber(ARGV[12]) > cut then
  -- adopted is what the version before goes by
  redis.call('HSET', KEYS[2], 'cut', ARGV[12], 'adopted', ARGV[12])
end
local apart = gap(KEYS[2])
if ARGV[13] ~= '' then
  redis.call('HSET', KEYS[2], 'first', ARGV[13])
else
  redis.call('HDEL', KEYS[2], 'first')
end
if ARGV[11] == '' and not apart then
  join(KEYS[2])
elseif ARGV[11] ~= '' and ARGV[13] ~= '' and ARGV[2] == 'absent' then -- a copy does not tell what was archived
  redis.call('HSETNX', KEYS[2], 'joins', '?')
end
if tonumber(ARGV[14]) > number(meta[1]) then
  redis.call('HSET', KEYS[2], 'turn', ARGV[14])
end
if ARGV[10] ~= '' then
  -- A run that is replayed must find its messages applied.
  local last, order = {}, {}
  for _, text in ipairs({ARGV[10], redis.call('HGET', KEYS[2], 'applied') or ''}) do
    for id, at in string.gmatch(text, '(%S+)=(%d+)') do
      if not last[id] then
        order[#order + 1] = id
      end
      last[id] = math.max(last[id] or 0, tonumber(at))
    end
  end
  local kept = {}
  for i = 1, math.min(#order, 32) do
    kept[i] = order[i] .. '=' .. string.format('%.0f', last[order[i]])
  end
  redis.call('HSET', KEYS[2], 'applied', table.concat(kept, ' '))
end
return {'ok'}
