-- Lets a scope that is there live at least so long.
-- KEYS  the scope's entries
-- ARGV  time in ms
atleast(KEYS[1], ARGV[1])
return 'ok'
