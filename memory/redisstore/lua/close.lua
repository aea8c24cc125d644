-- Gives a turn back whose run is over: it is open no more, the index says until when
-- something is kept of it, and forgets runs of which nothing is. Only for the token
-- that holds the lease.
-- KEYS  lease, meta of the chat's history, what a waiting run goes on from, the run's calls
-- ARGV  token, the run's field in the index, its Unix ms, the Unix ms of now, the field of the run
--       whose calls these are
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('HDEL', KEYS[2], 'open')
local run, waited = string.sub(ARGV[2], 3), 1
if redis.call('HGET', KEYS[3], 'run') == run then
  redis.call('DEL', KEYS[3])
  waited = 2
end
if string.find(redis.call('HGET', KEYS[2], 'waits') or '', '"run":"' .. run .. '"', 1, true) then
  redis.call('HDEL', KEYS[2], 'waits')
  waited = 2
end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
if redis.call('PEXPIREAT', KEYS[4], ARGV[3]) == 1 then
  redis.call('HSET', KEYS[2], ARGV[5], ARGV[3])
end
-- A long index is looked through when it has doubled, so that this costs no more the more runs there are.
local size = redis.call('HLEN', KEYS[2])
if size <= 64 or size >= 2 * number(redis.call('HGET', KEYS[2], 'kept')) then
  local fields = redis.call('HGETALL', KEYS[2])
  for i = 1, #fields, 2 do
    local till = tonumber(fields[i + 1])
    if string.sub(fields[i], 1, 2) == 'r:' and till and till < tonumber(ARGV[4]) then
      redis.call('HDEL', KEYS[2], fields[i])
    end
  end
  if size > 64 then
    redis.call('HSET', KEYS[2], 'kept', redis.call('HLEN', KEYS[2]))
  end
end
redis.call('DEL', KEYS[1])
return waited -- 2: the run had waited
