-- Adds records to the stream of usage.
-- KEYS  stream
-- ARGV  about how many it keeps; for each record the number of its words, and they
local at = 2
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return 0
