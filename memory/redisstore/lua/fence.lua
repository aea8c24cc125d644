-- Refuses a write of a turn that is not the newest one. A write of no turn passes.
-- KEYS  meta
-- ARGV  turn (0 or less: no turn's write)
local turn = tonumber(ARGV[1]) > 0 and redis.call('HGET', KEYS[1], 'turn')
if turn and number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
