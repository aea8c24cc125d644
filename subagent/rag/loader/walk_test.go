package loader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// write puts files below dir; a name with slashes makes directories.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

// walked writes what a walk gives, one line for each file.
func walked(t *testing.T, dir string, l Limits) []string {
	t.Helper()
	list := []string{}
	for f, err := range Walk(context.Background(), dir, Loader{}.Extensions(), l) {
		if err != nil {
			list = append(list, fmt.Sprintf("%s (%s): %v", f.ID, CodeOf(err), err))
			continue
		}
		list = append(list, f.ID)
	}
	return list
}

func TestWalk(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, map[string]string{"secret.txt": "secret"})
	write(t, dir, map[string]string{
		"b.md": "b", "a/z.txt": "z", "a/deep/er/x.PDF": "x", "README": "r", "отчёт.docx": "o",
		".hidden.txt": "h", ".git/config.txt": "g", "picture.png": "p",
		"notes.rst": "n", "data.bin": "\x00\x01", "paper.tex.gz": "\x1f\x8b", "stream.jsonl": strings.Repeat("{}\n", 1000),
		"big.txt": strings.Repeat("x", 2000), "bad\nname.txt": "b",
	})
	link := func(target, name string) { require.NoError(t, os.Symlink(target, filepath.Join(dir, name))) }
	link("b.md", "link.md")
	link(filepath.Join(outside, "secret.txt"), "out.txt")
	link("../"+filepath.Base(outside)+"/secret.txt", "relative.txt")
	link("loop.txt", "loop.txt")
	link(".", "around.txt")
	link("..", "up")
	link("gone", "dangling.txt")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.txt"), 0o644))

	want := []string{
		".git (skipped): it is hidden",
		".hidden.txt (skipped): it is hidden",
		"README",
		"a/deep/er/x.PDF",
		"a/z.txt",
		"around.txt (skipped): it is a link to a folder",
		"b.md",
		"bad name.txt (skipped): its name has characters that no name should have: rename it",
		"big.txt (too_large): the file is larger than 1 KB",
		"dangling.txt (skipped): it is a link that is not followed: no such file or directory",
		"data.bin (unsupported): files of type .bin are not read",
		"link.md",
		"loop.txt (skipped): it is a link that is not followed: too many levels of symbolic links",
		"notes.rst",
		"out.txt (skipped): it is a link that is not followed: path escapes from parent",
		"paper.tex.gz (unsupported): files of type .gz are not read",
		"picture.png (unsupported): files of type .png are not read",
		"pipe.txt (skipped): it is no regular file",
		"relative.txt (skipped): it is a link that is not followed: path escapes from parent",
		"stream.jsonl",
		"up (skipped): it is a link that is not followed: path escapes from parent",
		"отчёт.docx",
	}
	require.Equal(t, want, walked(t, dir, Limits{Bytes: 1 << 10}))
	require.Equal(t, want, walked(t, dir, Limits{Bytes: 1 << 10}), "the order is the same every time")
}

