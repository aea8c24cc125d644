-- Has the record of a run say that it was taken back, or with which answer it was put back.
-- KEYS  record
-- ARGV  answer ("": it is taken back)
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {'none'}
end
if ARGV[1] ~= '' then
  if redis.call('HDEL', KEYS[1], 'rewound') == 1 then
    redis.call('HSET', KEYS[1], 'result', ARGV[1])
  end
elseif redis.call('HEXISTS', KEYS[1], 'unkeyed') == 1 then
  redis.call('DEL', KEYS[1])
else
  redis.call('HDEL', KEYS[1], 'result')
  redis.call('HSET', KEYS[1], 'rewound', 1)
end
return {'ok'}
