-- Puts one document in place of the one with its id, unless that has the same hash or
-- is of another origin.
-- KEYS  documents, heads, ids, meta, log, vectors
-- ARGV  id, hash, document and head as JSON without the version they begin with, size, mark, length of the log,
--       its origin, or nothing; the id of its file
local version = redis.call('HGET', KEYS[4], 'version')
if not version then
  return {'missing'}
end
local word, freed = 'new', 0
local old = redis.call('HGET', KEYS[2], ARGV[1])
if old then
  local head = cjson.decode(old)
  local origin = head.origin or ''
  if ARGV[8] ~= '' and origin ~= '' and origin ~= ARGV[8]
    and origin ~= ARGV[8] .. '/' .. ARGV[9] and ARGV[8] ~= origin .. '/' .. ARGV[9] then
    return {'conflict', origin}
  end
  if head.hash == ARGV[2] then
    return {'unchanged', string.format('%.0f', head.version)}
  end
  word, freed = 'changed', head.bytes
end
-- %.0f: tostring would round a large number to 14 digits
version = string.format('%.0f', version + 1)
redis.call('HSET', KEYS[1], ARGV[1], '{"version":' .. version .. ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], '{"version":' .. version .. ARGV[4])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
redis.call('HSET', KEYS[4], 'version', version, 'mark', ARGV[6])
redis.call('HINCRBY', KEYS[4], 'bytes', string.format('%.0f', ARGV[5] - freed))
redis.call('XADD', KEYS[5], 'MAXLEN', '~', ARGV[7], version .. '-0', 'op', 'put', 'id', ARGV[1], 'mark', ARGV[6])
return {word, version}
