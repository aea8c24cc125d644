-- Keeps what a granted call returned, under the chat's newest turn; the first result stays.
-- KEYS  meta of the chat's history, calls of the run
-- ARGV  turn, id of the call, the result
local turn = redis.call('HGET', KEYS[1], 'turn')
if number(turn) ~= tonumber(ARGV[1]) then
  return {'moved', turn}
end
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 0 then
  return {'unknown'}
end
redis.call('HSETNX', KEYS[2], ARGV[2] .. ':result', ARGV[3])
return {'ok'}
