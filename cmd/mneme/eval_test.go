package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/recall/evaluate"
)

func TestEvalRetrievalPrintsTheTable(t *testing.T) {
	data := filepath.Join("..", "..", "subagent", "rag", "evaluate", "testdata")
	line := []string{"eval", "retrieval", "--data", data, "--set", "kitchen"}
	r := mneme(t, "", line...)
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "kitchen  10         5        queries          mneme       0.9226")
	require.Contains(t, r.stderr, "kitchen: 5 queries, mneme\n")

	r = mneme(t, "", append(line, "--json", "--prf")...)
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

	require.Equal(t, result{1, "", "mneme: " + data + " holds no judged set \"garden\", only kitchen\n"},
		mneme(t, "", append(line, "--set", "garden")...))
}

func TestEvalRecallPrintsTheTable(t *testing.T) {
	line := []string{"eval", "recall", "--data",
		filepath.Join("..", "..", "memory", "recall", "evaluate", "testdata", "garden")}
	r := mneme(t, "", line...)
	require.Zero(t, r.code)
	require.Contains(t, r.stdout, "all        5  recall  1.000/1.000  1.000/1.000  1.000/1.000   1.000/1.000   0.800")
	require.Contains(t, r.stdout, "all        5  bm25    0.800/0.600  0.800/0.600  1.000/0.800   1.000/0.800   0.800")
	require.Contains(t, r.stderr, "importing ada: 10 messages\n")

	r = mneme(t, "", append(line, "--json")...)
	require.Zero(t, r.code)
	var report struct {
		Questions int
		Budgets   map[string]struct{ Any, All float64 }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, 5, report.Questions)
	require.Equal(t, struct{ Any, All float64 }{1, 1}, report.Budgets["1500"])

	r = mneme(t, "", "eval", "recall", "--data", t.TempDir())
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "has no conversations/*.jsonl")

	r = mneme(t, "", append(line, "--turns", "--json")...)
	require.Zero(t, r.code, r.stderr)
	var turns evaluate.InPrompts
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &turns))
	require.Equal(t, 5, turns.Questions)
	require.InDelta(t, 1, turns.All, 1e-9, "the window shows it, or recall does")
	require.Positive(t, turns.Ordinary.Turns)
}
