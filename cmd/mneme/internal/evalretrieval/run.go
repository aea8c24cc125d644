package evalretrieval

import (
	"context"
	"fmt"

	"mneme/subagent/rag/index"
)

// Options say what to measure.
type Options struct {
	Feedback bool // measure the index with pseudo-relevance feedback too
	// Progress is told what is being done; nil if nobody wants to know.
	Progress func(string)
}

// The ways to rank.
const (
	wayMneme    = "mneme"
	wayFeedback = "mneme --prf"
	wayPlain    = "plain BM25"
)

// Row is what one way to rank reached with one wording of the queries of a set.
type Row struct {
	Set       string `json:"set"`
	Documents int    `json:"documents"`
	Form      string `json:"form"` // the wording: conversations, queries, queries_…
	Queries   int    `json:"queries"`
	Way       string `json:"ranking"`
	Measures
	// Doubted is the part of the queries whose result was called weak or empty
	// though a relevant document is there; nil where nothing is called so.
	Doubted *float64 `json:"doubted,omitempty"`
}

// Run measures the sets in these folders, one after the other.
func Run(ctx context.Context, folders []string, o Options) (*Report, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	report := &Report{}
	for _, folder := range folders {
		o.Progress("reading " + folder)
		s, err := Load(folder)
		if err != nil {
			return nil, err
		}
		rows, err := s.measure(ctx, o)
		if err != nil {
			return nil, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	report.judge()
	return report, nil
}

// way ranks documents for a query. It says too whether the result is in doubt.
type way struct {
	name   string
	rank   func(q query) (ids []string, doubted bool)
	doubts bool // whether it can tell
}

func (s *Set) measure(ctx context.Context, o Options) ([]Row, error) {
	o.Progress(fmt.Sprintf("%s: indexing %d documents", s.Name, len(s.documents)))
	c := s.collection()
	textbook := newPlain(s.documents)
	ways := []way{
		{wayMneme, func(q query) ([]string, bool) { return find(c, q, nil) }, true},
		{wayPlain, func(q query) ([]string, bool) { return textbook.rank(q.text), false }, false},
	}
	if o.Feedback {
		feedback := &index.Feedback{Text: s.texts()}
		ways = append(ways, way{wayFeedback, func(q query) ([]string, bool) { return find(c, q, feedback) }, true})
	}
	var rows []Row
	for _, f := range s.forms {
		for _, w := range ways {
			o.Progress(fmt.Sprintf("%s: %d %s, %s", s.Name, len(f.queries), f.name, w.name))
			row, err := s.row(ctx, f, w)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *Set) row(ctx context.Context, f form, w way) (Row, error) {
	row := Row{Set: s.Name, Documents: len(s.documents), Form: f.name, Queries: len(f.queries), Way: w.name}
	doubted := 0
	for _, q := range f.queries {
		if ctx.Err() != nil {
			return Row{}, context.Cause(ctx)
		}
		ids, doubt := w.rank(q)
		row.add(measure(ids, s.grades[q.id]), 1/float64(len(f.queries)))
		if doubt {
			doubted++
		}
	}
	if w.doubts {
		share := float64(doubted) / float64(len(f.queries))
		row.Doubted = &share
	}
	return row, nil
}

// collection indexes each document as one passage, which is what was judged.
func (s *Set) collection() *index.Collection {
	documents := make([]index.Document, len(s.documents))
	for i, d := range s.documents {
		documents[i] = index.Document{ID: d.ID, Title: d.Title, Passages: []index.Passage{{Text: d.Text}}}
	}
	c := index.NewCollection()
	c.Put(documents...)
	return c
}

// texts gives the documents' texts.
func (s *Set) texts() func(id string, passage int) string {
	texts := map[string]string{}
	for _, d := range s.documents {
		texts[d.ID] = d.Title + "\n" + d.Text
	}
	return func(id string, _ int) string { return texts[id] }
}

// find ranks by the index. Documents of equal text stay, since the judges saw them.
func find(c *index.Collection, q query, feedback *index.Feedback) (ids []string, doubted bool) {
	result := c.Search(index.Query{Text: q.text, History: q.history, Limit: depth, Duplicates: true, Feedback: feedback})
	for _, h := range result.Hits {
		ids = append(ids, h.Document)
	}
	return ids, result.Status != index.StatusOK
}
