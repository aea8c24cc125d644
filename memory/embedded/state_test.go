package embedded

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
)

// state is everything that a client can see, key by key.
func state(t require.TestingT, c redis.UniversalClient) map[string]string {
	ctx := context.Background()
	keys, err := c.Keys(ctx, "*").Result()
	require.NoError(t, err)
	out := map[string]string{}
	for _, key := range keys {
		kind := c.Type(ctx, key).Val()
		var value any
		switch kind {
		case "string":
			value, err = c.Get(ctx, key).Result()
		case "hash":
			value, err = c.HGetAll(ctx, key).Result()
		case "list":
			value, err = c.LRange(ctx, key, 0, -1).Result()
		case "set":
			var members []string
			members, err = c.SMembers(ctx, key).Result()
			slices.Sort(members)
			value = members
		case "zset":
			value, err = c.ZRangeWithScores(ctx, key, 0, -1).Result()
		case "stream":
			var entries []redis.XMessage
			entries, err = c.XRange(ctx, key, "-", "+").Result()
			value = fmt.Sprint(withoutDetails(entries), c.XInfoStream(ctx, key).Val().LastGeneratedID)
		}
		require.NoError(t, err)
		out[key] = fmt.Sprintf("%s %q until %d", kind, fmt.Sprint(value), c.PExpireTime(ctx, key).Val().Milliseconds())
	}
	return out
}

// writes are commands with holes: a few keys k, so that types clash and keys are overwritten, expire and come back;
// fields f, values v, numbers n, seconds s, milliseconds ms and an instant at.
var writes = []string{
	"SET <k> <v>", "SET <k> <v> PX <ms>", "SET <k> <v> NX EX 3", "SET <k> <v> XX KEEPTTL", "SETEX <k> 2 <v>",
	"PSETEX <k> <ms> <v>", "SETRANGE <k> 3 <v>", "SETRANGE <k> 0 <v>", "SETRANGE <k> <n> <v>", "APPEND <k> <v>", "INCRBY <k> <n>", "INCRBYFLOAT <k> 0.1",
	"GETEX <k> PX <ms>", "GETEX <k> PERSIST", "GETDEL <k>", "MSET <k> <v> <k> <v>",
	"DEL <k>", "RENAME <k> <k>", "RENAMENX <k> <k>", "PERSIST <k>", "EXPIRE <k> <s>", "PEXPIRE <k> <ms>",
	"PEXPIRE <k> <ms> GT", "PEXPIRE <k> <ms> NX", "PEXPIREAT <k> <at>", "FLUSHALL",
	"HSET <k> <f> <v> <f> <v>", "HDEL <k> <f>", "HINCRBY <k> <f> <n>",
	"RPUSH <k> <v> <v>", "LPUSH <k> <v>", "LPOP <k>", "LTRIM <k> 0 <n>", "LREM <k> 0 <v>", "RPOPLPUSH <k> <k>",
	"SADD <k> <v> <v>", "SREM <k> <v>", "SMOVE <k> <k> <v>",
	"ZADD <k> <n> <f> 1700000000000.5 <v>", "ZREM <k> <f>", "ZINCRBY <k> -inf <f>", "ZREMRANGEBYSCORE <k> -inf <n>",
	"ZPOPMIN <k>",
	"XADD <k> * <f> <v>", "XADD <k> MAXLEN 2 * <f> <v>", "XADD <k> 99999999999999-* <f> <v>", "XTRIM <k> MAXLEN 1",
	"XTRIM <k> MAXLEN 0",
	"EVAL <script> 2 <k> <k> <v> <ms>",
}

const drawnScript = `redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
	redis.pcall('XADD', KEYS[2], '*', 'f', ARGV[1])
	return redis.call('HSET', KEYS[2], 'f', ARGV[1])`

