-- Refuses a write of a turn that is not the newest one.
-- KEYS  meta
-- ARGV  turn (0 or less: no turn's write)
local turn = redis.call('HGET', KEYS[1], 'turn')
if tonumber(ARGV[1]) > 0 and number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
