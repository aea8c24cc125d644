package documents

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/outsidedata"
	"mneme/internal/testtier"
)

// The definitions, worked out by hand: four relevant documents, one of them far
// down and one not found.
func TestMeasure(t *testing.T) {
	grades := map[string]int{"a": 3, "b": 1, "c": 2, "d": 1, "bad": 0, "worse": -1}
	ranking := []string{"bad", "a", "x", "worse", "y", "b"}
	for len(ranking) < 150 {
		ranking = append(ranking, "x")
	}
	ranking[119] = "c"
	m := measure(ranking, grades)
	ideal := 3 + 2/math.Log2(3) + 1/math.Log2(4) + 1/math.Log2(5)
	require.InDelta(t, (3/math.Log2(3)+1/math.Log2(7))/ideal, m.NDCG10, 1e-12)
	require.InDelta(t, 0.5, m.MRR10, 1e-12)
	require.InDelta(t, 0.25, m.Recall5, 1e-12)
	require.InDelta(t, 0.5, m.Recall100, 1e-12)
	require.InDelta(t, (1.0/2+2.0/6+3.0/120)/4, m.MAP, 1e-12)

	require.Equal(t, Measures{}, measure(nil, grades))
	require.Equal(t, Measures{}, measure([]string{"x", "bad"}, grades))
	late := measure([]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "a"}, map[string]int{"a": 1})
	require.Equal(t, Measures{Recall100: 1, MAP: 1.0 / 11}, late)
}

// The fixture's answers are known: what a conversation adds shows, queries without
// relevant documents do not count, and what cannot be found counts as not found.
func TestFixture(t *testing.T) {
	report := run(t, filepath.Join("testdata", "kitchen"), Options{Feedback: true})
	rows := map[string]Row{}
	for _, r := range report.Rows {
		rows[r.Form+" "+r.Way] = r
	}
	require.Len(t, rows, 9)
	queries := rows["queries mneme"]
	require.Equal(t, 5, queries.Queries)
	require.Equal(t, 10, queries.Documents)
	require.InDelta(t, 1, queries.MRR10, 1e-12)
	require.InDelta(t, 0.9, queries.Recall100, 1e-12, "half of q5's documents are not there")
	require.InDelta(t, (4+1/(1+1/math.Log2(3)))/5, queries.NDCG10, 1e-12,
		"equal texts are both found, in the order of their ids")
	require.Equal(t, 2, rows["conversations mneme"].Queries)
	require.InDelta(t, 1, rows["conversations mneme"].NDCG10, 1e-12)
	require.Equal(t, 1, rows["queries_rewrite mneme"].Queries)
	require.Zero(t, *queries.Doubted)
	require.Nil(t, rows["queries plain BM25"].Doubted)
	require.InDelta(t, 1, rows["queries mneme --prf"].MRR10, 1e-12)
	require.Empty(t, report.Reaches)
}

// Behind other topics the queries are the same, with something before them.
func TestQueriesAfterOtherTopics(t *testing.T) {
	s, err := load(filepath.Join("testdata", "kitchen"))
	require.NoError(t, err)
	before := 0
	for _, f := range s.forms {
		later := s.afterOthers(f)
		require.Equal(t, f.name+", after other topics", later.name)
		require.Equal(t, later, s.afterOthers(f), "the same on every run")
		require.Len(t, later.queries, len(f.queries))
		for i, q := range f.queries {
			after := later.queries[i]
			require.Equal(t, q.id+q.text, after.id+after.text)
			earlier := after.history[:len(after.history)-len(q.history)]
			require.ElementsMatch(t, q.history, after.history[len(earlier):])
			for _, m := range earlier {
				require.NotEqual(t, q.opening(), m.Content)
				require.NotEmpty(t, m.Content)
			}
			before += len(earlier)
		}
	}
	require.Positive(t, before)
	report := run(t, filepath.Join("testdata", "kitchen"), Options{Topics: true})
	figures := map[string]Row{}
	for _, r := range report.Rows {
		figures[r.Form+" "+r.Way] = r
	}
	require.Len(t, figures, 12)
	require.Equal(t, figures["queries mneme"].Measures, figures["queries, after other topics mneme"].Measures)
}

