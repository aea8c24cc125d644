// Package rag answers from documents. A Folder keeps the text files of one
// directory searchable; a Session is what one run of a subagent gets of it: the
// tool search_documents, whose passages keep their number as long as the run
// lasts, and the citations of an answer that uses those numbers as [n].
package rag

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"mneme/subagent/rag/index"
)

// limits bound what is read of a folder. What lies beyond is left out and
// reported.
type limits struct {
	file    int64 // bytes of one file
	folder  int64 // bytes of all files
	files   int   // text files, usable or not
	entries int   // files of any kind and directories
}

var usual = limits{file: 2 << 20, folder: 64 << 20, files: 10_000, entries: 100_000}

// Folder searches the .txt, .md and .markdown files below a directory, except
// hidden ones. It looks at the directory's state before every search and reads
// what has changed; nothing runs in between. Symbolic links to files are followed
// as long as they stay inside; links to directories are not. Safe for concurrent
// use.
type Folder struct {
	dir    string
	log    zerolog.Logger
	limits limits

	gate  chan struct{}        // full while somebody reads the directory
	known map[string]*document // by path; the map does not change; guarded by gate
	index *index.Collection    // of the usable ones of known; guarded by gate
}

// NewFolder makes a Folder of dir, which need not exist yet. Files that cannot be
// used are logged once per change.
func NewFolder(dir string, log zerolog.Logger) *Folder {
	return &Folder{dir: dir, log: log, limits: usual, gate: make(chan struct{}, 1), index: index.NewCollection()}
}

// document is a file as it was read; it does not change afterwards.
type document struct {
	size     int64
	modified time.Time
	settled  bool // a later change must show in size or modified
	refused  string
	passages []passage
}

// usable says whether the document can be searched.
func (d *document) usable() bool { return d != nil && d.refused == "" }

// content is the state of the directory at one time.
type content struct {
	missing   bool
	documents map[string]*document // by path, refused ones too
	usable    int                  // how many are not refused
	index     *index.Snapshot      // of the usable ones
	skipped   []string             // "path: reason"
}

// current brings the folder up to date with the directory.
func (f *Folder) current(ctx context.Context) (content, error) {
	select {
	case f.gate <- struct{}{}:
	case <-ctx.Done():
		return content{}, context.Cause(ctx)
	}
	defer func() { <-f.gate }()
	root, err := os.OpenRoot(f.dir)
	if errors.Is(err, fs.ErrNotExist) {
		f.learn(nil)
		return content{missing: true, index: f.index.Snapshot()}, nil
	}
	if err != nil {
		return content{}, fmt.Errorf("the documents folder cannot be read: %w", reason(err))
	}
	defer root.Close()
	r := reading{folder: f, root: root, seen: map[string]*document{}}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return r.visit(name, entry, err)
	})
	if err != nil {
		// What was read stays known: a first search that runs out of time must not
		// make the next one start over.
		known := maps.Clone(r.seen)
		for name, d := range f.known {
			if known[name] == nil {
				known[name] = d
			}
		}
		f.learn(known)
		return content{}, fmt.Errorf("the documents folder cannot be read: %w", reason(err))
	}
	f.learn(r.seen)
	r.content.documents, r.content.index = r.seen, f.index.Snapshot()
	return r.content, nil
}

// learn makes documents the known ones and brings the index up to date with them.
func (f *Folder) learn(documents map[string]*document) {
	var change index.Change
	for name, d := range documents {
		if d.usable() && d != f.known[name] {
			change.Put = append(change.Put, d.indexed(name))
		}
	}
	for name, d := range f.known {
		if d.usable() && !documents[name].usable() {
			change.Delete = append(change.Delete, name)
		}
	}
	f.known = documents
	if len(change.Put)+len(change.Delete) > 0 {
		f.index.Apply(change)
	}
}

// indexed is the document as the index takes it.
func (d *document) indexed(name string) index.Document {
	out := index.Document{ID: name}
	for _, p := range d.passages {
		out.Title = p.title
		out.Passages = append(out.Passages, index.Passage{Section: p.section, Text: p.text})
	}
	return out
}

// reading is one walk over the directory.
type reading struct {
	folder  *Folder
	root    *os.Root
	seen    map[string]*document
	entries int
	bytes   int64
	content content
}

