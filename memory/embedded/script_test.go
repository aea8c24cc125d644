package embedded

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestLua holds what our scripts need from the engine, one need per row, as a real Redis does it.
func TestLua(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		args   []any
		want   any
	}{
		"GET of an absent key is false": {`return tostring(redis.call('GET', KEYS[1]))`, nil, "false"},
		"splice by SETRANGE at STRLEN-1": {`redis.call('SET', KEYS[1], '[1]')
			redis.call('SETRANGE', KEYS[1], redis.call('STRLEN', KEYS[1]) - 1, ',2]')
			return redis.call('GET', KEYS[1])`, nil, "[1,2]"},
		"GETRANGE from the end": {
			`redis.call('SET', KEYS[1], 'abcdef') return redis.call('GETRANGE', KEYS[1], -2, -1)`, nil, "ef",
		},
		"GETRANGE of the last byte": {
			`redis.call('SET', KEYS[1], 'abc]') return redis.call('GETRANGE', KEYS[1], -1, -1)`, nil, "]",
		},
		"GETRANGE of an absent key": {`return redis.call('GETRANGE', KEYS[1], -1, -1)`, nil, ""},
		"binary arguments": {`redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])`,
			[]any{"\x00\xff\r\nя"}, "\x00\xff\r\nя"},
		"HMGET has false for what is not": {
			`redis.call('HSET', KEYS[1], 'a', 1) local v = redis.call('HMGET', KEYS[1], 'a', 'b') return {v[1], tostring(v[2])}`,
			nil, []any{"1", "false"},
		},
		"HGET of an absent field is false": {`return tostring(redis.call('HGET', KEYS[1], 'a'))`, nil, "false"},
		"HGETALL is a flat list": {`redis.call('HSET', KEYS[1], 'a', '1') return redis.call('HGETALL', KEYS[1])`,
			nil, []any{"a", "1"}},
		"HDEL, EXISTS": {
			`redis.call('HSET', KEYS[1], 'a', '1') redis.call('HDEL', KEYS[1], 'a') return redis.call('EXISTS', KEYS[1])`, nil,
			int64(0),
		},
		"SET NX PX taken is false": {
			`redis.call('SET', KEYS[1], 'x') return tostring(redis.call('SET', KEYS[1], 'y', 'NX', 'PX', 15000))`, nil, "false",
		},
		"SET NX PX free is a status": {`return redis.call('SET', KEYS[1], 'y', 'NX', 'PX', 15000).ok`, nil, "OK"},
		"PEXPIRE, PTTL": {
			`redis.call('SET', KEYS[1], 'x') redis.call('PEXPIRE', KEYS[1], 5000) return redis.call('PTTL', KEYS[1])`, nil,
			int64(5000),
		},
		"INCR": {`redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[1])`, nil, int64(2)},
		"RENAME": {
			`redis.call('SET', KEYS[1], 'x') redis.call('RENAME', KEYS[1], KEYS[2]) return redis.call('GET', KEYS[2])`, nil, "x",
		},
		"TYPE is a status": {`redis.call('HSET', KEYS[1], 'a', '1') return redis.call('TYPE', KEYS[1]).ok`,
			nil, "hash"},
		"ZADD, ZRANGEBYSCORE, ZREM": {`redis.call('ZADD', KEYS[1], 1700000000000, 'a', 1700000000500, 'b')
			redis.call('ZREM', KEYS[1], 'b')
			local v = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', 1700000000600, 'WITHSCORES', 'LIMIT', 0, 10)
			return {#v, v[1], tonumber(v[2])}`, nil, []any{int64(2), "a", int64(1700000000000)}},
		"XADD, XTRIM, " +
			"XRANGE": {`redis.call('XADD', KEYS[1], '1-1', 'f', 'a') redis.call('XADD', KEYS[1], 'MAXLEN', '~', 10, '2-1', 'f', 'b')
			redis.call('XTRIM', KEYS[1], 'MAXLEN', 1)
			local e = redis.call('XRANGE', KEYS[1], '-', '+') return {#e, e[1][1], e[1][2][2]}`, nil, []any{int64(1), "2-1", "b"}},
		"SCAN": {
			`redis.call('SET', KEYS[1], 'x') local r = redis.call('SCAN', '0', 'MATCH', 'k*', 'COUNT', 100) return {r[1], ` +
				`#r[2]}`, nil, []any{"0", int64(1)},
		},
		"string.find, sub, tonumber": {
			`local i = string.find(ARGV[1], ':', 1, true) return tonumber(string.sub(ARGV[1], i + 1)) + 1`, []any{"a:41"},
			int64(42),
		},
		"string.format, gmatch": {
			`local n = 0 for _ in string.gmatch(ARGV[1], '[^,]+') do n = n + 1 end return string.format('%d:%s', n, ARGV[1])`,
			[]any{"a,b"}, "2:a,b",
		},
		"Unix milliseconds as numbers": {`return tostring(math.max(tonumber(ARGV[1]) + 1, 5))`, []any{"1893456000123"},
			"1893456000124"},
		"a number passed to a command": {
			`redis.call('SET', KEYS[1], tonumber(ARGV[1]) + 1) return redis.call('GET', KEYS[1])`, []any{"1893456000123"},
			"1893456000124",
		},
		"numbers are cut to integers": {`return 3.9`, nil, int64(3)},
		"nested tables, false inside": {`return {1, {'a', false}, {ok = 'FINE'}}`, nil,
			[]any{int64(1), []any{"a", nil}, "FINE"}},
		"status": {`return {ok = 'MOVED_ON'}`, nil, "MOVED_ON"},
		"cjson": {`local v = cjson.decode(ARGV[1]) return {v.run, cjson.encode({1, 2})}`,
			[]any{`{"run":"r"}`}, []any{"r", "[1,2]"}},
		"pcall gives the error": {
			`redis.call('SET', KEYS[1], 'x') local e = redis.pcall('HGET', KEYS[1], 'f') return string.sub(e.err, 1, 9)`, nil,
			"WRONGTYPE",
		},
		"unpack": {`redis.call('HSET', KEYS[1], unpack(ARGV)) return redis.call('HLEN', KEYS[1])`,
			[]any{"a", 1, "b", 2}, int64(2)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			c := insider(t, open(t, Options{Dir: t.TempDir()}))
			got, err := c.Eval(ctx, tt.script, []string{"k1", "k2"}, tt.args...).Result()
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestLuaErrors(t *testing.T) {
	ctx := context.Background()
	c := insider(t, open(t, Options{Dir: t.TempDir()}))
	require.NoError(t, c.Set(ctx, "s", "x", 0).Err())
	for name, tt := range map[string]struct{ script, prefix string }{
		"error_reply":            {`return redis.error_reply('TURNMOVED newer turn')`, "TURNMOVED newer turn"},
		"error table":            {`return {err = 'TURNMOVED newer turn'}`, "TURNMOVED newer turn"},
		"error of a call":        {`return redis.call('HGET', 's', 'f')`, "WRONGTYPE"},
		"pcall handed on":        {`return redis.pcall('HGET', 's', 'f')`, "WRONGTYPE"},
		"raised by error":        {`error('TURNMOVED newer turn')`, "ERR"},
		"does not compile":       {`return (`, "ERR Error compiling script"},
		"unknown global is told": {`return nosuch`, "ERR"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Eval(ctx, tt.script, nil).Err()
			require.Error(t, err)
			t.Log(err)
			require.True(t, strings.HasPrefix(err.Error(), tt.prefix), "%s", err)
		})
	}
	require.True(t, redis.HasErrorPrefix(c.EvalSha(ctx, strings.Repeat("0", 40), nil).Err(), "NOSCRIPT"))
}

func TestScriptThatFailsHalfWayKeepsWhatItWrote(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	c := insider(t, s)
	require.Error(t, c.Eval(ctx, `redis.call('SET', 'a', '1') error('stop')`, nil).Err())
	require.Equal(t, "1", c.Get(ctx, "a").Val())
	require.NoError(t, s.Close())
	require.Equal(t, "1", insider(t, open(t, Options{Dir: dir})).Get(ctx, "a").Val())
}

func TestTimeStandsStillInAScript(t *testing.T) {
	ctx := context.Background()
	c := insider(t, open(t, Options{Dir: t.TempDir()}))
	require.NoError(t, c.Set(ctx, "k", "x", time.Hour).Err())
	got, err := c.Eval(ctx, `local a = redis.call('TIME') for i = 1, 1000000 do end local b = redis.call('TIME')
		return {a[1] == b[1] and a[2] == b[2]}`, nil).Result()
	require.NoError(t, err)
	require.Equal(t, []any{int64(1)}, got)
}

// TestAScriptWhoseCommandBreaksTheEngine: the script is told, and can go on with nothing; the store goes on with what
// was acknowledged.
func TestAScriptWhoseCommandBreaksTheEngine(t *testing.T) {
	ctx := context.Background()
	c := insider(t, open(t, Options{Dir: t.TempDir()}))
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
	err := c.Eval(ctx, `redis.call('SET', 'k', 'half') pcall(redis.call, 'KEYS', '[z-a]') return redis.call('GET', 'k')`, nil).Err()
	require.ErrorContains(t, err, "the engine failed on KEYS")
	require.Equal(t, "v", c.Get(ctx, "k").Val())
}

func TestAScriptLeavesNothingToTheNext(t *testing.T) {
	ctx := context.Background()
	c := insider(t, open(t, Options{Dir: t.TempDir()}))
	require.ErrorContains(t, c.Eval(ctx, `left = 1`, nil).Err(), "create global variable 'left'")
	require.ErrorContains(t, c.Eval(ctx, `return left`, nil).Err(), "nonexistent global variable 'left'")
	require.NoError(t, c.Eval(ctx, `return #KEYS + #ARGV`, []string{"a"}, "b", "c").Err())
	require.Equal(t, int64(0), c.Eval(ctx, `return #KEYS + #ARGV`, nil).Val())
	many := make([]any, 20_000)
	for i := range many {
		many[i] = i
	}
	require.Equal(t, int64(len(many)), c.Eval(ctx, `return redis.call('RPUSH', 'list', unpack(ARGV))`, nil, many...).Val())
}
