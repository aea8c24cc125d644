package rag

import (
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

	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

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
	p := putting{file: f, loader: l.o.Loader, live: map[string]bool{}, given: slices.Sorted(maps.Keys(f.Metadata))}
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
	file      File
	loader    loader.Loader
	log       zerolog.Logger
	given     []string        // the names in Metadata, sorted
	live      map[string]bool // the ids of its documents
	uncertain bool            // something was refused, so that nothing is removed
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
	in.From = docstore.From{Origin: f.Origin, Loader: p.loader.Identity(f.ID), Given: p.given}
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
		all := maps.Clone(in.Document.Metadata)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, f.Metadata)
		in.Document.Metadata = all
	}
	return in
}

// removeGone removes the documents that the file had before and has no longer.
func (l *Library) removeGone(ctx context.Context, c docstore.Collection, p putting, report func(Outcome)) error {
	if p.uncertain {
		return nil
	}
	gone, err := l.documentsOf(ctx, c, p.file, p.live)
	if err != nil {
		return err
	}
	for page := range slices.Chunk(gone, batchDocuments) {
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
	below := f.ID + "/"
	page := 1 // a small page first, since most files have no others
	for cursor := below; cursor != ""; page = docstore.MaxPage {
		if heads, cursor, err = l.store.List(ctx, c, cursor, page); err != nil {
			return nil, err
		}
		for _, h := range heads {
			if !strings.HasPrefix(h.ID, below) {
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
