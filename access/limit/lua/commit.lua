-- Puts what a call took into the books, once: in the place of its reservation, or of what was charged when the lease had
-- ended; and into the counters. A call is remembered whatever becomes of it: a reservation that comes late, after its
-- commit, must hold nothing.
-- ARGV, behind what all scripts have: how the call went on: reserved, unreserved (the budgets among the limits are
-- charged) or unlimited; the ms for which it is remembered; its day, empty if it is not to be counted; what it took, as
-- a row of a counter; and in pairs the dimensions and names for which it counts.
local how, day = ARGV[12], ARGV[14]
if redis.call('SADD', seen, id) == 0 then return {'repeated'} end
redis.call('PEXPIRE', seen, ARGV[13])
if how ~= 'unlimited' then
  sweep()
  local text = redis.call('HGET', head .. ':calls', id)
  local expired = not text and redis.call('GET', head .. ':done:' .. id)
  if text then
    close(id, cjson.decode(text), tokens, micros)
  elseif expired then
    local r = cjson.decode(expired)
    charge(r, tokens, micros, 0, 0, r.t, r.m)
    if r.d then countExpired(r, -1) end
    redis.call('DEL', head .. ':done:' .. id)
  elseif how == 'unreserved' then
    for holder, kind, unit, _, per in limits() do
      if kind == 'budget' then
        local key, _, forget = period(per)
        book({key, fieldOf(holder, kind, unit), unit, forget}, of(unit, tokens, micros), 0)
      end
    end
  end
end
if day ~= '' then
  local row = {}
  for word in string.gmatch(ARGV[15], '%d+') do row[#row + 1] = tonumber(word) end
  for i = 16, #ARGV, 2 do count(day, ARGV[i], ARGV[i + 1], row) end
end
return {'ok'}
