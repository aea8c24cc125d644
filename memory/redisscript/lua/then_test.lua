return {mine, redis.call('INCR', KEYS[1]), false, ARGV[1]}
