package loader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// File is a file of a directory tree.
type File struct {
	// ID is its path below the directory, with slashes: the same on every machine
	// and in every walk.
	ID       string
	Size     int64 // bytes
	Modified time.Time

	open func(id string) (fs.File, error)
}

// Walk goes through the files below a directory in the order of their paths,
// folder by folder. A file that is not for reading comes with an *Error that
// says why, and the walk goes on: hidden files and folders (which are not
// entered), types that are not among the extensions, files larger than Limits.Bytes except
// JSON lines, which Documents streams, links that leave the directory or run in
// circles, and what the system does not let us read. Links to files inside are followed, links to folders are not.
//
// Any other error, of a directory that cannot be read at all or of ctx, ends the
// walk.
func Walk(ctx context.Context, dir string, extensions []string, limits Limits) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			yield(File{}, fmt.Errorf("the directory %q cannot be read: %w", dir, reason(err)))
			return
		}
		defer root.Close()
		open := func(id string) (fs.File, error) { return os.OpenInRoot(dir, id) }
		w := walker{ctx: ctx, extensions: extensions, fsys: root.FS(), open: open, limit: limits.orDefault().Bytes,
			yield: yield}
		w.walk()
	}
}

// walker is one walk.
type walker struct {
	ctx        context.Context
	fsys       fs.FS
	open       func(id string) (fs.File, error)
	extensions []string
	limit      int64
	yield      func(File, error) bool
}

func (w walker) walk() {
	err := fs.WalkDir(w.fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if name == "." {
			return err
		}
		f, err := w.visit(name, entry, err)
		switch {
		case err == nil && f.ID == "", errors.Is(err, errGone): // a folder that is entered, or nothing
			return nil
		case !w.yield(f, err):
			return fs.SkipAll
		case err != nil && entry != nil && entry.IsDir():
			return fs.SkipDir
		}
		return nil
	})
	switch {
	case w.ctx.Err() != nil && err != nil:
		w.yield(File{}, context.Cause(w.ctx))
	case err != nil:
		w.yield(File{}, fmt.Errorf("the directory cannot be read: %w", reason(err)))
	}
}

// errGone is that a file was deleted since its folder was listed.
var errGone = errors.New("gone")

// visit is the file of a name, and why it is left out. A folder that is entered
// is no file.
func (w walker) visit(name string, entry fs.DirEntry, err error) (File, error) {
	f := File{ID: name, open: w.open}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, errGone
	case err != nil:
		return f, unreadable(err)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		f.ID = oneLine(name)
		return f, refuse(Skipped, "its name has characters that no name should have: rename it")
	case strings.HasPrefix(path.Base(name), "."):
		return f, refuse(Skipped, "it is hidden")
	case entry.IsDir():
		return File{}, nil
	}
	info, err := fs.Stat(w.fsys, name) // of what a link points to
	switch {
	case errors.Is(err, fs.ErrNotExist) && entry.Type()&fs.ModeSymlink == 0:
		return f, errGone
	case err != nil && entry.Type()&fs.ModeSymlink != 0:
		return f, &Error{Code: Skipped, Sentence: fmt.Sprintf("it is a link that is not followed: %v", reason(err)), Err: err}
	case err != nil:
		return f, unreadable(err)
	case info.IsDir():
		return f, refuse(Skipped, "it is a link to a folder")
	}
	kind := extensionOf(name)
	if err := f.saw(info, w.limit); err != nil {
		return f, err
	}
	if kind != "" && !slices.Contains(w.extensions, kind) && !f.isText() {
		return f, refuse(Unsupported, "files of type %s are not read", path.Ext(name))
	}
	return f, nil
}

// isText reports whether a file without a reader of its own starts as text. The server reads it as text.
func (f File) isText() bool {
	switch kind, _, _ := strings.Cut(typeOf(extensionOf(f.ID)), "/"); kind {
	case "image", "audio", "video", "font":
		return false
	}
	opened, err := f.open(f.ID)
	if err != nil {
		return true // which the reading will say
	}
	defer opened.Close()
	head, _ := io.ReadAll(io.LimitReader(opened, 1<<10))
	match, err := magic(head)
	return match == nil && err == nil && !bytes.ContainsRune(head, 0)
}

// saw notes what the system says of the file, unless that is why it is not for reading.
func (f *File) saw(info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return refuse(Skipped, "it is no regular file")
	case info.Size() > limit && !(Loader{}).Streamed(f.ID, ""):
		return refuse(TooLarge, "the file is larger than %s", size(limit))
	}
	f.Size, f.Modified = info.Size(), info.ModTime()
	return nil
}

// Single is the file at a path, with its name as ID. An *Error says why it is not for
// reading; its type is not looked at.
func Single(path string, limits Limits) (File, error) {
	f := File{ID: filepath.Base(path), open: func(string) (fs.File, error) { return os.Open(path) }}
	info, err := os.Stat(path)
	if err != nil {
		return f, unreadable(err)
	}
	return f, f.saw(info, limits.orDefault().Bytes)
}

func unreadable(err error) *Error {
	return &Error{Code: Unreadable, Sentence: fmt.Sprintf("it cannot be read: %v", reason(err)), Err: err}
}

// reason is an error of the file system without the paths of this machine, which do not
// concern a reader of the answer.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Hash is the SHA-256 of the file's content in hex.
func (f File) Hash(ctx context.Context) (string, error) {
	r, err := f.Open(ctx)
	if err != nil {
		return "", err
	}
	defer r.Close()
	return r.Sum()
}

// Open opens the file for reading, which ends with ctx. Its errors, and those of the Reading, are
// refusals, except that a file that is gone is fs.ErrNotExist.
func (f File) Open(ctx context.Context) (*Reading, error) {
	opened, err := f.open(f.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, unreadable(err)
	}
	r := &Reading{ctx: ctx, file: f, opened: opened, hash: sha256.New()}
	if err := r.unchanged(); err != nil {
		opened.Close()
		return nil, err
	}
	return r, nil
}

// Reading is an open file: an io.Reader that hashes what it gives. It is used by
// one goroutine.
type Reading struct {
	ctx    context.Context
	file   File
	opened fs.File
	hash   hash.Hash
	bytes  int64
}

// Read gives the next bytes.
func (r *Reading) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.opened.Read(p)
	r.hash.Write(p[:n])
	r.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = unreadable(err)
	}
	return n, err
}

// Sum reads what is left and gives the SHA-256 of the whole content in hex. It
// refuses a file that was written to since the walk saw it: what was read may be
// half of two versions.
func (r *Reading) Sum() (string, error) {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return "", err
	}
	if err := r.unchanged(); err != nil {
		return "", err
	}
	if r.bytes != r.file.Size {
		return "", changed()
	}
	return hex.EncodeToString(r.hash.Sum(nil)), nil
}

// Close closes the file.
func (r *Reading) Close() error { return r.opened.Close() }

func (r *Reading) unchanged() error {
	info, err := r.opened.Stat()
	switch {
	case err != nil:
		return unreadable(err)
	case info.Size() != r.file.Size, !info.ModTime().Equal(r.file.Modified):
		return changed()
	}
	return nil
}

func changed() *Error { return refuse(Changed, "the file was changed while it was read") }