func run(t *testing.T, dir string, o Options) *Report {
	t.Helper()
	folders, err := Find(dir, "")
	require.NoError(t, err)
	report, err := Run(t.Context(), folders, o)
	require.NoError(t, err)
	return report
}

// Two runs print the same.
func TestRunsAreEqual(t *testing.T) {
	text := func() string {
		var b bytes.Buffer
		require.NoError(t, run(t, "testdata", Options{Feedback: true}).WriteText(&b))
		return b.String()
	}
	first := text()
	require.Equal(t, first, text())
	require.Contains(t, first, "kitchen  10         5        queries")
}

// Questions lose little behind other topics, and so do conversations. CACM loses most, by .0314: all of its documents
// and questions are of one topic, so that a question on another of its subjects is hardly told from one that goes on.
func TestTopicsOfOutsideData(t *testing.T) {
	testtier.Slow(t)
	report := run(t, outsidedata.Path(t, "rag"), Options{Topics: true})
	alone, pairs := map[string]Row{}, 0
	for _, row := range report.Rows {
		if row.Way != wayMneme {
			continue
		}
		if form, later := strings.CutSuffix(row.Form, afterOthers); later {
			pairs++
			require.GreaterOrEqual(t, row.NDCG10, alone[row.Set+form].NDCG10-0.035, "%s %s", row.Set, row.Form)
		}
		alone[row.Set+row.Form] = row
	}
	require.Positive(t, pairs)
}

// The judged sets, and what is to be reached on them.
func TestReachesOutsideData(t *testing.T) {
	testtier.Slow(t)
	report := run(t, outsidedata.Path(t, "rag"), Options{Feedback: true})
	require.NotEmpty(t, report.Reaches)
	for _, r := range report.Reaches {
		require.GreaterOrEqual(t, r.Measured, r.AtLeast, "%s of %s on %s", r.Measure, r.Way, r.Set)
		require.True(t, r.Met)
	}
	for _, row := range report.Rows {
		if row.Doubted != nil {
			require.LessOrEqual(t, *row.Doubted, 0.3, "queries of %s %s called weak though an answer is there", row.Set,
				row.Form)
		}
	}
}

func TestReachesAreJudgedByTheFirstWording(t *testing.T) {
	good, bad := Measures{NDCG10: 0.7, Recall5: 0.1}, Measures{NDCG10: 0.1, Recall5: 0.7}
	report := Report{Rows: []Row{
		{Set: "mtrag-mini", Form: "conversations", Way: wayPlain, Measures: bad},
		{Set: "mtrag-mini", Form: "conversations", Way: wayMneme, Measures: good},
		{Set: "mtrag-mini", Form: "queries", Way: wayMneme, Measures: bad},
	}}
	report.judge()
	require.Equal(t, []Reach{
		{"mtrag-mini", wayMneme, "nDCG@10", 0.7, 0.61, true},
		{"mtrag-mini", wayMneme, "Recall@5", 0.1, 0.62, false},
	}, report.Reaches)
	var b bytes.Buffer
	require.NoError(t, report.WriteText(&b))
	require.Regexp(t,
		`yes +mtrag-mini +mneme +nDCG@10 +0\.7000 +≥ 0\.610\n +no +mtrag-mini +mneme +Recall@5 +0\.1000 +≥ 0\.620`,
		b.String())
}

