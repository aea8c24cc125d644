package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/bench"
	"mneme/cmd/mneme/internal/config"
)

// asPart makes the test binary the vendor, the smallest proxy or the gateway.
// Variables that begin with MNEME_ do not reach the gateway.
const asPart = "BENCH_TEST_PART"

func init() {
	run := map[string]func(context.Context) error{"vendor": vendor, "relay": relay, "gateway": gateway, "services": services}[os.Getenv(asPart)]
	if run == nil {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func vendor(ctx context.Context) error { return bench.Vendor(ctx, os.Stdin, os.Stdout) }

func relay(ctx context.Context) error { return bench.Relay(ctx, os.Args[1], os.Args[2]) }

// gateway is mneme proxy --config os.Args[1], and leaves files named by what
// follows as one that profiles itself does.
func gateway(ctx context.Context) error {
	cfg, err := config.Load(os.Args[1], os.Environ())
	if err == nil {
		err = app.Proxy(ctx, cfg, app.Options{Log: zerolog.New(os.Stderr)})
	}
	for _, name := range os.Args[2:] {
		err = errors.Join(err, os.WriteFile(name, []byte("profile"), 0o600))
	}
	return err
}

// services is mneme up --offline --config os.Args[1].
func services(ctx context.Context) error {
	cfg, err := config.Load(os.Args[1], os.Environ())
	if err != nil {
		return err
	}
	return app.Up(ctx, cfg, app.Options{Log: zerolog.New(os.Stderr)})
}

// tiny is a run that shows everything, and the processes that it started.
func tiny() (o bench.ProxyOptions, started *[]*exec.Cmd) {
	started = new([]*exec.Cmd)
	part := func(ctx context.Context, name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, os.Args[0], args...)
		cmd.Env = append(os.Environ(), asPart+"="+name, "GORACE=atexit_sleep_ms=0") // the race detector would wait a second
		*started = append(*started, cmd)
		return cmd
	}
	return bench.ProxyOptions{
		Requests: 20, Rounds: 2, Connections: 3, Turns: []int{10},
		Vendor: func(ctx context.Context) *exec.Cmd { return part(ctx, "vendor") },
		Relay: func(ctx context.Context, listen, vendor string) *exec.Cmd {
			return part(ctx, "relay", listen, vendor)
		},
		Gateway: func(ctx context.Context, config string) *exec.Cmd {
			return part(ctx, "gateway", config)
		},
		Profiled: func(ctx context.Context, config, cpu, allocs string) *exec.Cmd {
			return part(ctx, "gateway", config, cpu, allocs)
		},
	}, started
}

// requireNothingLeft is called when a run is over.
func requireNothingLeft(t *testing.T, started []*exec.Cmd, temp string) {
	t.Helper()
	for _, cmd := range started {
		require.True(t, cmd.Process == nil || cmd.ProcessState != nil, "%v has not ended", cmd)
	}
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestEveryWayToTheVendorIsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("MNEME_PROXY_LISTEN", "127.0.0.1:1") // is for another gateway
	_, missing := exec.LookPath("nginx")
	o, started := tiny()
	var steps []string
	o.Progress = func(doing string) { steps = append(steps, doing) }
	report, err := bench.Proxy(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, steps, "round 2 of 2")
	require.GreaterOrEqual(t, len(*started), 1+2*(1+3), "the vendor, and the smallest proxy and the gateway, with one for each measurement of the memory and for its warming up")
	requireNothingLeft(t, *started, temp)

	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	require.NotContains(t, text.String(), "NaN")
	var rows []string
	reaches := 0
	for _, m := range report.Metrics {
		rows = append(rows, m.Row)
		require.Contains(t, text.String(), m.What)
		if m.Reach != "" {
			reaches++
			require.Contains(t, text.String(), "reach "+m.Reach)
		}
		for _, w := range m.Ways {
			if w.Way == "nginx" && missing != nil {
				continue
			}
			require.NotNil(t, w.Spread, "%s, %s", m.What, w.Way)
			require.Positive(t, w.Spread.Min, "%s, %s", m.What, w.Way)
			require.LessOrEqual(t, w.Spread.Min, w.Spread.Median, m.What)
			require.LessOrEqual(t, w.Spread.Median, w.Spread.Max, m.What)
		}
		requireBesideNetHTTP(t, m)
	}
	require.Equal(t, o.Rows(), slices.Compact(rows))
	require.Equal(t, 6, reaches)

	encoded, err := json.Marshal(report)
	require.NoError(t, err)
	var again bench.ProxyReport
	require.NoError(t, json.Unmarshal(encoded, &again))
	require.Equal(t, *report, again)
}

// requireBesideNetHTTP is called with each row of a whole run.
func requireBesideNetHTTP(t *testing.T, m bench.Metric) {
	t.Helper()
	var ways []string
	for _, w := range m.Ways {
		ways = append(ways, w.Way)
	}
	at := slices.Index(ways, "net/http")
	require.Equal(t, slices.Contains([]string{"json", "stream", "history", "memory"}, m.Row), at >= 0, m.What)
	if at >= 0 {
		require.Equal(t, []string{"nginx", "net/http", "mneme"}, ways[at-1:], m.What)
	}
	for i, w := range m.Ways {
		require.Equal(t, at >= 0 && i == at+1, w.OverNetHTTP != nil, "%s, %s", m.What, w.Way)
	}
}

func TestWithoutNginxTheRestGoesOn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Setenv("PATH", t.TempDir())
	o, _ := tiny()
	o.Only = []string{"json", "translated"}
	report, err := bench.Proxy(t.Context(), o)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	require.Contains(t, text.String(), "  nginx     nginx not installed: apt-get install nginx-light\n")
	require.Len(t, report.Metrics, 4)
	for _, m := range report.Metrics {
		ways := map[string]bool{}
		for _, w := range m.Ways {
			ways[w.Way] = w.Spread != nil
			require.Nil(t, w.OverNginx, m.What)
			require.Equal(t, m.Row == "json" && w.Way == "mneme", w.OverNetHTTP != nil, m.What)
		}
		require.True(t, ways["mneme"], m.What)
		require.Equal(t, m.Row == "json", ways["net/http"], m.What)
		require.False(t, ways["nginx"], m.What)
	}
}

func TestProfilesOfTheGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Setenv("PATH", t.TempDir()) // nginx is not needed for it
	o, _ := tiny()
	o.Only, o.Profiles = []string{"history", "memory"}, filepath.Join(t.TempDir(), "new")
	report, err := bench.Proxy(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(o.Profiles, "history.cpu.pprof"), filepath.Join(o.Profiles, "history.allocs.pprof")}, report.Profiles)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	for _, name := range report.Profiles {
		require.FileExists(t, name)
		require.Contains(t, text.String(), name)
	}
}

func TestAStoppedComparisonCleansUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	temp := t.TempDir()
	for _, when := range []string{"starting mneme", "round 1 of 2"} {
		t.Run(when, func(t *testing.T) {
			t.Setenv("TMPDIR", temp)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			o, started := tiny()
			o.Progress = func(doing string) {
				if doing == when {
					stop()
				}
			}
			_, err := bench.Proxy(ctx, o)
			require.EqualError(t, err, "stopped before the end; an incomplete run is not shown")
			requireNothingLeft(t, *started, temp)
		})
	}
}

func TestPartsThatFailAreAnError(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fails := func(ctx context.Context) *exec.Cmd {
		return exec.CommandContext(ctx, "/bin/sh", "-c", "echo no such luck >&2; exit 3")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	o, started := tiny()
	o.Vendor = fails
	_, err := bench.Proxy(t.Context(), o)
	require.ErrorContains(t, err, "the vendor did not start")
	require.ErrorContains(t, err, "no such luck")
	requireNothingLeft(t, *started, temp)

	o, started = tiny()
	o.Relay = func(ctx context.Context, _, _ string) *exec.Cmd { return fails(ctx) }
	_, err = bench.Proxy(t.Context(), o)
	require.ErrorContains(t, err, "net/http: it ended at once: no such luck")
	requireNothingLeft(t, *started, temp)

	o, started = tiny()
	o.Gateway = func(ctx context.Context, _ string) *exec.Cmd { return fails(ctx) }
	_, err = bench.Proxy(t.Context(), o)
	require.ErrorContains(t, err, "mneme: it ended at once: no such luck")
	requireNothingLeft(t, *started, temp)

	o, _ = tiny()
	o.Only = []string{"jsno"}
	_, err = bench.Proxy(t.Context(), o)
	require.EqualError(t, err, `there is no row "jsno"; there are json, stream, translated, history, memory, 10-turns`)
}
