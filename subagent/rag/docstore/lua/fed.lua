-- Notes how far an index elsewhere was fed, unless another process noted something since.
-- KEYS  documents, heads, ids, meta, log, vectors
-- ARGV  what was noted before, or nothing; what to note
if redis.call('EXISTS', KEYS[4]) == 0 then
  return {'missing'}
end
if (redis.call('HGET', KEYS[4], 'fed') or '') ~= ARGV[1] then
  return {'other'}
end
redis.call('HSET', KEYS[4], 'fed', ARGV[2])
return {'ok'}
