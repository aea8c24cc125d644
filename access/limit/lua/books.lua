-- The books of one tenant. KEYS[1] is the head of all of its keys: they begin with it, and so lie in its slot of a
-- Cluster. Which of them a script touches hangs on Redis's clock and on what is kept, so they cannot be listed before.
--
--   HEAD:live           zset: reservations by the time at which their lease ends, in ms
--   HEAD:calls          hash: what each of them holds, as JSON
--   HEAD:done:ID        how a call ended, for a time: an expired reservation as JSON, else "done"
--   HEAD:day:… :month:… :total   hashes: what is spent, and under FIELD:held what live reservations hold
--   HEAD:atonce         hash: calls that run
--   HEAD:rate:FIELD:PER the time in µs at which a rate is unused again (GCRA's theoretical arrival time)
--
-- A reservation is {t: tokens, m: millionths of a USD, p: policy, b: budgets, o: fields of atonce, r: rates of tokens};
-- a budget in it is {key, field, unit, when the key may go, in Unix seconds}, a rate {key, µs per token}.
--
-- KEYS[2], if any, is the HEAD:done:ID of a charge that Redis has taken from the process that asks, not long ago. If it
-- is not there Redis has lost data: what is spent may be more than the books say, so nothing is done.
if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 0 then return {'lost'} end
local head = KEYS[1]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local DAY = 86400
local EXPIRED = 86400000 -- ms for which the charge of an expired reservation can be put right

-- int is a number without an exponent, as commands want it.
local function int(n) return string.format('%.0f', n) end

-- civil is the date of a day since 1970, in the Gregorian calendar (Howard Hinnant's civil_from_days).
local function civil(days)
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp + 3
  if mp > 9 then month = mp - 9 end
  local year = yoe + era * 400
  if month < 3 then year = year + 1 end
  return year, month, doy - math.floor((153 * mp + 2) / 5) + 1
end

-- nextMonth is the first day of the month after the one in which a day is.
local function nextMonth(days)
  local _, _, day = civil(days)
  local within = days - day + 1 + 31
  _, _, day = civil(within)
  return within - day + 1
end

-- reckon gives the key of the period that is now, the time at which it ends and the one until which it is kept, in Unix
-- seconds; 0 for never.
local function reckon(name)
  if name == 'total' then return head .. ':total', 0, 0 end
  local today = math.floor(now / 1000000 / DAY)
  local year, month, day = civil(today)
  if name == 'day' then
    return head .. string.format(':day:%04d-%02d-%02d', year, month, day), (today + 1) * DAY, (today + 3) * DAY
  end
  local ends = nextMonth(today)
  return head .. string.format(':month:%04d-%02d', year, month), ends * DAY, nextMonth(ends) * DAY
end

-- period is reckon, which the budgets of one call ask for once each.
local reckoned = {}
local function period(name)
  reckoned[name] = reckoned[name] or {reckon(name)}
  return unpack(reckoned[name])
end

local function of(unit, tokens, micros)
  if unit == 'usd' then return micros end
  return tokens
end

-- limits are those of a text, for a loop: five words each, which are the holder, as its place in ARGV behind the text;
-- budget, rate or atonce; the unit; the limit; the period, or the µs that a rate is per.
local function limits(text) return string.gmatch(text, '(%d+) (%a+) (%a+) (%d+) (%S+) ') end

-- fieldOf is the field of a limit of which the text was ARGV[6].
local function fieldOf(holder, kind, unit)
  if kind == 'atonce' then return ARGV[6 + tonumber(holder)] end
  return ARGV[6 + tonumber(holder)] .. ':' .. unit
end

-- add adds to a field of a budget. A key that this made, in which no other field can be, gets its time to go.
local function add(b, field, n)
  if n == 0 then return end
  n = int(n)
  if int(redis.call('HINCRBY', b[1], field, n)) == n and b[4] > 0 then redis.call('EXPIREAT', b[1], int(b[4])) end
end

-- book changes what a budget has spent and what it holds.
local function book(b, spent, held)
  add(b, b[2], spent)
  add(b, b[2] .. ':held', held)
end

-- arrive sets the time at which a rate is unused again.
local function arrive(key, at)
  if at <= now then
    redis.call('DEL', key)
  else
    redis.call('SET', key, int(at), 'PX', int(math.ceil((at - now) / 1000)))
  end
end

-- charge puts tokens and micros in the place of what was charged before, and takes what is held.
local function charge(r, tokens, micros, heldTokens, heldMicros, beforeTokens, beforeMicros)
  for _, b in ipairs(r.b) do
    book(b, of(b[3], tokens, micros) - of(b[3], beforeTokens, beforeMicros), -of(b[3], heldTokens, heldMicros))
  end
  local more = tokens - heldTokens - beforeTokens
  for _, rate in ipairs(r.r) do
    local at = tonumber(redis.call('GET', rate[1]) or now)
    if more ~= 0 then arrive(rate[1], math.max(at, now) + more * rate[2]) end
  end
end

-- close ends a live reservation.
local function close(id, r, tokens, micros)
  charge(r, tokens, micros, r.t, r.m, 0, 0)
  for _, field in ipairs(r.o) do
    if redis.call('HINCRBY', head .. ':atonce', field, -1) <= 0 then redis.call('HDEL', head .. ':atonce', field) end
  end
  redis.call('ZREM', head .. ':live', id)
  redis.call('HDEL', head .. ':calls', id)
end

-- sweep ends the reservations after the end of their lease, each by the policy under which it was made.
local function sweep()
  while true do
    local ids = redis.call('ZRANGEBYSCORE', head .. ':live', '-inf', int(math.floor(now / 1000)), 'LIMIT', 0, 100)
    if #ids == 0 then return end
    for _, id in ipairs(ids) do
      local text = redis.call('HGET', head .. ':calls', id)
      if text then
        local r = cjson.decode(text)
        local tokens, micros = r.t, r.m
        if r.p == 'release' then tokens, micros = 0, 0 end
        close(id, r, tokens, micros)
        r.t, r.m = tokens, micros
        redis.call('SET', head .. ':done:' .. id, cjson.encode(r), 'PX', EXPIRED)
      else
        redis.call('ZREM', head .. ':live', id)
      end
    end
  end
end

