-- Deletes one document; what stays of it is an entry of the log.
-- KEYS  documents, heads, ids, meta, log, vectors
-- ARGV  id, mark, length of the log
local version = redis.call('HGET', KEYS[4], 'version')
if not version then
  return {'missing'}
end
local old = redis.call('HGET', KEYS[2], ARGV[1])
if not old then
  return {'absent'}
end
version = string.format('%.0f', version + 1)
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[4], 'version', version, 'mark', ARGV[2])
redis.call('HINCRBY', KEYS[4], 'bytes', string.format('%.0f', -cjson.decode(old).bytes))
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[3], version .. '-0', 'op', 'delete', 'id', ARGV[1], 'mark', ARGV[2])
return {'deleted', version}
