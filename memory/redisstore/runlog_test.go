package redisstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/redisstore"
)

const logRun = "AAAAAAAAAAAAAAAAAAAAAAAAAA"

// told are the events of a run: deltas, but for every n-th.
func told(count, n int) (events []redisstore.Logged) {
	for seq := 1; seq <= count; seq++ {
		line := fmt.Sprintf(`{"role":"assistant_delta","run_id":%q,"seq":%d,"ts":1763711157.%03d,"text":"слово %d"}`, logRun,
			seq, seq%1000, seq)
		if seq%n == 0 {
			line = fmt.Sprintf(`{"role":"subagent_delegation","run_id":%q,"seq":%d,"ts":1763711157.25,"task":"t"}`, logRun, seq)
		}
		events = append(events, redisstore.Logged{Seq: int64(seq), Line: []byte(line)})
	}
	return events
}

func (w *world) logged(t *testing.T, after int64) (events []redisstore.Logged) {
	t.Helper()
	for {
		more, err := w.Runs.Events(ctx, memory.MustChat("1"), logRun, after, 7)
		require.NoError(t, err)
		if len(more) == 0 {
			return events
		}
		events, after = append(events, more...), more[len(more)-1].Seq
	}
}

// Whatever was joined how, and repeated how after a reply that was lost, a reader gets
// the events after its number, each once.
func TestAReaderGetsExactlyWhatItMisses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := told(60, 9)
	for _, part := range [][2]int{{0, 5}, {3, 5}, {2, 14}, {14, 15}, {10, 30}, {30, 60}, {0, 60}} {
		require.NoError(t, failure(w.Runs.Log(ctx, memory.MustChat("1"), logRun, true, all[part[0]:part[1]]...)))
	}
	check := func() {
		t.Helper()
		for after := range len(all) + 1 {
			got := w.logged(t, int64(after))
			require.Equal(t, len(all)-after, len(got), "after %d", after)
			for i := range got {
				require.Equal(t, all[after+i].Seq, got[i].Seq)
				require.Equal(t, string(all[after+i].Line), string(got[i].Line))
			}
		}
		last, err := w.Runs.LastEvent(ctx, memory.MustChat("1"), logRun)
		require.NoError(t, err)
		require.Equal(t, string(all[59].Line), string(last))
	}
	check()
	require.NoError(t, w.Runs.Finish(ctx, memory.MustChat("1"), logRun, []byte("{}")))
	require.NoError(t, w.Runs.Pack(ctx, memory.MustChat("1"), logRun, all...))
	check()
	require.NoError(t, w.Runs.Pack(ctx, memory.MustChat("1"), logRun, all...), "it may be packed again")
	check()
	require.NoError(t, failure(w.Runs.Log(ctx, memory.MustChat("1"), logRun, true, all[40:]...)),
		"and a late repetition adds nothing")
	check()
}

func TestEventsThatWaitTogetherAreOneEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := told(10, 4)
	n, err := w.Runs.Log(ctx, memory.MustChat("1"), logRun, true, all[:9]...)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, failure(w.Runs.Log(ctx, memory.MustChat("1"), logRun, false, all[9])))
	found, err := w.redis.XRange(ctx, "events:1:"+logRun, "-", "+").Result()
	require.NoError(t, err)
	var before strings.Builder
	for _, l := range all[:8] {
		before.Write(l.Line)
		before.WriteByte('\n')
	}
	require.Equal(t, []redis.XMessage{
		{ID: "9-0", Values: map[string]any{"e": string(all[8].Line), "b": before.String()}},
		{ID: "10-0", Values: map[string]any{"e": string(all[9].Line)}},
	}, found)
	n, err = w.Runs.LogLen(ctx, memory.MustChat("1"), logRun)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

