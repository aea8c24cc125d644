-- Has a history leave Redis whose chat is in the cold store, or notes in the chat's meta how far that is. Only while the
-- sweeper's turn is the newest: a thaw has raised it on all that it brought back.
-- KEYS  meta, history, keys that go with them (of the meta alone: only the note is made)
-- ARGV  turn, the note, size of the history: another program may have written it since it was compared
if #KEYS == 1 then
  redis.call('HSET', KEYS[1], 'cold', ARGV[2])
elseif redis.call('STRLEN', KEYS[2]) ~= tonumber(ARGV[3]) then
  return {'moved'}
else
  redis.call('UNLINK', unpack(KEYS))
end
return {'ok'}
