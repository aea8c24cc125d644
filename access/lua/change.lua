-- Sets fields of a key's record, if there is one and if its hash is still the one that was read.
--
-- KEYS: the record (hash)
-- ARGV: the hash that was read, "" for any; then fields and values
-- Returns 1 if they were set.
local hash = redis.call('HGET', KEYS[1], 'hash')
if not hash or (ARGV[1] ~= '' and ARGV[1] ~= hash) then
  return 0
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return 1
