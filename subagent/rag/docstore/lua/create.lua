-- Makes a collection, unless there is one.
-- KEYS  documents, heads, ids, meta, log, vectors
-- ARGV  mark, Unix ms
if redis.call('EXISTS', KEYS[4]) == 1 then
  return {'exists'}
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6])
redis.call('HSET', KEYS[4], 'version', 1, 'mark', ARGV[1], 'bytes', 0, 'created', ARGV[2])
redis.call('XADD', KEYS[5], '1-0', 'op', 'create', 'mark', ARGV[1])
return {'created'}
