-- Changes segments of an archive that are still as they were read, and its totals.
-- KEYS  archive
-- ARGV  see segments.lua
if not unchanged(KEYS[1], 1) then
  return {'changed'}
end
resegment(KEYS[1], 1)
return {'ok'}
