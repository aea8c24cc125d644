package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory/journal"
)

// clock is the wall clock of a test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func open(t testing.TB, opts Options) *Server {
	t.Helper()
	opts.Log = zerolog.Nop()
	s, err := Open(context.Background(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// noMaintenance keeps a client from looking its server's name up, which is none.
var noMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func insider(t testing.TB, s *Server) redis.UniversalClient {
	t.Helper()
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"embedded"}, Dialer: s.Dial,
		MaintNotificationsConfig: noMaintenance, ReadTimeout: time.Minute, WriteTimeout: time.Minute}) // a busy machine
	t.Cleanup(func() { c.Close() })
	return c
}

func outsider(t testing.TB, s *Server) redis.UniversalClient {
	t.Helper()
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{s.Addr().String()}, MaxRetries: -1,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWrittenDataIsThereAfterARestart(t *testing.T) {
	testtier.Slow(t)
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir, Listen: "127.0.0.1:0"})
	c := insider(t, s)
	big := strings.Repeat("история ", 4<<20)
	require.NoError(t, c.Set(ctx, "big", big, 0).Err())
	require.NoError(t, c.HSet(ctx, "{chat_history:1}:meta", "sum", "abc", "len", 2).Err())
	require.NoError(t, c.XAdd(ctx, &redis.XAddArgs{Stream: "events:1:r", Values: []any{"e", "{}"}}).Err())
	id := c.XInfoStream(ctx, "events:1:r").Val().LastGeneratedID
	got, err := outsider(t, s).Get(ctx, "big").Result()
	require.NoError(t, err)
	require.Equal(t, len(big), len(got))
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.Dial(ctx, "", "")
	require.ErrorIs(t, err, errClosed)

	s = open(t, Options{Dir: dir})
	require.Nil(t, s.Addr())
	c = insider(t, s)
	got, err = c.Get(ctx, "big").Result()
	require.NoError(t, err)
	require.True(t, got == big)
	require.Equal(t, map[string]string{"sum": "abc", "len": "2"}, c.HGetAll(ctx, "{chat_history:1}:meta").Val())
	require.Equal(t, []redis.XMessage{{ID: id, Values: map[string]any{"e": "{}"}}},
		withoutDetails(c.XRange(ctx, "events:1:r", "-", "+").Val()))
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
}

func withoutDetails(in []redis.XMessage) (out []redis.XMessage) {
	for _, m := range in {
		out = append(out, redis.XMessage{ID: m.ID, Values: m.Values})
	}
	return out
}

func TestExpiryKeepsItsTimeAcrossARestart(t *testing.T) {
	ctx, dir, now := context.Background(), t.TempDir(), newClock()
	s := open(t, Options{Dir: dir, now: now.now})
	c := insider(t, s)
	require.NoError(t, c.SetNX(ctx, "lease", "token", 15*time.Second).Err())
	require.NoError(t, c.Set(ctx, "record", "x", 24*time.Hour).Err())
	require.NoError(t, c.Eval(ctx, `redis.call('SET', KEYS[1], 'x') return redis.call('PEXPIRE', KEYS[1], ARGV[1])`,
		[]string{"by script"}, 60_000).Err())
	now.add(5 * time.Second)
	require.NoError(t, c.Set(ctx, "tick", "x", 0).Err())
	require.Equal(t, 10*time.Second, c.PTTL(ctx, "lease").Val())
	require.NoError(t, s.Close())

	now.add(4 * time.Second)
	s = open(t, Options{Dir: dir, now: now.now})
	c = insider(t, s)
	require.Equal(t, 6*time.Second, c.PTTL(ctx, "lease").Val())
	require.Equal(t, 51*time.Second, c.PTTL(ctx, "by script").Val())
	require.Equal(t, 24*time.Hour-9*time.Second, c.PTTL(ctx, "record").Val())
	require.NoError(t, s.Close())

	now.add(6 * time.Second)
	s = open(t, Options{Dir: dir, now: now.now})
	c = insider(t, s)
	require.Zero(t, c.Exists(ctx, "lease").Val(), "a lease that ran out while the process was down")
	require.True(t, c.SetNX(ctx, "lease", "other", 15*time.Second).Val())
	require.NoError(t, s.Close())

	// A replay comes to the same result: the first token is gone before the second takes its place.
	now.add(time.Second)
	s = open(t, Options{Dir: dir, now: now.now})
	c = insider(t, s)
	require.Equal(t, "other", c.Get(ctx, "lease").Val())
	require.Equal(t, 14*time.Second, c.PTTL(ctx, "lease").Val())
}

