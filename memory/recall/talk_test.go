package recall

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// Of made-up talk of three kinds, which testdata/talk/README.md describes: how many of the messages that need what was
// said before get a block of it, how many of those that don't, and how many blocks have what answers.
func TestBlocksInTalk(t *testing.T) {
	testtier.Slow(t)
	files, err := filepath.Glob("testdata/talk/*.json")
	require.NoError(t, err)
	require.Len(t, files, 10)
	var needed, blocks, answered, others, noise, tokens float64
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var talk struct {
			History []struct {
				Day        int
				Role, Text string
			}
			Asks []struct {
				Text   string
				Needs  bool
				Answer []int
			}
		}
		require.NoError(t, json.Unmarshal(raw, &talk))
		ix := New(key)
		var last time.Time
		for i, m := range talk.History {
			last = start.AddDate(0, 0, m.Day).Add(time.Duration(i) * time.Minute)
			ix.Append(said(fmt.Sprint(i), m.Role, m.Text, last))
		}
		for _, a := range talk.Asks {
			var shown []string
			cost := 0.0
			if MayNeed(a.Text) {
				r := Search([]*Index{ix}, Query{
					Text: a.Text, AskedAt: last.AddDate(0, 0, 1), Budget: 2000, Overhead: 40, Needed: true,
				})
				shown = ids(r)
				for _, h := range r.Hits {
					cost += float64(len([]rune(h.Text))+40) / 4
				}
			}
			one := func(is bool) float64 { return map[bool]float64{true: 1}[is] }
			if !a.Needs {
				others++
				noise += one(len(shown) > 0)
				tokens += cost
				continue
			}
			needed++
			blocks += one(len(shown) > 0)
			answered += one(slices.ContainsFunc(a.Answer, func(i int) bool { return slices.Contains(shown, fmt.Sprint(i)) }))
		}
	}
	t.Logf("needed: blocks for %.2f, with what answers %.2f; blocks for %.2f of the others, %.0f tokens on average",
		blocks/needed, answered/needed, noise/others, tokens/others)
	require.GreaterOrEqual(t, blocks/needed, 0.85)
	require.GreaterOrEqual(t, answered/needed, 0.76)
	require.LessOrEqual(t, noise/others, 0.15)
	require.LessOrEqual(t, tokens/others, 100.0)
}
