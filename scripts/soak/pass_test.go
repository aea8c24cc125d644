package main

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/stack"
)

// Bodies that webmemory passes on are whole, and when the apiserver is killed they are
// whole or visibly broken. What was said to one webmemory is found at once by the other,
// also when one of them is killed.
func TestBodiesPassWholeAndWhatWasSaidIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds mneme and runs it as processes")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server; ./scripts/test installs it")
	}
	mneme, err := stack.Build(t.TempDir())
	require.NoError(t, err)
	for _, o := range []options{
		{mode: "pass", fault: faultNone, clients: 12},
		{mode: "pass", fault: faultNone, clients: 2, up: true},
		{mode: "pass", fault: faultKill, clients: 12, every: 500 * time.Millisecond},
		{mode: "recall", fault: faultKills, rounds: killEvery, level: "info"},
	} {
		o.mneme, o.dir, o.seed, o.bodies, o.library = mneme, t.TempDir(), 7, 600, 40
		var report bytes.Buffer
		clean, err := once(t.Context(), o, &report)
		require.NoError(t, err, report.String())
		require.True(t, clean, report.String())
	}
}
