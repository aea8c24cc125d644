-- Refuses a write of a turn that is not the newest one.
-- KEYS  meta
-- ARGV  turn
local turn = redis.call('HGET', KEYS[1], 'turn')
if number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