func drawWrite(t *rapid.T) []any {
	number := func(from, to int) string { return strconv.Itoa(rapid.IntRange(from, to).Draw(t, "number")) }
	var args []any
	for _, word := range strings.Fields(rapid.SampledFrom(writes).Draw(t, "command")) {
		switch word {
		case "<k>":
			word = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key")
		case "<f>":
			word = rapid.SampledFrom([]string{"f", "g", "я"}).Draw(t, "field")
		case "<v>":
			word = rapid.SampledFrom([]string{"1", "2.5", "text", "\x00\r\n\xff", ""}).Draw(t, "value")
		case "<n>":
			word = number(-3, 8)
		case "<s>":
			word = number(-1, 5)
		case "<ms>":
			word = number(1, 5000)
		case "<at>":
			word = strconv.FormatInt(newClock().at.UnixMilli()+rapid.Int64Range(0, 60_000).Draw(t, "at"), 10)
		case "<script>":
			word = drawnScript
		}
		args = append(args, word)
	}
	return args
}

func TestReopenedStateEqualsTheLiveState(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(rt, err)
		now := newClock()
		s := open(t, Options{Dir: dir, now: now.now})
		c := insider(t, s)
		// replaced gives the server an engine made from records and expects to see no difference.
		replaced := func(rt *rapid.T, replay func(func([]byte) error) error) {
			before := state(rt, c)
			e, err := newEngine()
			require.NoError(rt, err)
			require.NoError(rt, e.restore(replay))
			e.expired = s.engine.expired // the journal itself is not rewritten here
			s.mu.Lock()
			s.engine = e
			s.mu.Unlock()
			require.Equal(rt, before, state(rt, c))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"command": func(rt *rapid.T) { _ = c.Do(ctx, drawWrite(rt)...).Err() }, // many fail, as they should
			"transaction": func(rt *rapid.T) {
				_, _ = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Do(ctx, drawWrite(rt)...)
					p.Do(ctx, drawWrite(rt)...)
					return nil
				})
			},
			"time passes": func(rt *rapid.T) {
				now.add(time.Duration(rapid.IntRange(1000, 4000).Draw(rt, "ms")) * time.Millisecond)
			},
			"rebuild from the journal": func(rt *rapid.T) { replaced(rt, s.journal.Replay) },
			"rebuild from a snapshot":  func(rt *rapid.T) { replaced(rt, s.engine.snapshot) },
		})
		before := state(rt, c)
		require.NoError(rt, s.Close())
		s = open(t, Options{Dir: dir, now: now.now})
		require.Equal(rt, before, state(rt, insider(t, s)))
		require.NoError(rt, s.Close())
	})
}

func TestJournalIsCompactedWhenItOutgrowsItsData(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	c := insider(t, s)
	require.NoError(t, c.Set(ctx, "keep", "kept", time.Hour).Err())
	largest := int64(0)
	for i := range 300 {
		require.NoError(t, c.Set(ctx, "scratch", strings.Repeat("x", 20_000)+strconv.Itoa(i), 0).Err())
		largest = max(largest, s.journal.Size())
	}
	require.Less(t, largest, int64(compactMin+50_000), "6 MB were written")
	require.NoError(t, c.Del(ctx, "scratch").Err())
	before := state(t, c)
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir})
	require.Equal(t, before, state(t, insider(t, s)))
}

func TestOversizedJournalIsCompactedAtOpen(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	c := insider(t, s)
	s.mu.Lock()
	s.live = 1 << 40 // as if the data had shrunk only now
	s.mu.Unlock()
	for range 30 {
		require.NoError(t, c.Set(ctx, "k", strings.Repeat("x", 50_000), 0).Err())
	}
	require.Greater(t, s.journal.Size(), int64(compactMin))
	require.NoError(t, s.Close())
	s = open(t, Options{Dir: dir})
	require.Less(t, s.journal.Size(), int64(60_000))
	require.Equal(t, 50_000, len(insider(t, s).Get(ctx, "k").Val()))
}

