-- Stands before every script. A number in a meta; 0 for what is none, since anybody
-- may have written there.
local function number(text)
  local n = tonumber(text or '0')
  if n and n >= 0 and n < 9007199254740992 then
    return n
  end
  return 0
end
