-- Writes the log of a run that is over anew, if it still ends as it was read: what
-- was erased meanwhile must not come back. Before the end nothing of a log changes.
-- KEYS  log
-- ARGV  id of its last entry, then for each entry: id, last line, field of the lines before it or '', those lines
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if #last == 0 or last[1][1] ~= ARGV[1] then
  return {'changed'}
end
local left = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
for i = 2, #ARGV, 4 do
  if ARGV[i + 2] == '' then
    redis.call('XADD', KEYS[1], ARGV[i], 'e', ARGV[i + 1])
  else
    redis.call('XADD', KEYS[1], ARGV[i], 'e', ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
  end
end
if left > 0 then
  redis.call('PEXPIRE', KEYS[1], left)
end
return {'ok'}
