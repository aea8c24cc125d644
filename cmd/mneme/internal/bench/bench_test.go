package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/cmd/mneme/internal/bench"
	"mneme/internal/redistest"
)

// asWriters makes the test binary a process of writers.
const asWriters = "MNEME_TEST_WRITERS"

func TestMain(m *testing.M) {
	if os.Getenv(asWriters) != "" {
		if err := bench.Write(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// small is a run that shows everything and takes a moment.
func small() bench.Options {
	return bench.Options{
		Runs: 2, Sizes: []int{10, 20}, Writers: 3, Turns: 5,
		Writer: func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), asWriters+"=1", "GORACE=atexit_sleep_ms=0") // the race detector would wait a second
			return cmd
		},
	}
}

func TestEveryRowIsMeasuredAndPrinted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var steps []string
	o := small()
	o.Progress = func(doing string) { steps = append(steps, doing) }
	o.Filler = 400
	o.Services = func(ctx context.Context, config string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], config)
		cmd.Env = append(os.Environ(), asPart+"=services", "GORACE=atexit_sleep_ms=0")
		return cmd
	}
	report, err := bench.Memory(t.Context(), o)
	require.NoError(t, err)
	require.True(t, report.OwnServer)
	require.Contains(t, steps, "run 2 of 2")

	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	require.NotContains(t, text.String(), "NaN")
	require.Len(t, report.Costs, 8*2)
	for _, c := range report.Costs {
		require.Contains(t, text.String(), c.Way)
		for _, s := range []bench.Spread{c.Micros, c.ToRedis, c.FromRedis, c.OverSmallest, c.BytesGrowth, c.OverOurs, c.OverGet} {
			require.Positive(t, s.Min, c.Way)
			require.LessOrEqual(t, s.Min, s.Median, c.Way)
			require.LessOrEqual(t, s.Median, s.Max, c.Way)
		}
	}
	require.Len(t, report.Contention, 3)
	for _, c := range report.Contention {
		require.Contains(t, text.String(), c.Way)
		require.Equal(t, 30, c.Expected)
		require.Zero(t, c.Invalid)
	}
	for _, c := range report.Contention[:2] { // the store's ways
		require.Equal(t, 30, c.Kept, c.Way)
		require.Zero(t, c.Twice, c.Way)
	}
	require.Len(t, report.Crowded, 4)
	for _, c := range report.Crowded {
		require.Contains(t, text.String(), c.What)
		require.Equal(t, 400, c.Keys)
		for _, s := range []bench.Spread{c.Few, c.Many, c.Ratio} {
			require.Positive(t, s.Min, c.What)
			require.LessOrEqual(t, s.Min, s.Median, c.What)
			require.LessOrEqual(t, s.Median, s.Max, c.What)
		}
	}
	require.Len(t, report.Reaches, 12+4)
	for _, r := range report.Reaches {
		require.Contains(t, text.String(), r.What)
	}

	encoded, err := json.Marshal(report)
	require.NoError(t, err)
	var again bench.Report
	require.NoError(t, json.Unmarshal(encoded, &again))
	require.Equal(t, *report, again)
}

func TestARedisInUseIsLeftAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	redis := redistest.Start(t)
	client := redis.Client()
	require.NoError(t, client.Set(t.Context(), "chat_history:12345", "[]", 0).Err())
	o := small()
	o.URL = redis.URL()

	_, err := bench.Memory(t.Context(), o)
	require.EqualError(t, err, "database 0 of "+redis.Addr+` holds 1 keys, "chat_history:12345" is one; name an empty database, or add --force: only keys that the benchmark made are changed and removed`)

	o.Force = true
	report, err := bench.Memory(t.Context(), o)
	require.NoError(t, err)
	require.False(t, report.OwnServer)
	require.Equal(t, []string{"chat_history:12345"}, client.Keys(t.Context(), "*").Val())
	require.Equal(t, "[]", client.Get(t.Context(), "chat_history:12345").Val())

	o.URL, o.Force = redis.URL()+"/9", false
	_, err = bench.Memory(t.Context(), o)
	require.NoError(t, err, "another database of it is empty")
	require.EqualValues(t, 1, client.DBSize(t.Context()).Val())
	require.NotContains(t, client.Info(t.Context(), "keyspace").Val(), "db9")
}

func TestAStoppedRunCleansUp(t *testing.T) {
	redis := redistest.Start(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := small()
	o.URL = redis.URL()
	o.Progress = func(doing string) {
		if doing == "run 2 of 2" {
			stop()
		}
	}
	_, err := bench.Memory(ctx, o)
	require.EqualError(t, err, "stopped before the end; an incomplete run is not shown")
	require.Zero(t, redis.Client().DBSize(t.Context()).Val())
}

func TestWritersThatFailAreAnError(t *testing.T) {
	o := small()
	o.Writer = func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "sh", "-c", "echo no such luck >&2; exit 3")
	}
	_, err := bench.Memory(t.Context(), o)
	require.ErrorContains(t, err, "no such luck")
}

func TestWithoutRedis(t *testing.T) {
	o := small()
	o.URL = "127.0.0.1:6379"
	_, err := bench.Memory(t.Context(), o)
	require.EqualError(t, err, "--redis is no Redis URL; give one such as redis://127.0.0.1:6379/9")
	t.Setenv("PATH", t.TempDir())
	o.URL = ""
	_, err = bench.Memory(t.Context(), o)
	require.ErrorContains(t, err, "there is no redis-server on the PATH; install one")
}
