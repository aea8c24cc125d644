package redisstore_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// accident is what happens to Redis between two turns: one process has a
// history of three messages cached, another one only the first two.
type accident struct {
	args   []string // of redis-server
	happen func(*testing.T, *redistest.Server, *redis.Client)
	want   int64 // messages that are there afterwards
	lost   int64 // histories that a copy brought back
	bare   int64 // messages that one without a copy finds first
}

func restart(t *testing.T, s *redistest.Server, _ *redis.Client) {
	s.Kill()
	require.NoError(t, s.Run())
}

// commands are what an operator types into redis-cli.
func commands(lines ...string) func(*testing.T, *redistest.Server, *redis.Client) {
	return func(t *testing.T, _ *redistest.Server, client *redis.Client) {
		for _, line := range lines {
			var args []any
			for _, a := range strings.Fields(line) {
				args = append(args, a)
			}
			require.NoError(t, client.Do(ctx, args...).Err())
		}
	}
}

func TestAccidents(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, a := range map[string]accident{
		"restart with data":             {[]string{"--appendonly", "yes", "--appendfsync", "always"}, restart, 3, 0, 3},
		"restart empty":                 {nil, restart, 3, 1, 0},
		"FLUSHALL":                      {nil, commands("FLUSHALL"), 3, 1, 0},
		"DEL of a history":              {nil, commands("DEL " + key.String()), 0, 0, 0},
		"DEL of a history and its meta": {nil, commands("DEL "+key.String(), "DEL {"+key.String()+"}:meta"), 3, 1, 0},
		"DEL of a meta":                 {nil, commands("DEL {" + key.String() + "}:meta"), 3, 0, 3},
		"SCRIPT FLUSH":                  {nil, commands("SCRIPT FLUSH"), 3, 0, 3},
	} {
		for _, first := range []string{"the longer copy first", "the shorter copy first"} {
			t.Run(name+", "+first, func(t *testing.T) {
				server := redistest.Start(t, a.args...)
				client := server.Client()
				process := func() (*redisstore.Store, *cache.Cache) {
					s := redisstore.New(server.Client(), zerolog.Nop())
					return s, cache.New(s, 1<<20)
				}
				s1, long := process()
				s2, short := process()
				h := appendTo(t, long, memory.Empty(key), "r", 5, 1, 2)
				require.Equal(t, 2, loadFrom(t, short, 0, memory.Empty(key)).Len())
				appendTo(t, long, h, "r", 5, 3)

				a.happen(t, server, client)

				s3, _ := process()
				require.EqualValues(t, a.bare, loadFrom(t, s3, 0, memory.Empty(key)).Len())
				order := []*cache.Cache{long, short}
				if first == "the shorter copy first" {
					order = []*cache.Cache{short, long}
				}
				for i, c := range order {
					loadFrom(t, c, int64(6+i), memory.Empty(key))
				}
				lost := s1.Counts.Recovered.Load() + s2.Counts.Recovered.Load()
				for i, c := range append(order, order...) { // and the ones after it
					require.Equal(t, saying(a.want), contents(t, loadFrom(t, c, int64(8+i), memory.Empty(key))))
				}
				require.Equal(t, saying(a.want), contents(t, loadFrom(t, s3, 0, memory.Empty(key))))
				require.Equal(t, lost, s1.Counts.Recovered.Load()+s2.Counts.Recovered.Load(), "brought back once")
				if a.lost == 0 {
					require.Zero(t, lost)
				} else {
					require.GreaterOrEqual(t, lost, a.lost)
				}
			})
		}
	}
}

// snapshot keeps what is stored of key now; the function puts it back, as a replica
// would have it that has heard of nothing since.
func snapshot(t *testing.T, client redis.UniversalClient) (lose func()) {
	meta := "{" + key.String() + "}:meta"
	value, fields := client.Get(ctx, key.String()).Val(), client.HGetAll(ctx, meta).Val()
	require.NotEmpty(t, value)
	return func() {
		require.NoError(t, client.Set(ctx, key.String(), value, 0).Err())
		require.NoError(t, client.Del(ctx, meta).Err())
		require.NoError(t, client.HSet(ctx, meta, fields).Err())
	}
}

func TestLostInTheMiddleOfATurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := appendTo(t, w, memory.Empty(key), "r", 5, 1, 2, 3)
	require.NoError(t, w.redis.FlushAll(ctx).Err())
	h = appendTo(t, w, h, "r", 5, 4)
	require.Equal(t, saying(4), contents(t, h))
	require.Equal(t, saying(4), contents(t, w.load(t, 0, memory.Empty(key))))
}

// What the new master has not heard of may be a trim, too: the copy begins later
// than what is stored, and still ends later.
func TestLostWritesAndALostTrim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := memory.Empty(key)
	for seq := int64(1); seq <= 12; seq++ {
		h = appendTo(t, w, h, "r", 5, seq)
	}
	lose := snapshot(t, w.redis)
	h, err := w.Archives.Trim(ctx, appendTo(t, w, h, "r", 5, 13), 5, 10)
	require.NoError(t, err)
	require.Equal(t, saying(13)[3:], contents(t, h))
	h = appendTo(t, w, h, "r", 5, 14)
	lose()
	require.Subset(t, contents(t, w.load(t, 6, h)), []string{"13", "14"}, "both were acknowledged")
}

// What an operator took out by hand, and a turn took note of, does not come back from
// a copy that another process still has.
func TestACutByHandIsNotALoss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := appendTo(t, w, memory.Empty(key), "r", 5, 1, 2, 3)
	require.NoError(t, w.redis.Set(ctx, key.String(), "["+string(said(1))+"]", 0).Err())
	require.Equal(t, saying(1), contents(t, w.load(t, 6, memory.Empty(key))))
	require.Equal(t, saying(1), contents(t, w.load(t, 7, h)), "turn 6 is newer than the copy")
}

// An erased history stays erased whatever happens to the value, as long as its
// tombstone is there.
func TestErasedIsNotLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	one := cache.New(redisstore.New(server.Client(), zerolog.Nop()), 1<<20)
	two := cache.New(redisstore.New(server.Client(), zerolog.Nop()), 1<<20)
	appendTo(t, one, memory.Empty(key), "r", 5, 1, 2)
	loadFrom(t, two, 0, memory.Empty(key))
	require.NoError(t, one.Erase(ctx, 6, key))
	restart(t, server, nil)
	for i, c := range []*cache.Cache{two, one, two} {
		require.Zero(t, loadFrom(t, c, int64(7+i), memory.Empty(key)).Len())
	}
}
