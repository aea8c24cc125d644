-- Admits a call iff every limit has room for it. A call that is refused changes nothing; one that comes again is
-- admitted and not counted again.
-- ARGV: id, lease in ms, tokens, micros, policy, then five words for each limit: budget, rate or atonce; its field;
-- its unit; the limit; its period, or the µs that a rate is per.
-- Answers {ok, remaining and µs or s until the reset of each limit …}, {repeated} or {refused, which limit from 1, and
-- of a budget spent, held and the Unix time in s at which it ends; of a rate the µs to wait, -1 for never; of atonce
-- how many run}.
local id, tokens, micros = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
sweep()
if redis.call('HEXISTS', head .. ':calls', id) == 1 or redis.call('EXISTS', head .. ':done:' .. id) == 1 then
  return {'repeated'}
end

local r = {t = tokens, m = micros, p = ARGV[5], b = {}, o = {}, r = {}}
local arrivals, answer = {}, {'ok'}
local function left(remaining, reset)
  answer[#answer + 1] = int(remaining)
  answer[#answer + 1] = int(reset)
end

for i = 6, #ARGV, 5 do
  local kind, field, unit, limit, per = ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local which = int((i - 6) / 5 + 1)
  if kind == 'budget' then
    local key, ends, forget = period(per)
    local kept = redis.call('HMGET', key, field, field .. ':held')
    local spent, held, cost = tonumber(kept[1] or 0), tonumber(kept[2] or 0), of(unit, tokens, micros)
    if spent + held + cost > limit then return {'refused', which, int(spent), int(held), int(ends)} end
    r.b[#r.b + 1] = {key, field, unit, forget}
    left(limit - spent - held - cost, math.max(0, ends - now / 1000000))
  elseif kind == 'rate' then
    per = tonumber(per)
    local each, cost = per / limit, 1
    if unit == 'tokens' then cost = tokens end
    local key = head .. ':rate:' .. field .. ':' .. ARGV[i + 4]
    local at = math.max(now, tonumber(redis.call('GET', key) or 0)) + cost * each
    if cost > limit then return {'refused', which, '-1'} end
    -- A hair of room: a limit of three in a minute must let three pass, although a third is no round number.
    if at - now > per + 1 then return {'refused', which, int(math.ceil(at - now - per))} end
    arrivals[#arrivals + 1] = {key, at}
    if unit == 'tokens' then r.r[#r.r + 1] = {key, each} end
    left(math.max(0, math.floor((per - (at - now)) / each + 0.001)), at - now)
  else
    local running = tonumber(redis.call('HGET', head .. ':atonce', field) or 0)
    if running >= limit then return {'refused', which, int(running)} end
    r.o[#r.o + 1] = field
    left(limit - running - 1, 0)
  end
end

for _, b in ipairs(r.b) do book(b, 0, of(b[3], tokens, micros)) end
for _, a in ipairs(arrivals) do arrive(a[1], a[2]) end
for _, field in ipairs(r.o) do redis.call('HINCRBY', head .. ':atonce', field, 1) end
redis.call('HSET', head .. ':calls', id, cjson.encode(r))
redis.call('ZADD', head .. ':live', int(math.floor(now / 1000) + tonumber(ARGV[2])), id)
return answer
