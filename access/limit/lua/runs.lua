-- Counts runs at once: a zset for each holder, HEAD:runs:FIELD, of the runs that go on, by the time in ms at which
-- their lease ends.
-- KEYS[1]: HEAD. ARGV: what is to be done; the run's id; its lease in ms; and for each holder its field and its limit.
-- To enter is to be counted iff every holder has room; a run that is counted already has. To stay prolongs the lease
-- of a run that is let in, whatever the limits. To leave ends it. Answers {ok} or {refused, which holder from 1}.
local head, what, id, lease = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

if what == 'enter' then
  for i = 4, #ARGV, 2 do
    local key = head .. ':runs:' .. ARGV[i]
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
    if not redis.call('ZSCORE', key, id) and redis.call('ZCARD', key) >= tonumber(ARGV[i + 1]) then
      return {'refused', tostring((i - 2) / 2)}
    end
  end
end
for i = 4, #ARGV, 2 do
  local key = head .. ':runs:' .. ARGV[i]
  if what == 'leave' then
    redis.call('ZREM', key, id)
  else
    redis.call('ZADD', key, string.format('%.0f', now + lease), id)
    redis.call('PEXPIRE', key, lease)
  end
end
return {'ok'}
