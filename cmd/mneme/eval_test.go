package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvalRetrievalPrintsTheTable(t *testing.T) {
	var out, progress bytes.Buffer
	con := &console{stdin: strings.NewReader(""), stdout: &out, stderr: &progress}
	c := evalRetrievalCmd{Data: filepath.Join("..", "..", "subagent", "rag", "evaluate", "testdata"), Set: "kitchen"}
	require.NoError(t, c.Run(t.Context(), con))
	require.Contains(t, out.String(), "kitchen  10         5        queries          mneme       0.9226")
	require.Contains(t, progress.String(), "kitchen: 5 queries, mneme\n")

	out.Reset()
	c.JSON, c.PRF = true, true
	require.NoError(t, c.Run(t.Context(), con))
	var report struct {
		Rows []struct {
			Ranking string  `json:"ranking"`
			MRR     float64 `json:"mrr_at_10"`
		} `json:"rows"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	require.Len(t, report.Rows, 9)
	require.Equal(t, "mneme --prf", report.Rows[2].Ranking)
	require.InDelta(t, 1, report.Rows[2].MRR, 1e-12)

	c.Set = "garden"
	require.EqualError(t, c.Run(t.Context(), con), c.Data+` holds no judged set "garden", only kitchen`)
}
