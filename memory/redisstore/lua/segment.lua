-- Adds a segment to the archive of a history that is being imported. Only under the
-- newest turn, and only behind what is there.
-- KEYS  history, meta, archive
-- ARGV  turn, position, number of messages (0: none, and what an import left that broke off
--       goes), what describes the segment, the segment
local turn = redis.call('HGET', KEYS[2], 'turn')
if number(turn) > tonumber(ARGV[1]) then
  return {'moved', turn}
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  return {'changed'}
end
if ARGV[3] == '0' then
  redis.call('UNLINK', KEYS[3])
  redis.call('HDEL', KEYS[2], 'archived')
  return {'ok'}
end
if number(redis.call('HGET', KEYS[2], 'archived')) ~= tonumber(ARGV[2]) then
  return {'changed'}
end
redis.call('HSET', KEYS[3], ARGV[2], ARGV[5], ARGV[2] .. ':about', ARGV[4])
redis.call('HINCRBY', KEYS[3], 'bytes', #ARGV[5])
redis.call('HINCRBY', KEYS[3], 'messages', ARGV[3])
redis.call('HSET', KEYS[2], 'turn', ARGV[1])
redis.call('HINCRBY', KEYS[2], 'archived', ARGV[3])
redis.call('PERSIST', KEYS[2])
return {'ok'}
