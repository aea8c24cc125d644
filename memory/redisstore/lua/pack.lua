-- Writes the log of a run that is over anew, if it still ends as it was read: what
-- was erased meanwhile must not come back. Before the end nothing of a log changes.
-- KEYS  log
-- ARGV  for each entry: id, last line, field of the lines before it or '', those lines
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if #last == 0 or last[1][1] ~= ARGV[#ARGV - 3] then
  return {'changed'}
end
local fields = last[1][2]
for i = 1, #fields, 2 do
  if fields[i] == 'e' and fields[i + 1] ~= ARGV[#ARGV - 2] then
    return {'changed'}
  end
end
local left = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
for i = 1, #ARGV, 4 do
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
