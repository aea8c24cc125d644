-- The books of one tenant. KEYS[1] is the head of all of its keys, and KEYS[2] of its counters: they begin with them,
-- and so lie in their slot of a Cluster. Which of them a script touches hangs on Redis's clock and on what is kept, so
-- they cannot be listed before.
--
--   HEAD:live           zset: reservations by the time at which their lease ends, in ms
--   HEAD:calls          hash: what each of them holds, as JSON
--   HEAD:done:ID        an expired reservation, for a time, as JSON
--   HEAD:day:… :month:… :total   hashes: what is spent, and under FIELD:held what live reservations hold
--   HEAD:atonce         hash: calls that run
--   HEAD:rate:FIELD:PER the time in µs at which a rate is unused again (GCRA's theoretical arrival time)
--
--   USAGE:seen:HOUR     set: calls that began in the hour and have ended
--   USAGE:DAY:BY        hash: by name what its calls took, as numbers with spaces between them (package tally)
--
-- A reservation is {t: tokens, m: millionths of a USD, p: policy, b: budgets, o: fields of atonce, r: rates of tokens,
-- n: its key, tenant and user as fields, d: the day on which it expired and was counted}; a budget in it is {key, field,
-- unit, when the key may go, in Unix seconds}, a rate {key, µs per token}.
--
-- ARGV[1] and ARGV[2], if not empty, are the hour and the id of a call that Redis has taken as ended from the process
-- that asks, not long ago. If it is not there Redis has lost data: what is spent may be more than the books say, so
-- nothing is done. ARGV[3] and ARGV[4] are the hour and the id of the call that this is about, ARGV[5] its tokens,
-- ARGV[6] its millionths of a USD, ARGV[7] for how many ms counters are kept. ARGV[8] are the limits that bind it, as
-- limits() reads them, and then come its key, tenant and user as fields; all of them may be empty.
local head, usage = KEYS[1], KEYS[2]
if ARGV[2] ~= '' and redis.call('SISMEMBER', usage .. ':seen:' .. ARGV[1], ARGV[2]) == 0 then return {'lost'} end
local seen, id, tokens, micros = usage .. ':seen:' .. ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
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

-- limits are those that bind the call, for a loop: five words each, which are the holder, 1 to 3 for key, tenant and
-- user; budget, rate, atonce or runs; the unit; the limit; the period, or the µs that a rate is per.
local function limits() return string.gmatch(ARGV[8], '(%d+) (%a+) (%a+) (%d+) (%S+) ') end

local function fieldOf(holder, kind, unit)
  if kind == unit then return ARGV[8 + tonumber(holder)] end -- atonce and runs
  return ARGV[8 + tonumber(holder)] .. ':' .. unit
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

-- count adds a row of numbers to a counter. A name that is new to its hash puts off the time at which the hash goes; a
-- day more than counters are kept, since names that are there do not.
local function count(day, by, name, more)
  local key, row = usage .. ':' .. day .. ':' .. by, {}
  for word in string.gmatch(redis.call('HGET', key, name) or '', '%d+') do row[#row + 1] = word end
  for i, n in ipairs(more) do row[i] = int(math.max(0, (row[i] or 0) + n)) end
  if redis.call('HSET', key, name, table.concat(row, ' ')) == 1 then
    redis.call('PEXPIRE', key, int(ARGV[7] + DAY * 1000))
  end
end

-- countExpired counts an expired reservation that was charged, as one call of its key, tenant and user, so that what is
-- reported is what is spent; with -1 it takes that back.
local function countExpired(r, sign)
  for _, field in ipairs(r.n or {}) do
    local by, name = string.match(field, '^(%a+):(.*)$')
    count(r.d, by, name, {sign, sign * r.t, 0, 0, sign * r.m, 0, 0, 0, sign, sign})
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
        if r.p ~= 'release' then
          r.d = string.format('%04d-%02d-%02d', civil(math.floor(now / 1000000 / DAY)))
          countExpired(r, 1)
        end
        redis.call('SET', head .. ':done:' .. id, cjson.encode(r), 'PX', EXPIRED)
      else
        redis.call('ZREM', head .. ':live', id)
      end
    end
  end
end

