-- Lets a scope that is there live at least so long.
-- KEYS  the scope's entries
-- ARGV  time in ms
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return 'ok'
