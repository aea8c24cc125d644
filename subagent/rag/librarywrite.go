package rag

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"

	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// Input is one document to be put.
type Input struct {
	ID       string
	Document chunk.Document
	// Origin names the directory that it is kept in step with, "" for none, and Raw is
	// the SHA-256 of the file it was read from.
	Origin, Raw string
	// Err says why it could not be read; the rest then is nothing.
	Err error
}

// OutcomeStatus says what became of a document.
type OutcomeStatus string

// What becomes of documents.
const (
	OutcomeNew       OutcomeStatus = "new"
	OutcomeChanged   OutcomeStatus = "changed"
	OutcomeUnchanged OutcomeStatus = "unchanged" // it was there with the same content
	OutcomeRemoved   OutcomeStatus = "removed"   // its file is gone
	OutcomeRefused   OutcomeStatus = "refused"   // nothing was changed, Reason says why
	OutcomeStale     OutcomeStatus = "stale"     // refused, and an earlier version stays
)

// Outcome is what became of one document.
type Outcome struct {
	ID       string        `json:"id"`
	Status   OutcomeStatus `json:"status"`
	Version  int64         `json:"version,omitempty"` // of the collection with it
	Passages int           `json:"passages,omitempty"`
	Code     string        `json:"code,omitempty"`   // of the reason
	Reason   string        `json:"reason,omitempty"` // a sentence
	// PartlyRead: the pages in UnreadPages, from 1, could not be read; the others were taken.
	PartlyRead  bool           `json:"partly_read,omitempty"`
	UnreadPages []int          `json:"unread_pages,omitempty"`
	Skipped     map[string]int `json:"skipped,omitempty"` // what is no text and was left out, by what it is
	Err         error          `json:"-"`
}

// Failed says whether the document was not taken.
func (o Outcome) Failed() bool { return o.Status == OutcomeRefused || o.Status == OutcomeStale }

// Put puts one document in place of the one with its id, in one step for every
// reader. The error is a refusal, ErrNoCollection or ErrUnavailable; the version
// before then stays.
func (l *Library) Put(ctx context.Context, c docstore.Collection, in Input) (Outcome, error) {
	outcomes, err := l.PutAll(ctx, c, in)
	if err != nil {
		return Outcome{}, err
	}
	return outcomes[0], outcomes[0].Err
}

// PutAll puts documents, in their order. A refused one has its reason in its
// outcome and leaves the others alone. The error is one that concerns all:
// ErrNoCollection or ErrUnavailable; some may have been put then, and putting them
// again does nothing to those.
func (l *Library) PutAll(ctx context.Context, c docstore.Collection, inputs ...Input) ([]Outcome, error) {
	outcomes := make([]Outcome, len(inputs))
	var documents []docstore.Document
	var places []int
	for i, in := range inputs {
		outcomes[i] = Outcome{
			ID: in.ID, Err: in.Err, PartlyRead: len(in.Document.Unread) > 0, UnreadPages: in.Document.Unread, Skipped: in.Document.Skipped,
		}
		if in.Err == nil {
			documents = append(documents, l.stored(in))
			places = append(places, i)
		}
	}
	var put []docstore.Document
	var steps []docstore.Step
	var failed error
	for n, w := range l.store.Put(ctx, c, documents...) {
		o, d := &outcomes[places[n]], documents[n]
		o.Err = w.Err
		if errors.Is(w.Err, docstore.ErrNoCollection) || errors.Is(w.Err, docstore.ErrUnavailable) {
			failed = cmp.Or(failed, w.Err)
		}
		if w.Err != nil {
			continue
		}
		o.Status, o.Version, o.Passages = OutcomeStatus(w.Status), w.Change.Mark.Version, len(d.Passages)
		d.Version, d.Hash = w.Change.Mark.Version, w.Hash
		put = append(put, d)
		if w.Status != docstore.StatusUnchanged {
			steps = append(steps, w.Change)
		}
	}
	if len(put) > 0 {
		l.replica(c).wrote(wrote{puts: put, steps: steps})
	}
	if failed != nil {
		return nil, failed
	}
	return outcomes, l.explain(ctx, c, outcomes)
}

