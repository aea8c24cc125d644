-- Takes a member out of a sorted set that still has the score it was seen with.
-- KEYS  sorted set
-- ARGV  member, score
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if score and tonumber(score) == tonumber(ARGV[2]) then
  return {'gone', redis.call('ZREM', KEYS[1], ARGV[1])}
end
return {'ok'}
