-- Uses commands that the scripts of a turn use, on a key of its own that it removes. An error names the command, which
-- Redis before 7.2 does not.
-- KEYS  the key
for _, command in ipairs({
  {'SET', KEYS[1], '[]', 'PX', 60000}, {'PTTL', KEYS[1]}, {'PEXPIRE', KEYS[1], 60000}, {'PERSIST', KEYS[1]},
  {'SETRANGE', KEYS[1], 1, ']'}, {'STRLEN', KEYS[1]}, {'GETRANGE', KEYS[1], 0, 1}, {'GET', KEYS[1]}, {'DEL', KEYS[1]},
  {'HSET', KEYS[1], 'turn', 1}, {'HSETNX', KEYS[1], 'turn', 1}, {'HINCRBY', KEYS[1], 'turn', 1},
  {'HGET', KEYS[1], 'turn'}, {'HMGET', KEYS[1], 'turn'}, {'HLEN', KEYS[1]}, {'HKEYS', KEYS[1]}, {'HDEL', KEYS[1], 'turn'},
  {'XADD', KEYS[1], '1-1', 'event', ''}, {'XRANGE', KEYS[1], '-', '+'}, {'EXPIRE', KEYS[1], 60}, {'UNLINK', KEYS[1]},
  {'ZADD', KEYS[1], 1, 'chat'}, {'ZRANGE', KEYS[1], 0, 0}, {'ZREM', KEYS[1], 'chat'},
}) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then
    return redis.error_reply(reply.err .. ' (command ' .. command[1] .. ')')
  end
end
return {'ok'}