func TestClockSetBackNeitherEndsNorRevivesALease(t *testing.T) {
	ctx, dir, now := context.Background(), t.TempDir(), newClock()
	s := open(t, Options{Dir: dir, now: now.now})
	c := insider(t, s)
	require.NoError(t, c.Set(ctx, "lease", "token", 15*time.Second).Err())
	now.add(-time.Hour)
	require.NoError(t, c.Set(ctx, "other", "x", 30*time.Second).Err())
	require.Equal(t, 15*time.Second, c.PTTL(ctx, "lease").Val())
	now.add(5 * time.Second)
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir, now: now.now})
	c = insider(t, s)
	require.Equal(t, 10*time.Second, c.PTTL(ctx, "lease").Val())
	require.Equal(t, 25*time.Second, c.PTTL(ctx, "other").Val())
}

func TestTornTailIsDroppedAndLogged(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	require.NoError(t, insider(t, s).Set(ctx, "k", "v", 0).Err())
	require.NoError(t, s.Close())
	f, err := os.OpenFile(filepath.Join(dir, "journal"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("torn tail")
	require.NoError(t, err)
	require.NoError(t, f.Close())

	var log strings.Builder
	s, err = Open(ctx, Options{Dir: dir, Log: zerolog.New(&log)})
	require.NoError(t, err)
	defer s.Close()
	require.Contains(t, log.String(), `"bytes":9`)
	require.Equal(t, "v", insider(t, s).Get(ctx, "k").Val())
}

func TestOpenExplainsItself(t *testing.T) {
	ctx := context.Background()
	t.Run("folder in use", func(t *testing.T) {
		dir := t.TempDir()
		open(t, Options{Dir: dir})
		_, err := Open(ctx, Options{Dir: dir})
		var inUse *journal.InUseError
		require.ErrorAs(t, err, &inUse)
		require.EqualError(t, err, fmt.Sprintf("%s: data is in use by process %d", dir, os.Getpid()))
	})
	t.Run("unusable folder", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err := Open(ctx, Options{Dir: filepath.Join(file, "data")})
		require.ErrorContains(t, err, "the embedded store cannot use its folder "+file)
		require.ErrorContains(t, err, "data_dir")
		require.NotContains(t, err.Error(), "\n")
	})
	t.Run("taken port", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		dir := t.TempDir()
		_, err = Open(ctx, Options{Dir: dir, Listen: l.Addr().String()})
		require.ErrorContains(t, err, l.Addr().String()+": the port is taken")
		require.ErrorContains(t, err, "redis.embedded_listen")
		require.NotContains(t, err.Error(), "\n")
		open(t, Options{Dir: dir}) // the folder is free again
	})
	t.Run("bad address", func(t *testing.T) {
		_, err := Open(ctx, Options{Dir: t.TempDir(), Listen: "nonsense"})
		require.ErrorContains(t, err, "redis.embedded_listen")
	})
	t.Run("foreign records", func(t *testing.T) {
		dir := t.TempDir()
		j, _, err := journal.Open(dir, journal.Options{}, func([]byte) error { return nil })
		require.NoError(t, err)
		require.NoError(t, j.Append([]byte("not ours")))
		require.NoError(t, j.Close())
		_, err = Open(ctx, Options{Dir: dir})
		require.ErrorIs(t, err, errRecord)
	})
	t.Run("cancelled", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, Options{Dir: dir})
		require.NoError(t, insider(t, s).Set(ctx, "k", "v", 0).Err())
		require.NoError(t, s.Close())
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err := Open(gone, Options{Dir: dir})
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestConcurrentClientsLoseNothing(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	script := redis.NewScript(`
		local n = redis.call('STRLEN', KEYS[1])
		redis.call('SETRANGE', KEYS[1], n, ARGV[1])
		return redis.call('HINCRBY', KEYS[2], 'count', 1)`)
	const writers, each = 8, 50
	var group sync.WaitGroup
	for w := range writers {
		c := insider(t, s)
		group.Go(func() {
			for i := range each {
				if err := script.Run(ctx, c, []string{"log", "meta"}, fmt.Sprintf("[%d.%d]", w, i)).Err(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	live := insider(t, s).Get(ctx, "log").Val()
	require.Equal(t, writers*each, strings.Count(live, "["))
	require.NoError(t, s.Close())

	c := insider(t, open(t, Options{Dir: dir}))
	require.Equal(t, live, c.Get(ctx, "log").Val())
	require.Equal(t, fmt.Sprint(writers*each), c.HGet(ctx, "meta", "count").Val())
}

func TestTransactions(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	c := insider(t, s)
	before := s.journal.Size()
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "a", "1", 0)
		p.Eval(ctx, `return redis.call('INCR', KEYS[1])`, []string{"a"})
		p.Incr(ctx, "a")
		p.Get(ctx, "a")
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "3", c.Get(ctx, "a").Val())
	require.Less(t, s.journal.Size()-before, int64(100), "one record, without the script")

	_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "a", "refused with the rest", 0)
		p.Do(ctx, "PFADD", "h", "x")
		return nil
	})
	require.ErrorContains(t, err, "EXECABORT")
	require.Equal(t, "3", c.Get(ctx, "a").Val())

	err = c.Watch(ctx, func(*redis.Tx) error { return nil }, "a")
	require.ErrorContains(t, err, "use a script")

	conn := insider(t, s).(*redis.Client).Conn()
	defer conn.Close()
	require.ErrorContains(t, conn.Do(ctx, "EXEC").Err(), "EXEC without MULTI")
	require.ErrorContains(t, conn.Do(ctx, "DISCARD").Err(), "DISCARD without MULTI")
	require.NoError(t, conn.Do(ctx, "MULTI").Err())
	require.ErrorContains(t, conn.Do(ctx, "MULTI").Err(), "can not be nested")
	require.Equal(t, "QUEUED", conn.Do(ctx, "SET", "a", "discarded").Val())
	require.NoError(t, conn.Do(ctx, "DISCARD").Err())
	require.NoError(t, s.Close())

	c = insider(t, open(t, Options{Dir: dir}))
	require.Equal(t, "3", c.Get(ctx, "a").Val())
}

func TestLongPipelineWithLongReplies(t *testing.T) {
	testtier.Slow(t)
	ctx := context.Background()
	c := insider(t, open(t, Options{Dir: t.TempDir()}))
	value := strings.Repeat("x", 10_000)
	require.NoError(t, c.Set(ctx, "k", value, 0).Err())
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 5_000 {
			p.Get(ctx, "k")
		}
		return nil
	})
	require.NoError(t, err)
	for _, cmd := range cmds {
		require.Equal(t, len(value), len(cmd.(*redis.StringCmd).Val()))
	}
}

