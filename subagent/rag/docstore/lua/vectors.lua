-- Keeps vectors, as long as there is the collection.
-- KEYS  documents, heads, ids, meta, log, vectors
-- ARGV  field, vector, field, vector …
if redis.call('EXISTS', KEYS[4]) == 0 then
  return {'missing'}
end
for i = 1, #ARGV, 2 do
  redis.call('HSET', KEYS[6], ARGV[i], ARGV[i + 1])
end
return {'ok'}
