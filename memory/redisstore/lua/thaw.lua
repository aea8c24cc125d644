-- Brings back what a history has in the cold store and not in Redis; what is there stays, as that of another program.
-- The turn fences a sweeper that was paused, and an earlier thaw. A lease on nothing has made another conversation.
-- The archive comes with the id of the message that follows it.
-- KEYS  meta, a string, a hash
-- ARGV  turn, value of the string ('': none), fields of the hash and their values
redis.call('HSET', KEYS[1], 'turn', ARGV[1])
redis.call('PERSIST', KEYS[1])
if ARGV[2] ~= '' then
  redis.call('SETNX', KEYS[2], ARGV[2])
end
for i = 3, #ARGV, 2 do -- the meta's turn is there by now
  local unknown = ARGV[i] == 'joins' and redis.call('HGET', KEYS[3], 'joins') == '?'
  redis.call((unknown or ARGV[i] == 'conversation') and 'HSET' or 'HSETNX', KEYS[3], ARGV[i], ARGV[i + 1])
end
return {'ok'}
