-- Adds calls to the counters of one tenant, each call once.
-- KEYS  what all keys of the tenant begin with
-- ARGV  ms that a request is remembered; ms that counters are kept; for each call: its hour, its request, its day,
--       input, cached, output, micros, 1 if it has no price; the number of its names, and they: dimension, name
local remember, keep = ARGV[1], ARGV[2]
local at = 3
while at <= #ARGV do
  local seen = KEYS[1] .. ':seen:' .. ARGV[at]
  local names = tonumber(ARGV[at + 8])
  if ARGV[at + 1] == '' or redis.call('SADD', seen, ARGV[at + 1]) == 1 then
    redis.call('PEXPIRE', seen, remember)
    for i = at + 9, at + 8 + 2 * names, 2 do
      local key = KEYS[1] .. ':' .. ARGV[at + 2] .. ':' .. ARGV[i]
      local row = {1, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6]),
        tonumber(ARGV[at + 7])}
      local had, n = redis.call('HGET', key, ARGV[i + 1]), 0
      if had then
        for word in string.gmatch(had, '%d+') do
          n = n + 1
          if row[n] then row[n] = row[n] + tonumber(word) end
        end
      end
      redis.call('HSET', key, ARGV[i + 1], string.format('%.0f %.0f %.0f %.0f %.0f %.0f', row[1], row[2], row[3],
        row[4], row[5], row[6]))
      redis.call('PEXPIRE', key, keep)
    end
  end
  at = at + 9 + 2 * names
end
return 0