func TestAPackedLogIsSmallAndLivesNoLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := told(200, 50)
	require.NoError(t, failure(w.Runs.Log(ctx, memory.MustChat("1"), logRun, true, all...)))
	require.NoError(t, w.Runs.Finish(ctx, memory.MustChat("1"), logRun, []byte("{}")))
	key := "events:1:" + logRun
	size := func() (bytes int) {
		for _, m := range w.redis.XRange(ctx, key, "-", "+").Val() {
			for name, v := range m.Values {
				bytes += len(m.ID) + len(name) + len(v.(string))
			}
		}
		return bytes
	}
	before := size()
	require.NoError(t, w.redis.PExpire(ctx, key, time.Minute).Err())
	require.NoError(t, w.Runs.Pack(ctx, memory.MustChat("1"), logRun, all...))
	require.Less(t, size(), before/6)
	left := w.redis.PTTL(ctx, key).Val()
	require.Positive(t, left)
	require.LessOrEqual(t, left, time.Minute)
}

// What was erased while it was read must not come back with what is written anew.
func TestPackingRevivesNothingErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.Runs.Pack(ctx, memory.MustChat("1"), logRun, told(5, 9)...))
	require.Zero(t, w.redis.Exists(ctx, "events:1:"+logRun).Val())

	_, err := w.Runs.Begin(ctx, memory.MustChat("1"), logRun, "body")
	require.NoError(t, err)
	all := told(100, 9)
	require.NoError(t, failure(w.Runs.Log(ctx, memory.MustChat("1"), logRun, true, all...)))
	done := make(chan error)
	go func() {
		var err error
		for range 200 {
			if err = w.Runs.Pack(ctx, memory.MustChat("1"), logRun, all...); err != nil {
				break
			}
		}
		done <- err
	}()
	require.NoError(t, w.Runs.Erase(ctx, memory.MustChat("1")))
	require.NoError(t, <-done)
	require.Zero(t, w.redis.Exists(ctx, "events:1:"+logRun, "run:1:"+logRun).Val())
}

func TestWhatIsKeptOfARunFollowsItsTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunLife, w.ResumeLife = time.Hour, 20*time.Minute
	life := func(key string) time.Duration { return w.redis.PTTL(ctx, key).Val() }
	near := func(want, got time.Duration) {
		t.Helper()
		require.InDelta(t, want.Seconds(), got.Seconds(), 60)
	}
	until := func(run string) time.Duration {
		at, err := w.redis.HGet(ctx, "{chat_history:1}:meta", "r:"+run).Int64()
		require.NoError(t, err)
		return time.Until(time.UnixMilli(at))
	}
	_, err := w.Runs.Begin(ctx, memory.MustChat("1"), "keyed", "body")
	require.NoError(t, err)
	_, err = w.Runs.BeginUnkeyed(ctx, memory.MustChat("1"), "free", "body")
	require.NoError(t, err)
	for _, run := range []string{"keyed", "free"} {
		require.NoError(t, failure(w.Runs.Log(ctx, memory.MustChat("1"), run, true, told(1, 9)...)))
		near(80*time.Minute, life("events:1:"+run)) // an hour until its next event, and 20 min to resume it
		require.GreaterOrEqual(t, until(run), 140*time.Minute-time.Minute)
	}
	near(24*time.Hour, life("run:1:keyed"))
	near(140*time.Minute, life("run:1:free"))

	finish := func(run, result string, keyed bool) {
		t.Helper()
		require.NoError(t, failure(w.Turns.Take(ctx, memory.MustChat("1"), "token", "c", time.Minute)))
		require.NoError(t, w.Runs.Finish(ctx, memory.MustChat("1"), run, []byte(result)))
		require.NoError(t, w.Turns.Close(ctx, memory.MustChat("1"), "token", run, run, keyed))
	}
	finish("keyed", `{"status":200}`, true)
	finish("free", `{"status":200}`, false)
	near(24*time.Hour, life("run:1:keyed"))
	near(24*time.Hour, until("keyed"))
	near(20*time.Minute, life("run:1:free"))
	near(20*time.Minute, until("free"))
	near(20*time.Minute, life("events:1:keyed"))
	near(20*time.Minute, life("events:1:free"))
	record, err := w.Runs.Record(ctx, memory.MustChat("1"), "free")
	require.NoError(t, err)
	require.Equal(t, &redisstore.Record{Body: "body", Result: []byte("{}")}, record, "it is known to be over")
	record, err = w.Runs.Record(ctx, memory.MustChat("1"), "keyed")
	require.NoError(t, err)
	require.Equal(t, `{"status":200}`, string(record.Result))

	redisstore.Later(w.Store, 21*time.Minute)
	_, err = w.Runs.Begin(ctx, memory.MustChat("1"), "next", "body")
	require.NoError(t, err)
	finish("next", "{}", true)
	fields, err := w.redis.HKeys(ctx, "{chat_history:1}:meta").Result()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"turn", "conversation", "r:keyed", "r:next"}, fields)
}

