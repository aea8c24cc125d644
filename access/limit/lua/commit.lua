-- Charges what a call took, once: in the place of its reservation, or of what was charged when the lease had ended.
-- ARGV: id, ms for which the end of the call is remembered, tokens, micros, 1 if it went on without a reservation, and
-- then the limits and their holders as reserve has them, of which it charges the budgets. An unknown call is
-- remembered too: a reservation that comes late, after its commit, must hold nothing.
local id, tokens, micros = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local done = head .. ':done:' .. id
sweep()
local text = redis.call('HGET', head .. ':calls', id)
local ended = redis.call('GET', done)
if text then
  close(id, cjson.decode(text), tokens, micros)
elseif ended == 'done' then
  return {'repeated'}
elseif ended then
  local r = cjson.decode(ended)
  charge(r, tokens, micros, 0, 0, r.t, r.m)
elseif ARGV[5] == '1' then
  for holder, kind, unit, _, per in limits(ARGV[6]) do
    if kind == 'budget' then
      local key, _, forget = period(per)
      book({key, fieldOf(holder, kind, unit), unit, forget}, of(unit, tokens, micros), 0)
    end
  end
end
redis.call('SET', done, 'done', 'PX', ARGV[2])
return {'ok'}
