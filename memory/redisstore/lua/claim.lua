-- Grants a call of a tool once, under the chat's newest turn and its lease. A call that was granted
-- and has no result is granted again only if it may be repeated.
-- KEYS  lease, meta of the chat's history, calls of the run
-- ARGV  token, turn, id of the call, the call, 1 if it may be repeated, life in ms
local turn = redis.call('HGET', KEYS[2], 'turn')
if redis.call('GET', KEYS[1]) ~= ARGV[1] or number(turn) ~= tonumber(ARGV[2]) then
  return {'moved', turn}
end
local result = redis.call('HGET', KEYS[3], ARGV[3] .. ':result')
if result then
  return {'done', result}
end
if redis.call('HSETNX', KEYS[3], ARGV[3], ARGV[4]) == 0 and ARGV[5] ~= '1' then
  return {'unknown'}
end
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[6]) then
  redis.call('PEXPIRE', KEYS[3], ARGV[6])
end
return {'granted'}
