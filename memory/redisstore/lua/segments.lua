-- Changes segments of an archive that are still as they were read, and its totals. ARGV has from
-- an index on for each: position, what describes it, what describes the new one, the new one
-- ('': it goes).
local function unchanged(archive, from)
  for i = from, #ARGV, 4 do
    if (redis.call('HGET', archive, ARGV[i] .. ':about') or '') ~= ARGV[i + 1] then
      return false
    end
  end
  return true
end

local function resegment(archive, from)
  local function messages(about)
    return tonumber(string.match(about, '^%d+') or '0')
  end
  for i = from, #ARGV, 4 do
    local bytes = redis.call('HSTRLEN', archive, ARGV[i])
    if ARGV[i + 3] == '' then
      redis.call('HDEL', archive, ARGV[i], ARGV[i] .. ':about')
    else
      redis.call('HSET', archive, ARGV[i], ARGV[i + 3], ARGV[i] .. ':about', ARGV[i + 2])
    end
    redis.call('HINCRBY', archive, 'bytes', #ARGV[i + 3] - bytes)
    redis.call('HINCRBY', archive, 'messages', messages(ARGV[i + 2]) - messages(ARGV[i + 1]))
  end
  if from <= #ARGV and number(redis.call('HGET', archive, 'messages')) == 0 then
    redis.call('UNLINK', archive)
  end
end
