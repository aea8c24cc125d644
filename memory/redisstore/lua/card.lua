-- Changes what a person has said of a chat that there is.
-- KEYS  meta of the chat's history, that history
-- ARGV  fields and values ("": it goes)
if redis.call('STRLEN', KEYS[2]) == 0 then
  local known = redis.call('HMGET', KEYS[1], 'begins', 'title', 'metadata', 'open', 'waits')
  if not (known[1] or known[2] or known[3] or known[4] or known[5]) then
    return {'none'}
  end
end
for i = 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[i])
  else
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end
redis.call('PERSIST', KEYS[1])
return {'ok'}
