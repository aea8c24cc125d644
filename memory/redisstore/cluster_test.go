package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cache"
	"mneme/memory/redisstore"
)

// said is a message of its own time, as those of events are, and as the version
// before wrote them: without an id.
func said(seq int64) []byte {
	return memory.Message{Role: memory.RoleUser, Content: fmt.Sprint(seq), Timestamp: float64(seq)}.Encode()
}

// saidIn is the same with the id that event seq of a run gives it.
func saidIn(run string, seq int64) []byte {
	return memory.WithID(said(seq), memory.MessageID(run, seq))
}

// saying are the contents of said(1) to said(n).
func saying(n int64) []string {
	out := []string{}
	for seq := int64(1); seq <= n; seq++ {
		out = append(out, fmt.Sprint(seq))
	}
	return out
}

func contents(t *testing.T, h *memory.History) []string {
	t.Helper()
	messages, err := h.Messages(0)
	require.NoError(t, err)
	out := []string{}
	for _, m := range messages {
		out = append(out, m.Content)
	}
	return out
}

func appendTo(t *testing.T, s memory.Store, h *memory.History, run string, turn int64, seqs ...int64) *memory.History {
	t.Helper()
	for _, seq := range seqs {
		grown, err := s.Append(ctx, h, memory.Mark{Run: run, Seq: seq, Turn: turn}, saidIn(run, seq))
		require.NoError(t, err)
		h = grown
	}
	return h
}

func loadFrom(t *testing.T, s memory.Store, turn int64, have *memory.History) *memory.History {
	t.Helper()
	h, err := s.Load(ctx, turn, have)
	require.NoError(t, err)
	return h[0]
}

// writer appends said(1), said(2), … to key and tries again what was not taken.
type writer struct {
	t            *testing.T
	acknowledged atomic.Int64
	quit, done   chan struct{}
}

// write starts a writer, which ends with stop or at its first real error.
func write(t *testing.T, s memory.Store, turn int64) *writer {
	w := &writer{t: t, quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		h := memory.Empty(key)
		for {
			select {
			case <-w.quit:
				return
			default:
			}
			seq := w.acknowledged.Load() + 1
			grown, err := s.Append(ctx, h, memory.Mark{Run: "r", Seq: seq, Turn: turn}, said(seq))
			switch {
			case err == nil:
				h = grown
				w.acknowledged.Store(seq)
			case !errors.Is(err, memory.ErrUnavailable): // after which the mark makes trying again safe
				t.Errorf("append: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() { w.stop() })
	return w
}

// reaches waits until n messages are acknowledged.
func (w *writer) reaches(n int64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		select {
		case <-w.done:
			return true
		default:
			return w.acknowledged.Load() >= n
		}
	}, time.Minute, time.Millisecond)
	require.GreaterOrEqual(w.t, w.acknowledged.Load(), n)
}

// stop ends the writer and counts what was acknowledged.
func (w *writer) stop() int64 {
	select {
	case <-w.done:
	default:
		close(w.quit)
		<-w.done
	}
	return w.acknowledged.Load()
}

// A cluster refuses a script whose keys lie in more than one slot, so whatever
// works here keeps to one.
func TestCluster(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	cluster := redistest.StartCluster(t)
	fresh := func(t *testing.T) *redisstore.Store {
		cluster.FlushAll()
		return redisstore.New(cluster.Client(), zerolog.Nop())
	}
	t.Run("the suite", func(t *testing.T) {
		runSuite(t, func(t *testing.T) (memory.Store, memory.Store) {
			return fresh(t), redisstore.New(cluster.Client(), zerolog.Nop())
		})
	})
	t.Run("the suite, cached", func(t *testing.T) {
		runSuite(t, func(t *testing.T) (memory.Store, memory.Store) {
			return cache.New(fresh(t), 1<<20), cache.New(redisstore.New(cluster.Client(), zerolog.Nop()), 1<<20)
		})
	})
	for name, test := range map[string]func(*testing.T, *redisstore.Store, *redistest.Cluster){
		"histories on all nodes in one load":      clusterLoad,
		"turns":                                   clusterTurns,
		"runs and their logs":                     clusterRuns,
		"an erasure that some nodes did not take": clusterErasesAgain,
		"lists see all nodes, pages lose nothing": clusterLists,
		"an erased chat leaves only tombstones":   clusterErase,
		"trim":                                    clusterTrim,
		"runs that wait":                          clusterWaiting,
		"lost writes come back":                   clusterRegain,
		"a foreign value and a damaged one":       clusterForeign,
		"appends while the slot moves":            clusterMoves,
		"replicas are asked of the right master":  clusterReplicas,
		"pins of tools": func(t *testing.T, _ *redisstore.Store, cluster *redistest.Cluster) {
			pins(t, cluster.Client())
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t), cluster) })
	}
}

