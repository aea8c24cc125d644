-- Notes the run that a turn is taken for, and prolongs the lease; only for the token
-- that holds it. Answers with what is known of losses of the chat, and
-- whether it may have notes, and of tools that were approved.
-- KEYS  lease, meta of the chat's history, that history
-- ARGV  token, lease in ms, the run's record, the beginning of a chat that has nothing yet ("": none), the user
--       under whom it is posted ("*": nobody, "": it was posted before)
redis.call('HSET', KEYS[2], 'open', ARGV[3])
redis.call('HDEL', KEYS[2], 'waits') -- at most one run of a chat is not over
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[4] ~= '' and redis.call('STRLEN', KEYS[3]) == 0 then
  redis.call('HSET', KEYS[2], 'begins', ARGV[4])
end
if ARGV[5] ~= '' then
  local user = redis.call('HGET', KEYS[2], 'user')
  if not user then -- of a chat that nobody has posted in, or of one from before this was noted
    user = redis.call('STRLEN', KEYS[3]) == 0 and ARGV[5] or '*'
    for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
      if string.sub(field, 1, 2) == 's:' then
        user = '*'
      end
    end
    redis.call('HSET', KEYS[2], 'user', user)
  elseif user ~= ARGV[5] then
    redis.call('HSET', KEYS[2], 'user', '*')
  end
end
local loss = redis.call('HMGET', KEYS[2], 'lost', 'told', 'notes', 'approved', 'quarantine')
return {'ok', loss[1] or '', loss[2] or '', loss[3] or '', loss[4] or '', loss[5] or ''}