func TestLargeCollectionsSurviveCompaction(t *testing.T) {
	testtier.Slow(t)
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	c := insider(t, s)
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 300 {
			v := strconv.Itoa(i) + strings.Repeat("x", 10_000)
			p.HSet(ctx, "hash", v, v)
			p.SAdd(ctx, "set", v)
			p.ZAdd(ctx, "zset", redis.Z{Score: float64(i) / 3, Member: v})
			p.RPush(ctx, "list", v)
		}
		return nil
	})
	require.NoError(t, err)
	before := state(t, c)
	require.NoError(t, s.journal.Rewrite(s.engine.snapshot))
	require.NoError(t, s.Close())
	require.Equal(t, before, state(t, insider(t, open(t, Options{Dir: dir}))))
}

func FuzzParseRecord(f *testing.F) {
	f.Add(appendRecord(nil, record{timestamp: newClock().at, expired: true, commands: [][]string{
		{"SET", "k", "v"}, {"DEL", "k"},
	}}))
	f.Add([]byte{recordVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		again, err := parseRecord(appendRecord(nil, r))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func FuzzReadCommand(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte("*0\r\n"))
	f.Add([]byte("*1\r\n$-1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		args, err := readCommandBytes(b)
		if err != nil {
			return
		}
		total := 0
		for _, arg := range args {
			total += len(arg)
		}
		require.LessOrEqual(t, len(args), outsideLimits.args)
		require.LessOrEqual(t, total, len(b))
	})
}

func readCommandBytes(b []byte) ([]string, error) {
	return readCommand(bufio.NewReader(bytes.NewReader(b)), outsideLimits)
}

// TestExpiriesAreTold: remaining lifetimes and instants are those that Redis would tell, and keys go at them.
func TestExpiriesAreTold(t *testing.T) {
	ctx, now := context.Background(), newClock()
	c := insider(t, open(t, Options{Dir: t.TempDir(), now: now.now}))
	at := now.at.UnixMilli()
	now.add(time.Minute) // nothing counts from the start of the store
	require.NoError(t, c.Set(ctx, "none", "v", 0).Err())
	require.NoError(t, c.Set(ctx, "set", "v", 10*time.Second).Err())
	require.NoError(t, c.Set(ctx, "kept", "v", 10*time.Second).Err())
	require.NoError(t, c.Set(ctx, "kept", "w", redis.KeepTTL).Err())
	require.NoError(t, c.Set(ctx, "dropped", "v", time.Second).Err())
	require.NoError(t, c.Set(ctx, "dropped", "w", 0).Err())
	require.NoError(t, c.Set(ctx, "longer", "v", time.Second).Err())
	require.NoError(t, c.ExpireGT(ctx, "longer", 20*time.Second).Err())
	require.NoError(t, c.Set(ctx, "old", "v", 10*time.Second).Err())
	require.NoError(t, c.Rename(ctx, "old", "renamed").Err())
	require.NoError(t, c.PExpireAt(ctx, "none", time.UnixMilli(at).Add(time.Hour)).Err())
	now.add(3600 * time.Millisecond)
	told := map[string][3]int64{}
	for _, key := range []string{"none", "set", "kept", "dropped", "longer", "renamed", "old"} {
		told[key] = [3]int64{c.Do(ctx, "PTTL", key).Val().(int64), c.Do(ctx, "TTL", key).Val().(int64),
			c.Do(ctx, "PEXPIRETIME", key).Val().(int64)}
	}
	require.Equal(t, map[string][3]int64{
		"none":    {3_600_000 - 63_600, 3536, at + 3_600_000},
		"set":     {6400, 6, at + 70_000},
		"kept":    {6400, 6, at + 70_000},
		"dropped": {-1, -1, -1},
		"longer":  {16_400, 16, at + 80_000},
		"renamed": {6400, 6, at + 70_000},
		"old":     {-2, -2, -2},
	}, told)
	now.add(6400 * time.Millisecond)
	keys := c.Keys(ctx, "*").Val()
	slices.Sort(keys)
	require.Equal(t, []string{"dropped", "longer", "none"}, keys)
}