func clusterLoad(t *testing.T, s *redisstore.Store, _ *redistest.Cluster) {
	var copies []*memory.History
	for i := range 30 {
		k := memory.SubagentKey(memory.Agent(fmt.Sprint("a", i)), memory.MustChat("12345"))
		copies = append(copies, appendTo(t, s, memory.Empty(k), "r", 5, 1))
	}
	same, err := s.Load(ctx, 6, copies...)
	require.NoError(t, err)
	for i := range copies {
		require.Same(t, copies[i], same[i])
	}
	_, err = s.Append(ctx, copies[7], memory.Mark{Run: "r", Seq: 2, Turn: 5}, said(2))
	require.ErrorIs(t, err, memory.ErrMoved, "the turn was raised on every node")
}

func clusterTurns(t *testing.T, s *redisstore.Store, _ *redistest.Cluster) {
	for i := range 20 {
		chat := memory.MustChat(fmt.Sprint("chat", i))
		turn, err := s.Turns.Take(ctx, chat, "one", "conversation", time.Minute)
		require.NoError(t, err)
		var held *redisstore.HeldError
		_, err = s.Turns.Take(ctx, chat, "two", "other", time.Minute)
		require.ErrorAs(t, err, &held)
		require.NoError(t,
			failure(s.Turns.Open(ctx, chat, "one", time.Minute, redisstore.OpenRun{Run: "r", Turn: turn.Number, Body: "b"})))
		ok, failed := s.Turns.RenewAll(ctx, time.Minute, []redisstore.Lease{{Chat: chat, Token: "one"}})
		require.Equal(t, []error{nil}, failed)
		require.Equal(t, []bool{true}, ok)
		appendTo(t, s, memory.Empty(memory.SubagentKey("analytic", chat)), "r", turn.Number, 1)
		if i%2 == 0 {
			require.NoError(t, s.Turns.Release(ctx, chat, "one"))
			continue
		}
		require.NoError(t, s.Turns.Leave(ctx, chat, "one"))
		left, err := s.Turns.Abandoned(ctx)
		require.NoError(t, err)
		require.Contains(t, left, chat)
		next, err := s.Turns.Take(ctx, chat, "two", "other", time.Minute)
		require.NoError(t, err)
		require.Greater(t, next.Number, turn.Number)
		require.Equal(t, "conversation", next.Conversation)
		require.Equal(t, "r", next.Open.Run)
		require.Equal(t, []memory.Agent{"analytic"}, next.Agents)
		require.NoError(t, s.Turns.Release(ctx, chat, "two"))
	}
	left, err := s.Turns.Abandoned(ctx)
	require.NoError(t, err)
	require.Empty(t, left)
}

func clusterRuns(t *testing.T, s *redisstore.Store, _ *redistest.Cluster) {
	for i := range 10 {
		run := fmt.Sprint("run", i)
		found, err := s.Runs.Begin(ctx, memory.MustChat("12345"), run, "body")
		require.NoError(t, err)
		require.Nil(t, found)
		require.NoError(t,
			failure(s.Runs.Log(ctx, memory.MustChat("12345"), run, true, redisstore.Logged{Seq: 1, Line: []byte("a")},
				redisstore.Logged{Seq: 2, Line: []byte("b")})))
		require.NoError(t,
			failure(s.Runs.Log(ctx, memory.MustChat("12345"), run, true, redisstore.Logged{Seq: 2, Line: []byte("b")},
				redisstore.Logged{Seq: 3, Line: []byte("c")})))
		events, err := s.Runs.Events(ctx, memory.MustChat("12345"), run, 1, 10)
		require.NoError(t, err)
		require.Equal(t, []redisstore.Logged{{Seq: 2, Line: []byte("b")}, {Seq: 3, Line: []byte("c")}}, events)
		require.NoError(t, s.Runs.Finish(ctx, memory.MustChat("12345"), run, []byte("{}")))
		found, err = s.Runs.Begin(ctx, memory.MustChat("12345"), run, "body")
		require.NoError(t, err)
		require.Equal(t, "{}", string(found.Result))
	}
	_, err := s.Runs.Begin(ctx, memory.MustChat("12345"), "refused", "body")
	require.NoError(t, err)
	require.NoError(t, s.Runs.Withdraw(ctx, memory.MustChat("12345"), "refused"))
	record, err := s.Runs.Record(ctx, memory.MustChat("12345"), "refused")
	require.NoError(t, err)
	require.Nil(t, record)
	require.NoError(t, s.Runs.Erase(ctx, memory.MustChat("12345")))
	for i := range 10 {
		events, err := s.Runs.Events(ctx, memory.MustChat("12345"), fmt.Sprint("run", i), 0, 10)
		require.NoError(t, err)
		require.Empty(t, events)
	}
}