// stored is a document as the store keeps it.
func (l *Library) stored(in Input) docstore.Document {
	title := in.Document.Title
	if title == "" {
		title = chunk.TitleOf(in.ID)
	}
	d := docstore.Document{
		ID: in.ID, Title: title, Source: in.Document.Source, Metadata: in.Document.Metadata,
		Origin: in.Origin, Raw: in.Raw, Text: in.Document.Text, Passages: []docstore.Passage{},
	}
	if len(d.Text) > docstore.MaxText {
		return d // refused by the store, without cutting it first
	}
	for _, p := range chunk.Split(in.Document, l.o.Chunks) {
		d.Passages = append(d.Passages, docstore.Passage{Start: p.Start, End: p.End, Section: p.Section})
	}
	return d
}

// explain gives the refused their reason, and says which have an earlier version
// that stays.
func (l *Library) explain(ctx context.Context, c docstore.Collection, outcomes []Outcome) error {
	var ids []string
	for i := range outcomes {
		if o := &outcomes[i]; o.Err != nil {
			o.Status, o.Reason = OutcomeRefused, o.Err.Error()
			var refusal *docstore.Error
			if errors.As(o.Err, &refusal) {
				o.Code = string(refusal.Code)
			} else {
				o.Code = string(loader.CodeOf(o.Err))
			}
			ids = append(ids, o.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	g, err := l.leg(ctx, c)
	if err != nil {
		return err
	}
	for i := range outcomes {
		if o := &outcomes[i]; o.Err != nil && g.known.document(o.ID) != nil {
			o.Status = OutcomeStale
		}
	}
	return nil
}

// Delete deletes documents; removed is how many there were. Afterwards no search
// finds them, in this process or another that can ask the store.
func (l *Library) Delete(ctx context.Context, c docstore.Collection, ids ...string) (removed int, err error) {
	steps, err := l.store.Delete(ctx, c, ids...)
	if err != nil {
		return 0, err
	}
	gone := map[string]int64{}
	for i, s := range steps {
		if s != (docstore.Step{}) {
			gone[ids[i]] = s.Mark.Version
			removed++
		}
	}
	// Those that somebody else deleted, or an earlier attempt whose answer was lost,
	// are in the log: the next search sees that it is behind.
	l.replica(c).wrote(wrote{gone: gone, steps: steps})
	return removed, nil
}

// How many documents, and how many bytes of their texts, are put in one step.
const (
	batchDocuments = 64
	batchBytes     = 4 << 20
)

// Ingest puts documents as they come. report, which may be nil, is told what
// became of each, soon and in their order. Inputs whose own error is not a refusal end
// it, as do errors that concern all; what was put by then stays.
func (l *Library) Ingest(ctx context.Context, c docstore.Collection, inputs iter.Seq2[Input, error], report func(Outcome)) error {
	return putBatches(ctx, l.Target(c), inputs, report)
}

// putBatches puts inputs into a target, some at a time.
func putBatches(ctx context.Context, to Target, inputs iter.Seq2[Input, error], report func(Outcome)) error {
	var batch []Input
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		outcomes, err := to.PutAll(ctx, batch...)
		if err != nil {
			return err
		}
		batch, size = nil, 0
		if report != nil {
			for _, o := range outcomes {
				report(o)
			}
		}
		return nil
	}
	for in, err := range inputs {
		if err != nil {
			return errors.Join(err, flush())
		}
		batch = append(batch, in)
		if size += len(in.Document.Text); len(batch) >= batchDocuments || size >= batchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// Target is a collection that documents are put into, here or behind HTTP.
type Target interface {
	// List is as Library.List.
	List(ctx context.Context, cursor string, count int) ([]docstore.Head, string, error)
	// PutAll is as Library.PutAll.
	PutAll(ctx context.Context, inputs ...Input) ([]Outcome, error)
	// Delete is as Library.Delete.
	Delete(ctx context.Context, ids ...string) (int, error)
}

// Target is a collection of this library.
func (l *Library) Target(c docstore.Collection) Target { return target{l, c} }

type target struct {
	library    *Library
	collection docstore.Collection
}

func (t target) List(ctx context.Context, cursor string, count int) ([]docstore.Head, string, error) {
	return t.library.List(ctx, t.collection, cursor, count)
}

func (t target) PutAll(ctx context.Context, inputs ...Input) ([]Outcome, error) {
	return t.library.PutAll(ctx, t.collection, inputs...)
}

func (t target) Delete(ctx context.Context, ids ...string) (int, error) {
	return t.library.Delete(ctx, t.collection, ids...)
}

// Sync makes the documents of an origin those of a directory's files: new and
// changed ones are put, those whose file is gone are removed. A file that cannot
// be read leaves what it was before. Documents of other origins stay. report, which may
// be nil, is told what became of each document. A walk that fails removes nothing.
func Sync(ctx context.Context, to Target, origin string, files iter.Seq2[loader.File, error], limits loader.Limits, report func(Outcome)) error {
	if origin == "" {
		return errors.New("a directory to be kept in step with needs an origin, its name")
	}
	if report == nil {
		report = func(Outcome) {}
	}
	s := syncing{ctx: ctx, origin: origin, limits: limits, report: report, live: map[string]bool{}, sources: map[string][]docstore.Head{}}
	if err := s.read(to); err != nil {
		return err
	}
	if err := putBatches(ctx, to, s.inputs(files), report); err != nil {
		return err
	}
	return s.prune(to)
}

// syncing is one Sync.
type syncing struct {
	ctx    context.Context
	origin string
	limits loader.Limits
	report func(Outcome)

	sources map[string][]docstore.Head // what there is of the origin, by file
	live    map[string]bool            // documents that stay
}

// read notes what there is.
func (s *syncing) read(to Target) error {
	for cursor := ""; ; {
		heads, next, err := to.List(s.ctx, cursor, docstore.MaxPage)
		if err != nil {
			return err
		}
		for _, h := range heads {
			if h.Origin == s.origin {
				s.sources[h.Source] = append(s.sources[h.Source], h)
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// inputs are the documents of the files that may have changed.
func (s *syncing) inputs(files iter.Seq2[loader.File, error]) iter.Seq2[Input, error] {
	return func(yield func(Input, error) bool) {
		for f, err := range files {
			if err == nil {
				if !s.file(f, yield) {
					return
				}
				continue
			}
			if loader.CodeOf(err) == "" {
				yield(Input{}, err)
				return
			}
			s.keep(f.ID)
			if !yield(Input{ID: f.ID, Err: err}, nil) {
				return
			}
		}
	}
}

// keep leaves the documents of a file as they are.
func (s *syncing) keep(file string) {
	for _, h := range s.sources[file] {
		s.live[h.ID] = true
	}
}

// file gives the documents of one file; false when no more are wanted.
func (s *syncing) file(f loader.File, yield func(Input, error) bool) bool {
	hash, err := f.Hash(s.ctx)
	if err != nil {
		return s.refused(f, err, yield)
	}
	// A file of many documents may have been left half done: it is read again.
	if known := s.sources[f.ID]; len(known) == 1 && known[0].ID == f.ID && known[0].Raw == hash {
		s.live[f.ID] = true
		s.report(Outcome{ID: f.ID, Status: OutcomeUnchanged, Version: known[0].Version, Passages: known[0].Passages})
		return true
	}
	reading, err := f.Open(s.ctx)
	if err != nil {
		return s.refused(f, err, yield)
	}
	defer reading.Close()
	for item, err := range loader.Documents(s.ctx, f.ID, "", reading, s.limits) {
		if err != nil {
			if !s.refused(f, err, yield) {
				return false
			}
			continue
		}
		in := Input{ID: f.ID, Document: item.Document, Origin: s.origin, Raw: hash}
		in.Document.Source = f.ID
		if item.ID != "" {
			in.ID = f.ID + "/" + item.ID
		}
		s.live[in.ID] = true
		if !yield(in, nil) {
			return false
		}
	}
	return true
}

// refused is a file, or a document of it, that cannot be read.
func (s *syncing) refused(f loader.File, err error, yield func(Input, error) bool) bool {
	switch {
	case s.ctx.Err() != nil:
		return yield(Input{}, context.Cause(s.ctx))
	case errors.Is(err, fs.ErrNotExist): // deleted since the walk saw it
		return true
	}
	s.keep(f.ID)
	return yield(Input{ID: f.ID, Err: err}, nil)
}

// prune removes what is left without a file.
func (s *syncing) prune(to Target) error {
	var gone []string
	for _, heads := range s.sources {
		for _, h := range heads {
			if !s.live[h.ID] {
				gone = append(gone, h.ID)
			}
		}
	}
	for page := range pages(gone, batchDocuments) {
		if _, err := to.Delete(s.ctx, page...); err != nil {
			return err
		}
		for _, id := range page {
			s.report(Outcome{ID: id, Status: OutcomeRemoved})
		}
	}
	return nil
}
