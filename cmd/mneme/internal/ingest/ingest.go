// Package ingest keeps a collection in step with files on this machine, through
// webmemory. What is there already is not sent again, so that a run that was cut
// off is simply repeated.
package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"mneme/cmd/mneme/internal/webclient"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// Options say what to load, and where to.
type Options struct {
	Collection string
	Paths      []string // directories and files
	Origin     string   // names the directory in the collection; "" for its absolute path
	Keep       bool     // documents whose file is gone stay
	Progress   Progress
}

// Progress is told how far a run is. Its methods are called from one goroutine.
type Progress interface {
	Files(total int)          // how many there are
	File(name string)         // the next one is read
	Outcome(what rag.Outcome) // what became of a document that was sent, refused or removed
}

// Run loads the files. The Report says what was done, also beside an error.
func Run(ctx context.Context, client *webclient.Client, o Options) (Report, error) {
	began := time.Now()
	r := Report{Collection: o.Collection, Refused: []Refusal{}, Skipped: []Refusal{}}
	err := run(ctx, client, o, &r)
	r.Seconds = time.Since(began).Seconds()
	return r, err
}

func run(ctx context.Context, client *webclient.Client, o Options, r *Report) error {
	if _, err := docstore.Named(docstore.DefaultTenant, o.Collection); err != nil {
		return err
	}
	directories, files, err := sortOut(o.Paths)
	if err != nil {
		return err
	}
	if o.Origin != "" && len(directories) != 1 {
		return errors.New("--origin names one directory; load each with a command of its own")
	}
	if r.Unread, err = client.CreateCollection(ctx, o.Collection); err != nil {
		return err
	}
	o.Progress.Files(count(ctx, directories) + len(files))
	to := &target{client: client, collection: o.Collection, keep: o.Keep, progress: o.Progress}
	for _, dir := range directories {
		origin := cmp.Or(o.Origin, dir)
		walk := announced(loader.Walk(ctx, dir, loader.Limits{}), o.Progress)
		err := rag.Sync(ctx, to, origin, walk, loader.Limits{}, func(out rag.Outcome) {
			if out.Status == rag.OutcomeRemoved && o.Keep {
				r.Kept++
				return
			}
			r.add(out, true)
			if out.Status == rag.OutcomeRemoved {
				o.Progress.Outcome(out) // the target tells of what is put, and of the rest there is nothing to tell
			}
		})
		if err != nil {
			return err
		}
	}
	return putFiles(ctx, to, files, o.Progress, r)
}

// sortOut tells directories, by their absolute paths, from files.
func sortOut(paths []string) (directories, files []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		var cause *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil, fmt.Errorf("there is no file or directory %s", path)
		case errors.As(err, &cause):
			return nil, nil, fmt.Errorf("%s: %w", path, cause.Err)
		case err != nil:
			return nil, nil, err
		case !info.IsDir():
			files = append(files, path)
			continue
		}
		dir, err := filepath.Abs(path)
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			return nil, nil, err
		}
		directories = append(directories, dir)
	}
	return directories, files, nil
}

// count is how many files the directories have.
func count(ctx context.Context, directories []string) (n int) {
	for _, dir := range directories {
		for range loader.Walk(ctx, dir, loader.Limits{}) {
			n++
		}
	}
	return n
}

// announced tells of each file before it is read.
func announced(files iter.Seq2[loader.File, error], p Progress) iter.Seq2[loader.File, error] {
	return func(yield func(loader.File, error) bool) {
		for f, err := range files {
			p.File(f.ID)
			if !yield(f, err) {
				return
			}
		}
	}
}

// How many documents, and how many bytes of their texts, are sent at once.
const (
	batchDocuments = 64
	batchBytes     = 4 << 20
)

// putFiles puts single files, which belong to no directory.
func putFiles(ctx context.Context, to *target, files []string, p Progress, r *Report) error {
	if len(files) == 0 {
		return nil
	}
	known, err := heads(ctx, to)
	if err != nil {
		return err
	}
	var batch []rag.Input
	size := 0
	flush := func() error {
		outcomes, err := to.PutAll(ctx, batch...)
		if err != nil {
			return err
		}
		for _, out := range outcomes {
			r.add(out, false)
		}
		batch, size = nil, 0
		return nil
	}
	for _, path := range files {
		p.File(path)
		for in, err := range read(ctx, path) {
			if err != nil {
				return err
			}
			if h, ok := known[in.ID]; ok && in.Err == nil && h.Raw == in.Raw && h.Origin == "" {
				r.add(rag.Outcome{ID: in.ID, Status: rag.OutcomeUnchanged}, false)
				continue
			}
			batch = append(batch, in)
			if size += len(in.Document.Text); len(batch) < batchDocuments && size < batchBytes {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// heads is what the collection has, by id.
func heads(ctx context.Context, to *target) (map[string]docstore.Head, error) {
	known := map[string]docstore.Head{}
	for cursor := ""; ; {
		page, next, err := to.List(ctx, cursor, docstore.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, h := range page {
			known[h.ID] = h
		}
		if cursor = next; cursor == "" {
			return known, nil
		}
	}
}

// read gives the documents of one file. What is wrong with it is their Err.
func read(ctx context.Context, path string) iter.Seq2[rag.Input, error] {
	return func(yield func(rag.Input, error) bool) {
		id := idOf(path)
		refused := func(err error) bool {
			if ctx.Err() != nil {
				return yield(rag.Input{}, context.Cause(ctx))
			}
			if loader.CodeOf(err) == "" {
				err = &loader.Error{Code: loader.Unreadable, Sentence: reason(err), Err: err}
			}
			return yield(rag.Input{ID: id, Err: err}, nil)
		}
		hash, err := hashOf(path)
		if err != nil {
			refused(err)
			return
		}
		file, err := os.Open(path)
		if err != nil {
			refused(err)
			return
		}
		defer file.Close()
		for item, err := range loader.Documents(ctx, id, "", file, loader.Limits{}) {
			if err != nil {
				if !refused(err) {
					return
				}
				continue
			}
			in := rag.Input{ID: id, Document: item.Document, Raw: hash}
			in.Document.Source = id
			if item.ID != "" {
				in.ID += "/" + item.ID
			}
			if !yield(in, nil) {
				return
			}
		}
	}
}

// hashOf is the SHA-256 of a file's content in hex.
func hashOf(path string) (string, error) {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", &loader.Error{Code: loader.Unreadable, Sentence: "it is no regular file", Err: err}
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// idOf names a file's document: by its path if that stays below where we are,
// else by its name.
func idOf(path string) string {
	path = filepath.Clean(path)
	if !filepath.IsLocal(path) {
		path = filepath.Base(path)
	}
	return filepath.ToSlash(path)
}

func reason(err error) string {
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return err.Error()
}
