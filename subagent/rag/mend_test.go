package rag

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/internal/testtier"
)

// sharedSet is a judged set of real passages that is no part of the project.
func sharedSet(t *testing.T, name string) []Passage {
	t.Helper()
	file, err := os.Open(outsidedata.Path(t, "rag", name, "corpus.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	var list []Passage
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var d struct{ ID, Title, Text string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &d))
		list = append(list, Passage{ID: d.ID, DocID: d.ID, Title: d.Title, Text: d.Text})
	}
	return list
}

// Of real passages no sentence that is cited rightly is moved to another one, whole or
// with a part of its words, and most of those that are cited wrongly are.
func TestMendingOverOutsideData(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for _, set := range []string{"xquad-ru", "cranfield", "cacm", "mtrag-mini"} {
		t.Run(set, func(t *testing.T) {
			passages := sharedSet(t, set)
			right, moved, wrong, mended, quotes := 0, 0, 0, 0, 0
			for at := 0; at+5 <= len(passages) && at < 1000; at += 10 {
				s := numbered(passages[at : at+5]...)
				for n := 1; n <= 5; n++ {
					for _, piece := range strings.SplitAfter(s.passages[n].passage.Text, ". ") {
						words := strings.Fields(piece)
						if len(words) < 8 || len(words) > 60 {
							continue
						}
						var some []string // three words of four
						for i, w := range words {
							if i%4 != 3 {
								some = append(some, w)
							}
						}
						for _, sentence := range []string{strings.Join(words, " "), strings.Join(some, " ")} {
							right++
							if s.attribute(sentence, n) != n {
								moved++
							}
							wrong++
							switch s.attribute(sentence, n%5+1) {
							case n:
								mended++
							case n%5 + 1:
							default:
								moved++
							}
						}
						if !quoted(strings.Join(words, " "), []*support{s.passages[n]}) {
							quotes++
						}
						break
					}
				}
			}
			t.Logf("%d right, %d moved wrongly, %d of %d mended, %d quotations not found", right, moved, mended, wrong, quotes)
			require.LessOrEqual(t, moved*1000, right+wrong, "at most one in a thousand")
			require.Greater(t, mended*4, wrong)
			require.Zero(t, quotes)
		})
	}
}
