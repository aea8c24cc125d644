package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/scripts/eval/internal/conversations"
)

// result is what came of one command line.
type result struct {
	code           int
	stdout, stderr string
}

func eval(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs strings.Builder
	code := (&console{stdout: &out, stderr: &errs}).run(t.Context(), args)
	return result{code, out.String(), errs.String()}
}

// A command line that is wrong ends with 2, what goes wrong with a right one with 1.
func TestEveryCommandTellsAWrongLineFromAFailure(t *testing.T) {
	for line, want := range map[string]string{
		"nope": `unknown command "nope"`, "recall": `"data" not set`, "recall --data . x": `unknown command "x"`,
		"retrieval --data . --no-such-flag": "unknown flag: --no-such-flag",
		"retrieval --data . --limit x":      `invalid argument "x"`,
	} {
		r := eval(t, strings.Fields(line)...)
		require.Equal(t, 2, r.code, line)
		require.Regexp(t, "^eval: .*"+want+".*; see eval --help\n$", r.stderr, line)
	}
	require.Contains(t, eval(t).stdout, "How well what was said is found again")
	require.Contains(t, eval(t, "recall", "--help").stdout, "go -C scripts run ./eval recall --data ../conversations")
}

func TestEvalRetrievalPrintsTheTable(t *testing.T) {
	data := filepath.Join("internal", "documents", "testdata")
	line := []string{"retrieval", "--data", data, "--set", "kitchen"}
	r := eval(t, line...)
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "kitchen  10         5        queries          mneme       0.9226")
	require.Contains(t, r.stderr, "kitchen: 5 queries, mneme\n")

	r = eval(t, append(line, "--json", "--prf")...)
	require.Zero(t, r.code)
	var report struct {
		Rows []struct {
			Ranking string  `json:"ranking"`
			MRR     float64 `json:"mrr_at_10"`
		} `json:"rows"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Len(t, report.Rows, 9)
	require.Equal(t, "mneme --prf", report.Rows[2].Ranking)
	require.InDelta(t, 1, report.Rows[2].MRR, 1e-12)

	require.Equal(t, result{1, "", "eval: " + data + " holds no judged set \"garden\", only kitchen\n"},
		eval(t, append(line, "--set", "garden")...))
}

func TestEvalRecallPrintsTheTable(t *testing.T) {
	line := []string{"recall", "--data",
		filepath.Join("internal", "conversations", "testdata", "garden")}
	r := eval(t, line...)
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "all        5  recall  1.000/1.000  1.000/1.000  1.000/1.000   1.000/1.000   0.800")
	require.Contains(t, r.stdout, "all        5  bm25    0.800/0.600  0.800/0.600  1.000/0.800   1.000/0.800   0.800")
	require.Contains(t, r.stderr, "importing ada: 10 messages\n")

	r = eval(t, append(line, "--json")...)
	require.Zero(t, r.code)
	var report struct {
		Questions int
		Budgets   map[string]struct{ Any, All float64 }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, 5, report.Questions)
	require.Equal(t, struct{ Any, All float64 }{1, 1}, report.Budgets["1500"])

	r = eval(t, "recall", "--data", t.TempDir())
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "has no conversations/*.jsonl")

	r = eval(t, append(line, "--turns", "--json")...)
	require.Zero(t, r.code, r.stderr)
	var turns conversations.InPrompts
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &turns))
	require.Equal(t, 5, turns.Questions)
	require.InDelta(t, 1, turns.AllFound, 1e-9, "the window shows it, or recall does")
	require.Positive(t, turns.Ordinary.Turns)
}