// What leads to the logs of runs is erased behind them, whichever nodes take a part of it: an erasure that failed finds
// all of them when it is done again.
func clusterErasesAgain(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	chat := memory.MustChat("12345")
	runs := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, run := range runs {
		_, err := s.Runs.Begin(ctx, chat, run, "body")
		require.NoError(t, err)
		_, err = s.Runs.Log(ctx, chat, run, true, redisstore.Logged{Seq: 1, Line: []byte("{}")})
		require.NoError(t, err)
	}
	asked := map[string]bool{} // nodes that an erasure needs before it comes to the logs
	for _, key := range []string{"{chat_history:12345}:meta", "mneme:waiting"} {
		node, err := cluster.Client().MasterForKey(ctx, key)
		require.NoError(t, err)
		asked[node.Options().Addr] = true
	}
	writable := func(replicas string) {
		for _, n := range cluster.Nodes {
			if !asked[n.Addr] {
				require.NoError(t, n.Client().ConfigSet(ctx, "min-replicas-to-write", replicas).Err())
			}
		}
	}
	writable("1") // which none has
	require.Error(t, s.Runs.Erase(ctx, chat))
	writable("0")
	require.NoError(t, s.Runs.Erase(ctx, chat))
	for _, run := range runs {
		events, err := s.Runs.Events(ctx, chat, run, 0, 10)
		require.NoError(t, err)
		require.Empty(t, events, run)
	}
}

func clusterLists(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	var all []memory.Chat
	for i := range 200 {
		chat := memory.MustChat(fmt.Sprint("chat", i))
		all = append(all, chat)
		appendTo(t, s, memory.Empty(memory.ChatKey(chat)), "r", 5, 1)
	}
	for _, count := range []int{1, 7, 1000} {
		t.Run(fmt.Sprint("pages of ", count), func(t *testing.T) {
			seen := map[memory.Chat]bool{}
			pages := 0
			for cursor := ""; ; pages++ {
				require.Less(t, pages, 1000)
				chats, next, err := s.Chats.Page(ctx, cursor, count)
				require.NoError(t, err)
				for _, c := range chats {
					seen[c] = true
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			require.ElementsMatch(t, all, slices.Collect(maps.Keys(seen)))
		})
	}
	want := []string{"chat_history:chat1"}
	for i := range 10 {
		k := memory.SubagentKey(memory.Agent(fmt.Sprint("a", i)), memory.MustChat("chat1"))
		appendTo(t, s, memory.Empty(k), "r", 5, 2)
		appendTo(t, s, memory.Empty(memory.SubagentKey(k.Agent(), memory.MustChat("x:chat1"))), "r", 5, 2)
		want = append(want, k.String())
	}
	for i := range 10 { // on several nodes, in no index
		k := memory.SubagentKey(memory.Agent(fmt.Sprint("foreign", i)), memory.MustChat("chat1"))
		require.NoError(t, cluster.Client().Set(ctx, k.String(), `[{"role":"user","content":"x"}]`, 0).Err())
		want = append(want, k.String())
	}
	found, _, err := s.Chats.Scan(ctx, memory.MustChat("chat1"))
	require.NoError(t, err)
	stored, err := s.Chats.Measure(ctx, found...)
	require.NoError(t, err)
	var keys []string
	for _, h := range stored {
		keys = append(keys, h.Key.String())
	}
	require.Equal(t, want, keys)
}

func clusterErase(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	client := cluster.Client()
	keys := []memory.Key{memory.ChatKey(memory.MustChat("12345"))}
	for i := range 10 {
		keys = append(keys, memory.SubagentKey(memory.Agent(fmt.Sprint("a", i)), memory.MustChat("12345")))
	}
	for _, k := range keys {
		require.NoError(t, client.Set(ctx, k.String(), "damaged secret", 0).Err())
		appendTo(t, s, loadFrom(t, s, 5, memory.Empty(k)), "r", 5, 1)
	}
	_, err := s.Runs.Begin(ctx, memory.MustChat("12345"), "r", "body")
	require.NoError(t, err)
	require.NoError(t,
		failure(s.Runs.Log(ctx, memory.MustChat("12345"), "r", true, redisstore.Logged{Seq: 1, Line: []byte("secret")})))

	require.NoError(t, s.Erase(ctx, 6, keys[1]))
	require.Zero(t, loadFrom(t, s, 0, memory.Empty(keys[1])).Len())
	require.Equal(t, 1, loadFrom(t, s, 0, memory.Empty(keys[2])).Len())

	require.NoError(t, s.EraseChat(ctx, 7, memory.MustChat("12345"), keys...))
	want := map[string]string{}
	for _, k := range keys {
		want["{"+k.String()+"}:meta"] = "turn erased cut"
	}
	require.Equal(t, want, everything(t, client))
	for _, k := range keys {
		_, err := s.Append(ctx, memory.Empty(k), memory.Mark{Run: "r", Seq: 9, Turn: 6}, said(9))
		require.ErrorIs(t, err, memory.ErrMoved)
	}
}

// everything names the keys on all nodes, a hash with its fields.
func everything(t *testing.T, client *redis.ClusterClient) map[string]string {
	t.Helper()
	var mu sync.Mutex
	found := map[string]string{}
	require.NoError(t, client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*").Result()
		for _, k := range keys {
			fields := "no hash"
			if hash, err := node.HKeys(ctx, k).Result(); err == nil {
				slices.Sort(hash)
				slices.Reverse(hash)
				fields = fmt.Sprint(hash)[1:]
				fields = fields[:len(fields)-1]
			}
			mu.Lock()
			found[k] = fields
			mu.Unlock()
		}
		return err
	}))
	return found
}

