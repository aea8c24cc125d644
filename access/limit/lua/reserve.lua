-- Admits a call iff every limit has room for it. A call that is refused changes nothing; one that comes again is
-- admitted and not counted again, unless it takes more than it holds: then every limit must have room for the rest.
-- ARGV, behind what all scripts have: the lease in ms, and the policy.
-- Answers {ok, which rate or budget from 1 has the smallest share left, 0 for none, what remains of it, and the µs
-- until a rate or the s until a budget is unused}, {repeated} or {refused, which limit from 1, and of a budget spent,
-- held and the Unix time in s at which it ends; of a rate the µs to wait, -1 for never; of atonce how many run}.
sweep()
if redis.call('SISMEMBER', seen, id) == 1 or redis.call('EXISTS', head .. ':done:' .. id) == 1 then
  return {'repeated'}
end
local calls, before = 1, redis.call('HGET', head .. ':calls', id)
if before then
  calls, before = 0, cjson.decode(before)
  if tokens <= before.t and micros <= before.m then return {'repeated'} end
  tokens, micros = math.max(0, tokens - before.t), math.max(0, micros - before.m)
end

local r = {t = tokens, m = micros, p = ARGV[13], b = {}, o = {}, r = {}, n = {}}
for i = 9, 11 do if ARGV[i] ~= '' then r.n[#r.n + 1] = ARGV[i] end end
local arrivals, which = {}, 0
local share, answer = 2, {'ok', '0'}
local function left(remaining, limit, reset)
  if remaining / limit < share then
    share, answer = remaining / limit, {'ok', int(which), int(remaining), int(reset)}
  end
end

for holder, kind, unit, limit, per in limits() do
  which, limit = which + 1, tonumber(limit)
  local field = fieldOf(holder, kind, unit)
  if kind == 'budget' then
    local key, ends, forget = period(per)
    local kept = redis.call('HMGET', key, field, field .. ':held')
    local spent, held, cost = tonumber(kept[1] or 0), tonumber(kept[2] or 0), of(unit, tokens, micros)
    if spent + held + cost > limit then return {'refused', int(which), int(spent), int(held), int(ends)} end
    r.b[#r.b + 1] = {key, field, unit, forget}
    left(limit - spent - held - cost, limit, math.max(0, ends - now / 1000000))
  elseif kind == 'rate' then
    local key = head .. ':rate:' .. field .. ':' .. per
    per = tonumber(per)
    local each, cost = per / limit, calls
    if unit == 'tokens' then cost = tokens end
    local at = math.max(now, tonumber(redis.call('GET', key) or 0)) + cost * each
    if cost > limit then return {'refused', int(which), '-1'} end
    -- A hair of room: a limit of three in a minute must let three pass, although a third is no round number.
    if at - now > per + 1 then return {'refused', int(which), int(math.ceil(at - now - per))} end
    arrivals[#arrivals + 1] = {key, at}
    if unit == 'tokens' then r.r[#r.r + 1] = {key, each} end
    left(math.max(0, math.floor((per - (at - now)) / each + 0.001)), limit, at - now)
  elseif calls == 1 then
    local running = tonumber(redis.call('HGET', head .. ':atonce', field) or 0)
    if running >= limit then return {'refused', int(which), int(running)} end
    r.o[#r.o + 1] = field
  end
end

if before then -- what it holds stays in the books in which it was
  before.t, before.m = before.t + tokens, before.m + micros
  r = before
end
for _, b in ipairs(r.b) do book(b, 0, of(b[3], tokens, micros)) end
for _, a in ipairs(arrivals) do arrive(a[1], a[2]) end
if calls == 1 then
  for _, field in ipairs(r.o) do redis.call('HINCRBY', head .. ':atonce', field, 1) end
end
redis.call('HSET', head .. ':calls', id, cjson.encode(r))
redis.call('ZADD', head .. ':live', int(math.floor(now / 1000) + tonumber(ARGV[12])), id)
return answer
