-- Keeps a run's final answer; of a run that no post can repeat only that it is over,
-- since nobody asks for the answer, and its events have it.
-- KEYS  record
-- ARGV  answer, life in ms, life in ms of a record that no post asks for
local life, answer = ARGV[2], ARGV[1]
if redis.call('HEXISTS', KEYS[1], 'unkeyed') == 1 then
  life, answer = ARGV[3], '{}'
end
redis.call('HSET', KEYS[1], 'result', answer)
redis.call('PEXPIRE', KEYS[1], life)
return {life}
