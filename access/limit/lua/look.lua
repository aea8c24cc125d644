-- Says how far limits are used: of each, in their order, what is spent, what is held, and the Unix time in s at which a
-- budget ends or a rate is unused again, 0 for none. A call that is held by a rate of tokens is spent there.
-- ARGV is what all scripts have; a limit may be of runs here, too.
sweep()
local answer = {}
for holder, kind, unit, limit, per in limits() do
  local spent, held, resets, field = 0, 0, 0, fieldOf(holder, kind, unit)
  if kind == 'budget' then
    local key, ends = period(per)
    local kept = redis.call('HMGET', key, field, field .. ':held')
    spent, held, resets = tonumber(kept[1] or 0), tonumber(kept[2] or 0), ends
  elseif kind == 'rate' then
    local at = tonumber(redis.call('GET', head .. ':rate:' .. field .. ':' .. per) or 0)
    if at > now then
      spent, resets = math.ceil((at - now) * tonumber(limit) / tonumber(per) - 0.001), math.ceil(at / 1000000)
    end
  elseif kind == 'runs' then
    held = redis.call('ZCOUNT', head .. ':runs:' .. field, int(math.floor(now / 1000)), '+inf')
  else
    held = tonumber(redis.call('HGET', head .. ':atonce', field) or 0)
  end
  for _, n in ipairs({spent, held, resets}) do answer[#answer + 1] = int(n) end
end
return answer