func TestWalkOfNothing(t *testing.T) {
	require.Empty(t, walked(t, t.TempDir(), Limits{}))
	missing := filepath.Join(t.TempDir(), "docs")
	for _, err := range Walk(context.Background(), missing, Loader{}.Extensions(), Limits{}) {
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.Empty(t, CodeOf(err))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n := 0
	for _, err := range Walk(ctx, t.TempDir(), Loader{}.Extensions(), Limits{}) {
		require.ErrorIs(t, err, context.Canceled)
		n++
	}
	require.Equal(t, 1, n)
}

func one(t *testing.T, dir string) File {
	t.Helper()
	var files []File
	for f, err := range Walk(context.Background(), dir, Loader{}.Extensions(), Limits{}) {
		require.NoError(t, err)
		files = append(files, f)
	}
	require.Len(t, files, 1)
	return files[0]
}

func TestReadingOfAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.txt": "some text"})
	sum := sha256.Sum256([]byte("some text"))
	want := hex.EncodeToString(sum[:])
	ctx := context.Background()
	f := one(t, dir)
	require.Equal(t, int64(9), f.Size)
	require.WithinDuration(t, time.Now(), f.Modified, time.Hour)
	hash, err := f.Hash(ctx)
	require.NoError(t, err)
	require.Equal(t, want, hash)

	r, err := f.Open(ctx)
	require.NoError(t, err)
	d, err := Load(ctx, f.ID, "", r, Limits{})
	require.NoError(t, err)
	require.Equal(t, "some text", d.Text)
	hash, err = r.Sum()
	require.NoError(t, err)
	require.Equal(t, want, hash)
	require.NoError(t, r.Close())

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = f.Hash(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, os.Remove(filepath.Join(dir, "a.txt")))
	_, err = f.Hash(ctx)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestChangeWhileReading(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	old := time.Now().Add(-time.Hour)
	fresh := func() File {
		write(t, dir, map[string]string{"a.txt": "some text"})
		require.NoError(t, os.Chtimes(path, old, old))
		return one(t, dir)
	}
	for name, change := range map[string]func(){
		"longer":            func() { write(t, dir, map[string]string{"a.txt": "some text and more"}) },
		"shorter":           func() { require.NoError(t, os.Truncate(path, 2)) },
		"of the same size":  func() { write(t, dir, map[string]string{"a.txt": "other txt"}) },
		"of another's time": func() { require.NoError(t, os.Chtimes(path, time.Now(), time.Now())) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fresh()
			change()
			_, err := f.Hash(context.Background())
			require.Equal(t, Changed, CodeOf(err), "before the start")

			f = fresh()
			r, err := f.Open(context.Background())
			require.NoError(t, err)
			defer r.Close()
			_, err = io.ReadFull(r, make([]byte, 4))
			require.NoError(t, err)
			change()
			_, err = r.Sum()
			require.Equal(t, Changed, CodeOf(err), "in the middle")
		})
	}
}

// faulty is a file system of which some files and folders fail.
type faulty struct{ fstest.MapFS }

var errIO = errors.New("input/output error")

func (f faulty) Open(name string) (fs.File, error) {
	opened, err := f.MapFS.Open(name)
	switch {
	case strings.Contains(name, "denied"):
		return nil, &fs.PathError{Op: "open", Path: "/a/secret/place/" + name, Err: fs.ErrPermission}
	case strings.Contains(name, "torn"):
		return torn{opened}, err
	}
	return opened, err
}

func (f faulty) ReadDir(name string) ([]fs.DirEntry, error) {
	if strings.Contains(name, "denied") {
		return nil, &fs.PathError{Op: "open", Path: "/a/secret/place/" + name, Err: fs.ErrPermission}
	}
	return f.MapFS.ReadDir(name)
}

func (f faulty) Stat(name string) (fs.FileInfo, error) {
	if strings.Contains(name, "lost") {
		return nil, &fs.PathError{Op: "stat", Path: "/a/secret/place/" + name, Err: errIO}
	}
	return f.MapFS.Stat(name)
}

// torn is a file on a disk that fails in the middle.
type torn struct{ fs.File }

func (torn) Read(p []byte) (int, error) { return copy(p, "so"), errIO }

func TestUnreadableFiles(t *testing.T) {
	file := &fstest.MapFile{Data: []byte("text"), ModTime: time.Unix(1, 0)}
	fsys := faulty{fstest.MapFS{"a.txt": file, "denied.txt": file, "denied/x.txt": file, "lost.txt": file,
		"torn.txt": file, "z.txt": file}}
	got := []string{}
	walker{extensions: Loader{}.Extensions(), ctx: context.Background(), fsys: fsys, open: fsys.Open, limit: 1 << 20,
		yield: func(f File, err error) bool {
			if err == nil {
				_, err = f.Hash(context.Background())
			}
			got = append(got, fmt.Sprintf("%s %s %v", f.ID, CodeOf(err), err))
			return true
		}}.walk()
	require.Equal(t, []string{
		"a.txt  <nil>",
		"denied unreadable it cannot be read: permission denied",
		"denied.txt unreadable it cannot be read: permission denied",
		"lost.txt unreadable it cannot be read: input/output error",
		"torn.txt unreadable it cannot be read: input/output error",
		"z.txt  <nil>",
	}, got)

	n := 0
	walker{extensions: Loader{}.Extensions(), ctx: context.Background(), fsys: fsys, open: fsys.Open, limit: 1 << 20,
		yield: func(File, error) bool {
			n++
			return n < 2
		}}.walk()
	require.Equal(t, 2, n, "who has enough gets no more")
}
