-- Takes a chat's turn: the lease and the number that fences older holders. Answers
-- with the run that an earlier holder left open, if any, the one that waits, the change that one has begun and not
-- finished, and the subagents of the index.
-- Every answer tells the turn of the chat's last erasure, "0" for none; a refusal also
-- the token that stands in the way.
-- KEYS  lease, meta of the chat's history, token of who goes first
-- ARGV  token, lease in ms, Unix ms, a conversation id for a chat that has none
local erased = redis.call('HGET', KEYS[2], 'erased') or '0'

-- A token ends by itself; what does not is of somebody else, and would hold the chat for ever.
local function token(key)
  if redis.call('PTTL', key) == -1 then
    redis.call('GET', key) -- of another type: set aside
    redis.call('DEL', key)
  end
  return redis.call('GET', key)
end

local first = token(KEYS[3])
if first and first ~= ARGV[1] and string.sub(ARGV[1], 1, 6) ~= 'erase:' then
  if string.sub(first, 1, 6) == 'erase:' then
    return {'erasing', redis.call('PTTL', KEYS[3]), erased, first}
  end
  return {'claimed', redis.call('PTTL', KEYS[3]), erased, first}
end
local owner = token(KEYS[1])
if owner and owner ~= ARGV[1] then
  return {'held', redis.call('PTTL', KEYS[1]), erased, owner}
end
local turn = number(redis.call('HGET', KEYS[2], 'turn')) + 1
if turn < tonumber(ARGV[3]) then
  turn = tonumber(ARGV[3])
end
-- %.0f: tostring would round a number of this size to 14 digits
turn = string.format('%.0f', turn)
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'turn', turn)
if not string.match(redis.call('HGET', KEYS[2], 'conversation') or '', '^[%w_-]+$') then
  redis.call('HSET', KEYS[2], 'conversation', ARGV[4])
end
redis.call('PERSIST', KEYS[2])
local reply = {'ok', turn, erased, redis.call('HGET', KEYS[2], 'conversation'), redis.call('HGET', KEYS[2], 'open') or '',
  redis.call('HGET', KEYS[2], 'pending') or '', redis.call('HGET', KEYS[2], 'waits') or ''}
-- Of an index with many runs the subagents are noted by themselves, so that a turn does not cost more
-- the more of them there are.
local long = redis.call('HLEN', KEYS[2]) > 64
local agents = long and redis.call('HGET', KEYS[2], 'agents')
if agents then
  for name in string.gmatch(agents, '%S+') do
    reply[#reply + 1] = name
  end
  return reply
end
for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
  if string.sub(field, 1, 2) == 's:' then
    reply[#reply + 1] = string.sub(field, 3)
  end
end
if long then
  redis.call('HSET', KEYS[2], 'agents', table.concat(reply, ' ', 8))
end
return reply
