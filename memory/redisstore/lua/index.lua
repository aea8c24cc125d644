-- Notes that a subagent has a history in the chat, before its first message. Only
-- under the chat's newest turn: whoever takes a newer one is told what is noted, and
-- raises the turn of all of it.
-- KEYS  meta of the chat's history
-- ARGV  turn (0: no turn's write, whose history takes on the chat's number), field
local turn = redis.call('HGET', KEYS[1], 'turn')
if ARGV[1] ~= '0' and number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
if redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[1]) == 1 then
  redis.call('HDEL', KEYS[1], 'agents')
end
redis.call('PERSIST', KEYS[1])
return {'ok', string.format('%.0f', number(turn))}
