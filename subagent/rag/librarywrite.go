package rag

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// Input is one document to put.
type Input struct {
	ID       string
	Document chunk.Document
	// From is the file that it was read from; zero for a document that came as text.
	docstore.From
	// Err is why it could not be read; then the other fields are empty.
	Err error
}

// OutcomeStatus says what became of a document.
type OutcomeStatus string

// What becomes of documents.
const (
	OutcomeNew       OutcomeStatus = "new"
	OutcomeChanged   OutcomeStatus = "changed"
	OutcomeUnchanged OutcomeStatus = "unchanged" // it was stored already with the same content
	OutcomeRemoved   OutcomeStatus = "removed"   // its file is gone
	OutcomeRefused   OutcomeStatus = "refused"   // nothing was changed; Reason says why
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
	// PartlyRead: the pages in UnreadPages, counted from 1, could not be read; the others were
	// stored.
	PartlyRead  bool           `json:"partly_read,omitempty"`
	UnreadPages []int          `json:"unread_pages,omitempty"`
	Skipped     map[string]int `json:"skipped,omitempty"` // what was left out since it is not text, by kind
	Err         error          `json:"-"`
}

// Failed reports whether the document was not stored.
func (o Outcome) Failed() bool { return o.Status == OutcomeRefused || o.Status == OutcomeStale }

// Put replaces or adds one document, atomically for every reader. The error is a refusal,
// ErrNoCollection or ErrUnavailable; then the version before stays.
func (l *Library) Put(ctx context.Context, c docstore.Collection, in Input) (Outcome, error) {
	outcomes, err := l.PutAll(ctx, c, in)
	if err != nil {
		return Outcome{}, err
	}
	return outcomes[0], outcomes[0].Err
}

// PutAll puts documents in their order. A refused document has the reason in its outcome and does
// not affect the others. The error is one that concerns all: ErrNoCollection or ErrUnavailable.
// Some may have been stored then; putting is idempotent, so that the call may be repeated.
func (l *Library) PutAll(ctx context.Context, c docstore.Collection, inputs ...Input) ([]Outcome, error) {
	outcomes := make([]Outcome, len(inputs))
	var documents []docstore.Document
	var places []int
	for i, in := range inputs {
		outcomes[i] = Outcome{
			ID: in.ID, Err: in.Err, PartlyRead: len(in.Document.Unread) > 0, UnreadPages: in.Document.Unread,
			Skipped: in.Document.Skipped,
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

// stored is a document in its stored form, split into passages.
func (l *Library) stored(in Input) docstore.Document {
	title := in.Document.Title
	if title == "" {
		title = chunk.TitleOf(in.ID)
	}
	d := docstore.Document{
		ID: in.ID, Title: title, Source: in.Document.Source, Metadata: in.Document.Metadata,
		From: in.From, Text: in.Document.Text, Passages: []docstore.Passage{},
	}
	if len(d.Text) > docstore.MaxText {
		return d // the store refuses it; splitting would be wasted
	}
	for _, p := range chunk.Split(in.Document, l.o.Chunks) {
		d.Passages = append(d.Passages, docstore.Passage{Start: p.Start, End: p.End, Section: p.Section, Page: p.Page})
	}
	return d
}

// explain fills in the reasons of refused documents, and marks those of which an earlier version
// stays.
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
	if _, err := l.store.Last(ctx, c); err != nil {
		return err // possibly ErrNoCollection
	}
	heads, err := l.store.Heads(ctx, c, ids...)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, h := range heads {
		there[h.ID] = true
	}
	for i := range outcomes {
		// A document of another origin under this id is not an earlier version.
		if o := &outcomes[i]; o.Err != nil && o.Code != string(docstore.Conflict) && there[o.ID] {
			o.Status = OutcomeStale
		}
	}
	return nil
}

// Delete deletes documents and returns how many there were. Afterwards no search finds them, in
// this process or in any other that can reach the store.
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
	// Documents that were deleted by somebody else, or by an earlier attempt whose reply was lost,
	// are in the log; the next search notices that it is behind.
	l.replica(c).wrote(wrote{gone: gone, steps: steps})
	return removed, nil
}

// The most documents, and about the most bytes of text, that are put in one step.
const (
	batchDocuments = 64
	batchBytes     = 4 << 20
)

// Ingest puts documents from a stream, in batches. report is called with what became of each, in
// their order. An error of the stream ends it, as does an error that concerns all documents; what
// was put by then stays.
func (l *Library) Ingest(ctx context.Context, c docstore.Collection, inputs iter.Seq2[Input, error],
	report func(Outcome)) error {
	var batch []Input
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		outcomes, err := l.PutAll(ctx, c, batch...)
		if err != nil {
			return err
		}
		batch, size = nil, 0
		for _, o := range outcomes {
			report(o)
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