func clusterTrim(t *testing.T, s *redisstore.Store, _ *redistest.Cluster) {
	h := memory.Empty(key)
	for seq := int64(1); seq <= 13; seq++ {
		h = appendTo(t, s, h, "r", 5, seq)
	}
	short, err := s.Archives.Trim(ctx, h, 5, 10)
	require.NoError(t, err)
	require.Equal(t, saying(13)[3:], contents(t, short))
	require.Equal(t, saying(13)[3:], contents(t, loadFrom(t, s, 6, h)))
}

func clusterRegain(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	h := appendTo(t, s, memory.Empty(key), "r", 5, 1, 2)
	lose := snapshot(t, cluster.Client())
	h = appendTo(t, s, h, "r", 5, 3, 4)
	lose()
	require.Equal(t, saying(4), contents(t, loadFrom(t, s, 6, h)))
}

func clusterForeign(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	client := cluster.Client()
	require.NoError(t, client.Set(ctx, key.String(), `[ {"role":"user","content":"0"} ]`, 0).Err())
	h := appendTo(t, s, loadFrom(t, s, 5, memory.Empty(key)), "r", 5, 1)
	require.Equal(t, []string{"0", "1"}, contents(t, h))
	require.NoError(t, client.Set(ctx, key.String(), `[{"role":`, 0).Err())
	require.Zero(t, loadFrom(t, s, 6, memory.Empty(key)).Len(), "set aside by RENAME, within the slot")
	require.EqualValues(t, 1, s.Counts.Damaged.Load())
}

func clusterMoves(t *testing.T, s *redisstore.Store, cluster *redistest.Cluster) {
	w := write(t, s, 5)
	w.reaches(10)
	for range 6 {
		cluster.Move(key.String())
	}
	w.reaches(w.acknowledged.Load() + 10)
	n := w.stop()
	other := redisstore.New(cluster.Client(), zerolog.Nop())
	require.Equal(t, saying(n), contents(t, loadFrom(t, other, 0, memory.Empty(key))))
}

func clusterReplicas(t *testing.T, s *redisstore.Store, _ *redistest.Cluster) {
	s.WaitReplicas = 1
	_, err := s.Append(ctx, memory.Empty(memory.ChatKey(memory.MustChat("12345"))), memory.Mark{Run: "r", Seq: 1, Turn: 5},
		said(1))
	require.ErrorIs(t, err, memory.ErrUnavailable, "this cluster has no replicas")
	require.ErrorContains(t, err, "0 of 1 replicas")
}
