-- Answers with born, last, and the entries of a scope behind a mark, oldest first; with
-- all of them if the mark is of another birth.
-- KEYS  the scope's entries
-- ARGV  born, last
local state = redis.call('HMGET', KEYS[1], 'born', 'last', 'first')
if not state[1] then
  return {'', '0'}
end
local from = tonumber(state[3] or '1')
if state[1] == ARGV[1] and tonumber(ARGV[2]) >= from then
  from = tonumber(ARGV[2]) + 1
end
local reply = {state[1], state[2]}
for i = from, tonumber(state[2]) do
  local entry = redis.call('HGET', KEYS[1], tostring(i))
  if entry then
    reply[#reply + 1] = entry
  end
end
return reply
