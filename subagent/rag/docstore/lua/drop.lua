-- Removes a collection with all that belongs to it.
-- KEYS  documents, heads, ids, meta, log, vectors
local existed = redis.call('EXISTS', KEYS[4])
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
return {existed == 1 and 'dropped' or 'missing'}