func TestUnsupportedCommandsSayWhatToDo(t *testing.T) {
	ctx := context.Background()
	c := insider(t, open(t, Options{Dir: t.TempDir()}))
	for _, cmd := range [][]any{
		{"PFADD", "k", "v"}, {"SPOP", "k"}, {"BLPOP", "k", "0"}, {"XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"},
		{"SUBSCRIBE", "c"}, {"HEXPIRE", "h", "1", "FIELDS", "1", "f"}, {"XREAD", "BLOCK", "0", "STREAMS", "s", "$"}, {"FROB"},
	} {
		err := c.Do(ctx, cmd...).Err()
		require.ErrorContains(t, err, "set redis.url to a real Redis", "%v", cmd)
	}
	require.ErrorContains(t, c.Do(ctx, "SELECT", "1").Err(), "database 0 only")
	require.ErrorContains(t, c.Eval(ctx, `return redis.call('XREAD', 'BLOCK', '0', 'STREAMS', 's', '$')`, nil).Err(),
		"XREAD BLOCK")
	require.ErrorContains(t, c.Eval(ctx, `return redis.call('SPOP', 's')`, nil).Err(), "does not allow 'SPOP' in a script")
	require.NoError(t, c.Ping(ctx).Err())
}

func TestEngineFailureCostsOneCommand(t *testing.T) {
	ctx := context.Background()
	s := open(t, Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	c := insider(t, s)
	require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
	require.NoError(t, c.Set(ctx, "lease", "v", time.Minute).Err())
	require.ErrorContains(t, outsider(t, s).Keys(ctx, "[z-a]").Err(), "the engine failed on KEYS")
	require.Equal(t, "v", c.Get(ctx, "k").Val())
	require.Positive(t, c.PTTL(ctx, "lease").Val())
	require.NoError(t, c.Set(ctx, "k", "w", 0).Err())

	// Half a transaction leaves nothing.
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "k", "half", 0)
		p.Keys(ctx, "[z-a]")
		return nil
	})
	require.ErrorContains(t, err, "the engine failed on KEYS")
	require.Equal(t, "w", c.Get(ctx, "k").Val())
}