// An index with many runs tells of subagents and forgets runs as a short one does, and a turn does
// not look through all of it.
func TestAnIndexOfManyRuns(t *testing.T) {
	t.Parallel()
	w, chat := newWorld(t), memory.MustChat("1")
	begin := func(run string) (agents []memory.Agent) {
		t.Helper()
		turn, err := w.Turns.Take(ctx, chat, "token", "c", time.Minute)
		require.NoError(t, err)
		require.NoError(t, failure(w.Runs.BeginUnkeyed(ctx, chat, run, "body")))
		return turn.Agents
	}
	end := func(run string) { require.NoError(t, w.Turns.Close(ctx, chat, "token", run, run, false)) }
	write := func(agent memory.Agent) {
		t.Helper()
		turn, err := w.Turns.Take(ctx, chat, "token", "c", time.Minute)
		require.NoError(t, err)
		have := w.load(t, turn.Number, memory.Empty(memory.SubagentKey(agent, chat)))
		require.NoError(t, failure(w.Append(ctx, have, memory.Mark{Run: "r", Seq: 1, Turn: turn.Number}, message("1"))))
	}
	write("analytic")
	for i := range 300 {
		run := fmt.Sprintf("run%d", i)
		require.Equal(t, []memory.Agent{"analytic"}, begin(run))
		end(run)
	}
	looks := func() int64 { return commandCalls(t, w.redis, "hkeys") + commandCalls(t, w.redis, "hgetall") }
	before := looks()
	require.Equal(t, []memory.Agent{"analytic"}, begin("next"))
	end("next")
	require.Equal(t, before, looks(), "nobody looked through the index")

	write("knowledge")
	require.ElementsMatch(t, []memory.Agent{"analytic", "knowledge"}, begin("later"), "what came since is told")
	turn, err := w.Turns.Take(ctx, chat, "token", "c", time.Minute)
	require.NoError(t, err)
	require.NoError(t, w.Erase(ctx, turn.Number, memory.SubagentKey("analytic", chat)))
	require.Equal(t, []memory.Agent{"knowledge"}, begin("last"), "what was erased is not")

	redisstore.Later(w.Store, time.Hour)
	for i := range 600 {
		run := fmt.Sprintf("new%d", i)
		require.Equal(t, []memory.Agent{"knowledge"}, begin(run))
		end(run)
	}
	require.False(t, w.redis.HExists(ctx, "{chat_history:1}:meta", "r:run0").Val(), "runs of which nothing is kept go")
}

// commandCalls is how often a command was called.
func commandCalls(t *testing.T, client *redis.Client, name string) (n int64) {
	t.Helper()
	stats, err := client.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	_, of, _ := strings.Cut(stats, "cmdstat_"+name+":calls=")
	n, _ = strconv.ParseInt(strings.SplitN(of, ",", 2)[0], 10, 64)
	return n
}

// failure is the error of a call of which nothing else is wanted.
func failure[T any](_ T, err error) error { return err }
