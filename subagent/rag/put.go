package rag

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// Input is one document to put.
type Input struct {
	ID       string
	Document chunk.Document
	// From is the file that it was read from; zero for a document that came as text.
	docstore.SourceFile
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
	var last docstore.Mark // of the last document that was written
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
		o.Status, o.Version, o.Passages = OutcomeStatus(w.Status), w.Mark.Version, len(d.Passages)
		if w.Status != docstore.StatusUnchanged {
			last = w.Mark
		}
	}
	if last != (docstore.Mark{}) {
		l.replica(c).wrote(ctx, last)
	}
	if failed != nil {
		return nil, failed
	}
	return outcomes, l.explain(ctx, c, outcomes)
}

// stored is a document in its stored form, split into passages.
func (l *Library) stored(in Input) docstore.Document {
	d := docstore.Document{
		ID: in.ID, Title: cmp.Or(in.Document.Title, chunk.TitleOf(in.ID)), Source: in.Document.Source,
		Metadata: in.Document.Metadata, SourceFile: in.SourceFile, Text: in.Document.Text, Passages: []docstore.Passage{},
	}
	if len(d.Text) > docstore.MaxText {
		return d // the store refuses it; splitting would be wasted
	}
	for _, p := range chunk.Split(in.Document, chunk.Default()) {
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
			o.Status, o.Reason, o.Code = OutcomeRefused, o.Err.Error(), string(loader.CodeOf(o.Err))
			if refusal, ok := errors.AsType[*docstore.Error](o.Err); ok {
				o.Code = string(refusal.Code)
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
	exists := map[string]bool{}
	for _, h := range heads {
		exists[h.ID] = true
	}
	for i := range outcomes {
		// A document of another origin under this id is not an earlier version.
		if o := &outcomes[i]; o.Err != nil && o.Code != string(docstore.Conflict) && exists[o.ID] {
			o.Status = OutcomeStale
		}
	}
	return nil
}

// Delete deletes documents and returns how many there were. Afterwards no search finds them, in
// this process or in any other that can reach the store.
func (l *Library) Delete(ctx context.Context, c docstore.Collection, ids ...string) (removed int, err error) {
	marks, err := l.store.Delete(ctx, c, ids...)
	if err != nil {
		return 0, err
	}
	var last docstore.Mark
	for _, mark := range marks {
		if mark != (docstore.Mark{}) {
			last = mark
			removed++
		}
	}
	if removed > 0 {
		l.replica(c).wrote(ctx, last)
	}
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

// File is a file that is put: its bytes, and what is known about it.
type File struct {
	ID          string
	ContentType string // a MIME type; "" if unknown
	Bytes       io.Reader
	// Limit bounds the bytes of the file, or of one line if it is Streamed; 0 for the limit of the
	// Loader.
	Limit int64
	// Origin names the directory, or the single file, that the document is kept in step with; ""
	// for none.
	Origin string
	// Title and Source, unless empty, replace what the file says.
	Title, Source string
	// Metadata is merged over what the file says.
	Metadata map[string]string
}

// PutFile reads a file and puts its documents: the file itself under its own id or, for a file of
// many (a JSON array, JSON lines), each as "<id>/<its own id, or number>". report is called with
// what became of each, in their order, and then with the documents that the file had before and has
// no longer; these are removed once all of the file was read. A refused document has the reason in
// its outcome. The error is one of reading the bytes, so that the file is not complete, or one that
// concerns all documents: ErrNoCollection or ErrUnavailable. Documents that were complete by then
// stay.
func (l *Library) PutFile(ctx context.Context, c docstore.Collection, f File, report func(Outcome)) error {
	p := putting{file: f, loader: l.o.Loader, log: l.o.Log, live: map[string]bool{},
		metadataKeys: slices.Sorted(maps.Keys(f.Metadata))}
	if f.Limit > 0 {
		p.loader.Limits.Bytes = f.Limit
	}
	err := l.Ingest(ctx, c, p.inputs(ctx), func(o Outcome) {
		p.uncertain = p.uncertain || o.Failed()
		report(o)
	})
	if err != nil {
		return err
	}
	return l.removeGone(ctx, c, p, report)
}

// putting is the state of one PutFile.
type putting struct {
	file         File
	loader       loader.Loader
	log          zerolog.Logger
	metadataKeys []string        // the names in Metadata, sorted
	live         map[string]bool // the ids of its documents
	uncertain    bool            // something was refused, so that nothing is removed
}

// inputs are the documents of the file.
func (p *putting) inputs(ctx context.Context) iter.Seq2[Input, error] {
	return func(yield func(Input, error) bool) {
		sum := sha256.New()
		bytes := io.TeeReader(p.file.Bytes, sum)
		for item, err := range p.loader.Documents(ctx, p.file.ID, p.file.ContentType, bytes) {
			if loader.CodeOf(err) == loader.ExtractorFailed {
				// The cause is for the operator only: it may name what is on this machine.
				p.log.Warn().Err(errors.Unwrap(err)).Str("document", p.file.ID).Msg(err.Error())
			}
			in := Input{ID: p.file.ID, Err: err}
			switch {
			case err != nil && (loader.CodeOf(err) == "" || ctx.Err() != nil):
				yield(Input{}, err)
				return
			case err == nil:
				in = p.input(item, func() string { return hex.EncodeToString(sum.Sum(nil)) })
			}
			if !yield(in, nil) {
				return
			}
		}
	}
}

// input is one document of the file. hash is the hash of the whole file, once that was read.
func (p *putting) input(item loader.Item, hash func() string) Input {
	f := p.file
	in := Input{ID: f.ID, Document: item.Document}
	in.SourceFile = docstore.SourceFile{Origin: f.Origin, Loader: p.loader.Identity(f.ID), MetadataKeys: p.metadataKeys}
	if item.ID == "" {
		in.Raw = hash() // a file of one document is read completely by now
		if f.Title != "" {
			in.Document.Title = f.Title
		}
	} else {
		in.ID += "/" + item.ID
		in.File = f.ID
		if p.live[in.ID] {
			in.Err = &loader.Error{Code: loader.Code(docstore.Conflict),
				Sentence: fmt.Sprintf("the file holds an earlier document with the id %.300q: give each one of its own", item.ID)}
		}
	}
	p.live[in.ID] = true
	if f.Source != "" {
		in.Document.Source = f.Source
	}
	if len(f.Metadata) > 0 {
		metadata := map[string]string{}
		maps.Copy(metadata, in.Document.Metadata)
		maps.Copy(metadata, f.Metadata)
		in.Document.Metadata = metadata
	}
	return in
}

// removeGone removes the documents that the file had before and has no longer.
func (l *Library) removeGone(ctx context.Context, c docstore.Collection, p putting, report func(Outcome)) error {
	if p.uncertain {
		return nil
	}
	obsolete, err := l.documentsOf(ctx, c, p.file, p.live)
	if err != nil {
		return err
	}
	for page := range slices.Chunk(obsolete, batchDocuments) {
		if _, err := l.Delete(ctx, c, page...); err != nil {
			return err
		}
		for _, id := range page {
			report(Outcome{ID: id, Status: OutcomeRemoved})
		}
	}
	return nil
}

// documentsOf are the ids of a file's stored documents, without those that are live: the file's own
// id, and the documents that name it as their file.
func (l *Library) documentsOf(ctx context.Context, c docstore.Collection, f File, live map[string]bool) (ids []string,
	err error) {
	add := func(h docstore.Head) {
		if FileOf(h) == f.ID && !live[h.ID] && (f.Origin == "" || h.Origin == "" || h.Origin == f.Origin) {
			ids = append(ids, h.ID)
		}
	}
	var heads []docstore.Head
	if !live[f.ID] {
		if heads, err = l.store.Heads(ctx, c, f.ID); err != nil {
			return nil, err
		}
		for _, h := range heads {
			add(h)
		}
	}
	prefix := f.ID + "/"
	page := 1 // a small page first, since most files have no others
	for cursor := prefix; cursor != ""; page = docstore.MaxPage {
		if heads, cursor, err = l.store.List(ctx, c, cursor, page); err != nil {
			return nil, err
		}
		for _, h := range heads {
			if !strings.HasPrefix(h.ID, prefix) {
				return ids, nil
			}
			add(h)
		}
	}
	return ids, nil
}

// FileOf is the id of the file from which a document was read. It is the document's own id unless
// the file has many documents.
func FileOf(h docstore.Head) string {
	switch {
	case h.File != "":
		return h.File
	// Documents without a loader come from a version that did not store the file; it is their
	// source.
	case h.Loader == "" && h.Raw != "" && h.Source != "" && strings.HasPrefix(h.ID, h.Source+"/"):
		return h.Source
	}
	return h.ID
}

// outdated reports whether the current loader would read a document's file differently. Documents
// that came as text have no file.
func (l *Library) outdated(h docstore.Head) bool {
	return (h.Raw != "" || h.Loader != "") && h.Loader != l.o.Loader.Identity(FileOf(h))
}

// Loader reads the files that are put.
func (l *Library) Loader() loader.Loader { return l.o.Loader }