func TestWrongSetsAreOneSentence(t *testing.T) {
	usual := map[string]string{
		corpusFile: `{"id":"a","text":"apple"}`, queriesFile: `{"id":"q","text":"apple"}`, judgementsFile: "q\ta\t1",
	}
	for _, c := range []struct{ name, file, content, want string }{
		{"no JSON", corpusFile, "\n{\"id\":\"a\"}\nnope",
			`corpus.jsonl:3: a line must be a JSON object: invalid character 'o' in literal null (expecting 'u')`},
		{"no object", corpusFile, "[1]", `corpus.jsonl:1: a line must be a JSON object, not a JSON array`},
		{"wrong type", corpusFile, `{"id":"a","text":7}`, `corpus.jsonl:1: "text" cannot be a JSON number`},
		{"id as a number", queriesFile, `{"id":7,"text":"x"}`, `queries.jsonl:1: "id" cannot be a JSON number`},
		{"no id", corpusFile, `{"text":"x"}`, `corpus.jsonl:1: "id" is missing`},
		{"id again", queriesFile, "{\"id\":\"q\",\"text\":\"x\"}\n{\"id\":\"q\",\"text\":\"y\"}",
			`queries.jsonl:2: id "q" occurs a second time`},
		{"empty corpus", corpusFile, "\n", "corpus.jsonl holds no documents"},
		{"spaces for tabs", judgementsFile, "q a 1",
			"qrels.tsv:1: a line is a query's id, a document's id and a grade with tabs between them; this one has 1 fields"},
		{"grade", judgementsFile, "q\ta\t1\nq\tb\thigh", `qrels.tsv:2: the grade must be an integer, not "high"`},
		{"judged twice", judgementsFile, "q\ta\t1\r\nq\ta\t0",
			`qrels.tsv:2: document "a" is judged a second time for query "q"`},
		{"nothing relevant", judgementsFile, "q\ta\t0", "qrels.tsv: no query of queries has a relevant document"},
		{"conversation", conversationsFile, `{"id":"q","messages":[{"role":"assistant","content":"x"}]}`,
			`conversations.jsonl:1: "messages" must end with one of the role "user"`},
		{
			"missing", queriesFile, "",
			"queries.jsonl: no such file; a judged set has corpus.jsonl, queries.jsonl and qrels.tsv",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range usual {
				write(t, dir, name, content)
			}
			if write(t, dir, c.file, c.content); c.content == "" {
				require.NoError(t, os.Remove(filepath.Join(dir, c.file)))
			}
			_, err := load(dir)
			require.EqualError(t, err, filepath.Join(dir, c.want))
		})
	}
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func TestFind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a [b]*")
	for _, set := range []string{"one", "two"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, set), 0o700))
		write(t, filepath.Join(dir, set), corpusFile, "")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for _, c := range []struct {
		dir, name string
		want      []string
		err       string
	}{
		{dir, "", []string{one, two}, ""},
		{dir, "two", []string{two}, ""},
		{one, "", []string{one}, ""},
		{one, "one", []string{one}, ""},
		{dir, "three", nil, dir + ` holds no judged set "three", only one, two`},
		{filepath.Join(dir, "empty"), "", nil, filepath.Join(dir, "empty") +
			" holds no judged set: neither it nor a folder in it has a corpus.jsonl"},
		{filepath.Join(dir, "nope"), "", nil, filepath.Join(dir, "nope") + ": no such folder"},
		{filepath.Join(one, corpusFile), "", nil, filepath.Join(one, corpusFile) +
			" is a file; name the folder of a judged set, or one that holds some"},
	} {
		got, err := Find(c.dir, c.name)
		if c.err != "" {
			require.EqualError(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
}

func TestRunStopsWhenAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var said strings.Builder
	_, err := Run(ctx, []string{filepath.Join("testdata", "kitchen")}, Options{Progress: func(doing string) {
		said.WriteString(doing + "\n")
		if strings.HasPrefix(doing, "kitchen: indexing") {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "reading testdata/kitchen\nkitchen: indexing 10 documents\nkitchen: 2 conversations, mneme\n",
		said.String())
}
