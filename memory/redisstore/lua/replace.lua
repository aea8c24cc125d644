-- Puts a value in the place of the one that the caller saw: compare and set.
-- KEYS  history, meta, where a damaged value goes
-- ARGV  turn, what must still hold ("value", "version", "absent"), the old value or its sum,
--       old len, new value ("": none), its sum, count, keep the old value (1 or 0),
--       "run=seq …" of what is written back
local turn = redis.call('HGET', KEYS[2], 'turn')
if number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
local stored = redis.call('STRLEN', KEYS[1])
local same
if ARGV[2] == 'value' then
  same = stored == #ARGV[3] and redis.call('GET', KEYS[1]) == ARGV[3]
elseif ARGV[2] == 'version' then
  same = stored == tonumber(ARGV[4]) and redis.call('HGET', KEYS[2], 'sum') == ARGV[3]
else
  same = stored == 0
end
if not same then
  return {'changed'}
end
if ARGV[8] == '1' and stored > 0 then
  redis.call('RENAME', KEYS[1], KEYS[3])
  redis.call('HSET', KEYS[2], 'd:' .. string.match(KEYS[3], ':damaged:(.*)$'), stored)
  redis.call('PERSIST', KEYS[2])
end
if ARGV[5] == '' then
  redis.call('DEL', KEYS[1])
  -- marked with the turn, so that a copy elsewhere is not taken for what Redis lost
  redis.call('HDEL', KEYS[2], 'sum', 'len', 'count')
  redis.call('HSET', KEYS[2], 'erased', ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[5])
  redis.call('HSET', KEYS[2], 'sum', ARGV[6], 'len', #ARGV[5], 'count', ARGV[7])
  redis.call('PERSIST', KEYS[2])
  if ARGV[2] == 'value' then
    redis.call('HSET', KEYS[2], 'adopted', ARGV[1])
  end
end
if ARGV[9] ~= '' then
  -- A run that is replayed must find its messages applied.
  local last, order = {}, {}
  for _, text in ipairs({ARGV[9], redis.call('HGET', KEYS[2], 'applied') or ''}) do
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
