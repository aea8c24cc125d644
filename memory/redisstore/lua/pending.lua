-- Notes that a change of the chat's memory has begun, which is more than one command, or that it
-- is done: who takes the turn of a dead process brings it to its end. What was set aside for it does
-- not expire until then.
-- KEYS  meta of the chat's history, what a rewind took back (absent: it is none)
-- ARGV  turn, the change ("": it is done), life of what was set aside in ms, Unix ms at which that ends,
--       what describes a rewind that begins ("": it is described, or none)
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], 'pending')
else
  redis.call('HSET', KEYS[1], 'pending', ARGV[2])
end
redis.call('PERSIST', KEYS[1])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[2], 'about', ARGV[5])
end
if KEYS[2] and ARGV[2] ~= '' then
  redis.call('PERSIST', KEYS[2])
elseif KEYS[2] and redis.call('PEXPIRE', KEYS[2], ARGV[3]) == 1 then
  redis.call('HSET', KEYS[1], 'a:' .. string.match(KEYS[2], '[^:]*$'), ARGV[4])
end
return {'ok'}
