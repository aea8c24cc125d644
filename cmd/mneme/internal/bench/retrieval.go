package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"mneme/memory/textindex"
)

// RetrievalOptions say what to measure. The zero value of a number stands for its
// default.
type RetrievalOptions struct {
	Small, Large int // passages of the collections, 11,000 and 95,000
	Queries      int // asked of each, 1,000
	Changes      int // documents added, replaced and deleted in the small one, 300
	// Library starts a process that runs Library, over a redis-server of the run's own;
	// nil if processes are not measured.
	Library LibraryProcess
	// Progress is told what is being done; nil if nobody wants to know.
	Progress func(string)
}

func (o RetrievalOptions) withDefaults() RetrievalOptions {
	for _, n := range []struct {
		value *int
		usual int
	}{{&o.Small, 11_000}, {&o.Large, 95_000}, {&o.Queries, 1_000}, {&o.Changes, 300}} {
		if *n.value == 0 {
			*n.value = n.usual
		}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// searchReach is what searching a collection is to reach.
type searchReach struct {
	index, median, tail float64 // s, ms, ms
	heap                float64 // MB; 0 for none
}

var (
	reachSmallSearch = searchReach{index: 1, median: 1, tail: 5}
	reachLargeSearch = searchReach{index: 15, median: 10, tail: 50, heap: 200}
)

// reachVisible is how many ms a change may take to be found.
const reachVisible = 50

// Retrieval measures the index over collections of made-up texts. What was
// measured is no error, whatever it is.
func Retrieval(ctx context.Context, o RetrievalOptions) (*RetrievalReport, error) {
	o = o.withDefaults()
	report := &RetrievalReport{
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Processor: processor(), LoadAverage: loadAverage(), Date: time.Now().UTC().Truncate(time.Second), Queries: o.Queries, Changes: o.Changes,
	}
	small := searched{passages: o.Small, options: o, report: report}
	err := small.measure(ctx, reachSmallSearch)
	if err == nil {
		err = small.change(ctx)
	}
	if err == nil {
		small.index = nil // its memory is not the other's
		large := searched{passages: o.Large, options: o, report: report}
		err = large.measure(ctx, reachLargeSearch)
		if err == nil {
			err = large.filter(ctx)
		}
		for _, s := range []*searched{&small, &large} {
			if s.index = nil; err == nil && o.Library != nil {
				err = s.library(ctx)
			}
		}
	}
	if ctx.Err() != nil {
		return nil, errors.New("stopped before the end; an incomplete run is not shown")
	}
	return report, err
}

// searched is a collection under measurement.
type searched struct {
	passages int
	options  RetrievalOptions
	report   *RetrievalReport
	texts    *texts
	index    *textindex.Collection
}

// perPut is how many documents are indexed in one step, about as many as a service
// reads at once when it starts.
const perPut = 250

func (s *searched) measure(ctx context.Context, reach searchReach) error {
	s.options.Progress(fmt.Sprintf("indexing %s passages", count(s.passages)))
	before := heap()
	took, err := s.fill(ctx)
	if err != nil {
		return err
	}
	s.row("index", "s", took.Seconds(), reach.index)
	s.row("heap held by the index", "MB", float64(heap()-before)/1e6, reach.heap)

	s.options.Progress(fmt.Sprintf("searching %s passages", count(s.passages)))
	var times []float64
	for range s.options.Queries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q := s.texts.query()
		start := time.Now()
		s.index.Search(q)
		times = append(times, milliseconds(time.Since(start)))
	}
	slices.Sort(times)
	s.row("search, median", "ms", quantile(times, 0.5), reach.median)
	s.row("search, 95 of 100", "ms", quantile(times, 0.95), reach.tail)
	return nil
}

// fill indexes documents that are made on the way, which is not timed, and not kept.
func (s *searched) fill(ctx context.Context) (time.Duration, error) {
	s.texts, s.index = newTexts(), textindex.NewCollection()
	var took time.Duration
	for number, made := 0, 0; made < s.passages; {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		var batch []textindex.Document
		for range perPut {
			if made < s.passages {
				d := s.texts.document(number, min(perDocument, s.passages-made))
				number, made = number+1, made+len(d.Passages)
				batch = append(batch, d)
			}
		}
		start := time.Now()
		s.index.Put(batch...)
		took += time.Since(start)
	}
	return took, nil
}

// change adds, replaces and deletes documents, each timed from the call until a
// search shows it.
func (s *searched) change(ctx context.Context) error {
	s.options.Progress(fmt.Sprintf("changing documents among %s passages", count(s.passages)))
	var added, replaced, deleted []float64
	for i := range s.options.Changes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		d := s.texts.document(s.passages+i, perDocument)
		marks := []string{fmt.Sprintf("qfirst%dq", i), fmt.Sprintf("qsecond%dq", i)}
		shows := func(mark string) bool {
			return len(s.index.Search(textindex.Query{Text: mark, Limit: 1}).Hits) == 1
		}
		steps := []struct {
			times *[]float64
			do    func()
			done  func() bool
		}{
			{&added, func() { s.index.Put(marked(d, marks[0])) }, func() bool { return shows(marks[0]) }},
			{&replaced, func() { s.index.Put(marked(d, marks[1])) }, func() bool { return shows(marks[1]) && !shows(marks[0]) }},
			{&deleted, func() { s.index.Delete(d.ID) }, func() bool { return !shows(marks[1]) }},
		}
		for _, step := range steps {
			start := time.Now()
			step.do()
			if !step.done() {
				return errors.New("a search does not show the change before it")
			}
			*step.times = append(*step.times, milliseconds(time.Since(start)))
		}
		if i%2 == 0 { // the next ones meet an index that changes have worn
			s.index.Put(d)
		}
	}
	for _, row := range []struct {
		what  string
		times []float64
	}{{"added", added}, {"replaced", replaced}, {"deleted", deleted}} {
		slices.Sort(row.times)
		s.row("a document "+row.what+" and seen so, 95 of 100", "ms", quantile(row.times, 0.95), reachVisible)
	}
	return nil
}

// marked is a document with a word that no other has.
func marked(d textindex.Document, word string) textindex.Document {
	d.Passages = slices.Clone(d.Passages)
	d.Passages[0].Text += " " + word
	return d
}

func (s *searched) row(what, unit string, value, reach float64) {
	row := RetrievalRow{What: what, Passages: s.passages, Measured: value, Unit: unit}
	if reach > 0 {
		met := value <= reach
		row.AtMost, row.Met = reach, &met
	}
	s.report.Rows = append(s.report.Rows, row)
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile is the value below which a share of the sorted values is.
func quantile(sorted []float64, share float64) float64 {
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