func (r *reading) visit(name string, entry fs.DirEntry, err error) error {
	limits := r.folder.limits
	if r.entries++; r.entries > limits.entries {
		r.leaveOut(name, refused("the folder has more than %d entries, this one and all behind it are left out", limits.entries))
		return fs.SkipAll
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != ".": // deleted meanwhile
		return nil
	case err != nil && name == ".":
		return err
	case err != nil:
		r.leaveOut(name, refused("%v", reason(err)))
		return nil
	case name != "." && strings.HasPrefix(path.Base(name), "."):
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	case entry.IsDir() || !isText(name):
		return nil
	case len(r.seen) == limits.files:
		r.leaveOut(name, refused("the folder has more than %d text files, this one and all behind it are left out", limits.files))
		return fs.SkipAll
	}
	r.file(name)
	return nil
}

// file adds one text file, read anew only if it may have changed.
func (r *reading) file(name string) {
	info, err := r.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	limits := r.folder.limits
	d := r.folder.known[name]
	switch {
	case err != nil:
		d = refused("%v", reason(err))
	case !info.Mode().IsRegular():
		d = refused("not a regular file")
	case info.Size() > limits.file:
		d = refused(tooLarge, limits.file)
	case r.bytes+info.Size() > limits.folder:
		d = refused("the files before it fill the %d bytes that one folder may hold", limits.folder)
	case d == nil || !d.settled || d.size != info.Size() || !d.modified.Equal(info.ModTime()):
		if d, err = load(r.root, name, limits.file); errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	if d.refused != "" {
		r.leaveOut(name, d)
		return
	}
	r.seen[name] = d
	r.bytes += d.size
	r.content.usable++
}

// leaveOut records what is not read, and logs it unless the last walk did.
func (r *reading) leaveOut(name string, d *document) {
	r.seen[name] = d
	r.content.skipped = append(r.content.skipped, cleanName(name)+": "+d.refused)
	if before := r.folder.known[name]; before == nil || before.refused != d.refused {
		r.folder.log.Warn().Str("file", name).Str("reason", d.refused).Msg("document left out")
	}
}

// refused is a document that is left out. It has no size and time, so that the
// file is read once nothing stands against it any more.
func refused(format string, args ...any) *document {
	return &document{refused: fmt.Sprintf(format, args...)}
}

// tooLarge is why a file is not read whose size is above the limit.
const tooLarge = "larger than %d bytes"

// racy is the age below which a file is read again at the next search: clocks of
// file systems are coarse, a second write may leave the same time behind.
const racy = 2 * time.Second

// load reads a file of at most limit bytes. A failure is a refused document; only that the file is gone
// is an error.
func load(root *os.Root, name string, limit int64) (*document, error) {
	file, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return refused("%v", reason(err)), nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return refused("%v", reason(err)), nil
	}
	d := &document{size: info.Size(), modified: info.ModTime(), settled: time.Since(info.ModTime()).Abs() > racy}
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return refused("%v", reason(err)), nil
	case int64(len(raw)) > limit:
		d.refused = fmt.Sprintf(tooLarge, limit)
	case slices.Contains(raw, 0):
		d.refused = "binary, not text"
	case !utf8.Valid(raw):
		d.refused = "not UTF-8 text"
	default:
		d.passages = split(cleanName(name), clean(string(raw)), path.Ext(strings.ToLower(name)) != ".txt")
	}
	return d, nil
}

func isText(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".txt", ".md", ".markdown":
		return true
	}
	return false
}

// reason is an error of the file system without the paths of this machine, which
// are nobody's business who reads answers.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// maxPassages is how many passages one search gives.
const maxPassages = 5

// found is a passage with the score it got.
type found struct {
	passage
	score float64
}

// search gives the best passages for a query over the present state of the
// directory.
func (f *Folder) search(ctx context.Context, query string) ([]found, content, error) {
	now, err := f.current(ctx)
	if err != nil {
		return nil, now, err
	}
	var results []found
	for _, h := range now.index.Search(index.Query{Text: query, Limit: maxPassages, Duplicates: true}).Hits {
		results = append(results, found{now.documents[h.Document].passages[h.Passage], h.Score})
	}
	return results, now, nil
}
