package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
