// Package ingest keeps a collection in step with files on this machine, through
// webmemory. The bytes of files are sent; the server reads them. What is there already is
// not sent again, so that a run that was cut off is simply repeated.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
	webapi "mneme/webmemory/api"
)

// Options say what to load, and where to.
type Options struct {
	Collection string
	Paths      []string          // directories and files
	Origin     string            // names the one path in the collection; "" for its absolute path
	Prefix     string            // is put in front of the ids, with a slash; "" for none
	Metadata   map[string]string // of each document, over what its file says
	Charset    string            // the encoding of text files that are not UTF-8; "" to detect it
	Keep       bool              // documents without their file stay
	Progress   Progress
}

// Progress is told how far a run is. Its methods are not called at the same time.
type Progress interface {
	Files(total int)          // how many there are
	File(name string)         // the next one is looked at
	Outcome(what rag.Outcome) // what became of a document that was sent, refused or removed
	Note(sentence string)     // what else is to be known at once
}

// Run loads the files. The Report says what was done, also beside an error.
func Run(ctx context.Context, client *webapi.Client, o Options) (Report, error) {
	began := time.Now()
	r := Report{Collection: o.Collection, Refused: []Refusal{}, Skipped: []Refusal{}}
	err := run(ctx, library{client}, o, &r)
	r.Seconds = time.Since(began).Seconds()
	return r, err
}

func run(ctx context.Context, client library, o Options, r *Report) error {
	if _, err := docstore.NamedCollection(memory.Tenant{}, o.Collection); err != nil {
		return err
	}
	if err := o.checkPrefix(); err != nil {
		return err
	}
	sources, err := sortOut(o.Paths)
	if err != nil {
		return err
	}
	if o.Origin != "" {
		if len(sources) != 1 {
			return errors.New("--origin names one directory or file; load each with a command of its own")
		}
		sources[0].origin = o.Origin
	}
	var collection collectionInfo // it is made unless it is there
	if err := client.Call(ctx, http.MethodPut, collectionPath(o.Collection), &collection); err != nil {
		return err
	}
	for i := range sources {
		sources[i].extensions = collection.Reads
	}
	if r.Unread = collection.ReadBy != nil && len(collection.ReadBy) == 0; r.Unread {
		r.Searched = collection.Searched
		o.Progress.Note(r.unreadNote())
	}
	l := &loading{client: client, o: o, report: r, progress: o.Progress}
	if err := l.list(ctx, sources); err != nil {
		return err
	}
	jobs, err := l.walk(ctx, sources)
	if err != nil {
		return err
	}
	o.Progress.Files(len(jobs))
	if err := l.load(ctx, jobs); err != nil {
		return err
	}
	return l.prune(ctx, sources)
}

// checkPrefix says what is wrong with the prefix of ids.
func (o Options) checkPrefix() error {
	if o.Prefix == "" {
		return nil
	}
	if strings.Trim(o.Prefix, "/") != o.Prefix {
		return fmt.Errorf("--prefix %q is a name, without a slash before or behind it", o.Prefix)
	}
	return docstore.CheckID(o.Prefix)
}

// source is a directory, or a single file, to be loaded.
type source struct {
	path      string // absolute
	origin    string
	id        string // of a single file
	directory bool
	// extensions of the files that the server reads
	extensions []string
}

// files are those of a source.
func (s source) files(ctx context.Context) iter.Seq2[loader.File, error] {
	if s.directory {
		return loader.Walk(ctx, s.path, s.extensions, loader.Limits{})
	}
	return func(yield func(loader.File, error) bool) {
		f, err := loader.Single(s.path, loader.Limits{})
		yield(f, err)
	}
}

// place is where a file of the source lies on this machine.
func (s source) place(f loader.File) string {
	if !s.directory {
		return s.path
	}
	return filepath.Join(s.path, filepath.FromSlash(f.ID))
}

// sortOut tells directories from files, in their order.
func sortOut(paths []string) (sources []source, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		var cause *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("there is no file or directory %s", path)
		case errors.As(err, &cause):
			return nil, fmt.Errorf("%s: %w", path, cause.Err)
		case err != nil:
			return nil, err
		}
		s := source{directory: info.IsDir(), id: idOf(path)}
		if s.path, err = filepath.Abs(path); err == nil {
			s.path, err = filepath.EvalSymlinks(s.path)
		}
		if err != nil {
			return nil, err
		}
		s.origin = filepath.ToSlash(s.path)
		sources = append(sources, s)
	}
	return sources, nil
}

// idOf names a single file's document: by its path if that stays below where we are,
// else by its name.
func idOf(path string) string {
	path = filepath.Clean(path)
	if !filepath.IsLocal(path) {
		path = filepath.Base(path)
	}
	return filepath.ToSlash(path)
}

// idIn is the id that a file of a source gets.
func (o Options) idIn(s source, f loader.File) string {
	id := f.ID
	if !s.directory {
		id = cmp.Or(s.id, id)
	}
	if o.Prefix != "" {
		id = o.Prefix + "/" + id
	}
	return id
}
