package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchRefusesInOneSentence(t *testing.T) {
	for line, want := range map[string]result{
		"bench memory --runs 0":     {1, "", "mneme: --runs and --filler must be 1 or more\n"},
		"bench memory --redis nope": {1, "", "mneme: --redis is no Redis URL; give one such as redis://127.0.0.1:6379/9\n"},
		"bench proxy --rounds 0":    {1, "", "mneme: --requests, --rounds and --connections must be 1 or more\n"},
		"bench nothing":             {2, "", "mneme: unexpected argument nothing; see mneme --help\n"},
	} {
		t.Run(line, func(t *testing.T) {
			require.Equal(t, want, mneme(t, "", strings.Fields(line)...))
		})
	}
}

func TestBenchHelpHidesTheWriters(t *testing.T) {
	r := mneme(t, "", "bench", "--help")
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "bench memory")
	for _, hidden := range []string{"writers", "bench vendor", "bench relay", "bench gateway"} {
		require.NotContains(t, r.stdout, hidden)
	}
	require.Contains(t, mneme(t, "", "bench", "memory", "--help").stdout, "--redis=URL")
}
