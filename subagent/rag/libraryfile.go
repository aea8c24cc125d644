package rag

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// File is a file to be put: its bytes, and what is said of it beside them.
type File struct {
	ID          string
	ContentType string // a MIME type; "" if it is not known
	Bytes       io.Reader
	// Limit is how many bytes it has at most, or a line of one that is Streamed; 0 for
	// what the Loader's limits say.
	Limit int64
	// Origin names the directory, or the single file, that it is kept in step with; ""
	// for none.
	Origin string
	// Title and Source, unless empty, take the place of what the file says.
	Title, Source string
	// Metadata is laid over what the file says.
	Metadata map[string]string
}

// PutFile reads a file and puts its documents: itself under its own id, or those of a
// file of many (a JSON array, JSON lines) as "<id>/<their own id, or number>". report is
// told what became of each, in their order, and then which documents the file held
// before and holds no more: they are removed once all of it was read. A document that is
// refused has its reason in its outcome. The error is one of reading the bytes, which
// says that the file is not complete, or one that concerns all: ErrNoCollection or
// ErrUnavailable. Documents of a file of many that were complete by then stay.
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

// putting is one PutFile.
type putting struct {
	file      File
	loader    loader.Loader
	given     []string        // the names in Metadata, in their order
	live      map[string]bool // the ids of its documents
	uncertain bool            // something was refused: what was before stays
}

// inputs are the documents of the file.
func (p *putting) inputs(ctx context.Context) iter.Seq2[Input, error] {
	return func(yield func(Input, error) bool) {
		sum := sha256.New()
		bytes := io.TeeReader(p.file.Bytes, sum)
		for item, err := range p.loader.Documents(ctx, p.file.ID, p.file.ContentType, bytes) {
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

// input is one document of the file; hash is that of the whole file, once it is read.
func (p *putting) input(item loader.Item, hash func() string) Input {
	f := p.file
	in := Input{ID: f.ID, Document: item.Document}
	in.From = docstore.From{Origin: f.Origin, Loader: p.loader.Identity(f.ID), Given: p.given}
	if item.ID == "" {
		in.Raw = hash() // a file that is one document is read as a whole
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

// removeGone removes what the file held before and holds no more.
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

// documentsOf are the ids of the documents that a file holds by now, but those that are
// live: its own, and those of which it is the file.
func (l *Library) documentsOf(ctx context.Context, c docstore.Collection, f File, live map[string]bool) (ids []string, err error) {
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
	page := 1 // most files hold no others
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

// FileOf is the id of the file that a document was read from, which is its own unless
// the file is one of many documents.
func FileOf(h docstore.Head) string {
	switch {
	case h.File != "":
		return h.File
	// Documents without a loader were stored before files were named in them: their
	// source is the file.
	case h.Loader == "" && h.Raw != "" && h.Source != "" && strings.HasPrefix(h.ID, h.Source+"/"):
		return h.Source
	}
	return h.ID
}

// outdated says whether another loader would read a document's file now. What came as
// text has no file.
func (l *Library) outdated(h docstore.Head) bool {
	return (h.Raw != "" || h.Loader != "") && h.Loader != l.o.Loader.Identity(FileOf(h))
}

// Loader reads the files that are put.
func (l *Library) Loader() loader.Loader { return l.o.Loader }
