package cold

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mneme/memory/journal"
)

// Folder is a Store in a folder of a file system, which all processes of the service must share.
type Folder string

// draft ends the names of files that are being written.
const draft = ".draft"

// Put writes a draft, and has it on the disk before it takes the object's name; then its folder is, too.
func (d Folder) Put(_ context.Context, name string, data []byte) error {
	path := d.path(name)
	err := d.makeFolder(filepath.Dir(path))
	if err == nil {
		err = removeDrafts(path) // of a process that was killed
	}
	if err != nil {
		return err
	}
	return journal.Replace(path, draft, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// Get implements Store.
func (d Folder) Get(_ context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(string(d)); err != nil {
			return nil, err // a disk that is not mounted has forgotten nothing
		}
		err = ErrNone
	}
	return data, err
}

// Delete implements Store.
func (d Folder) Delete(_ context.Context, name string) error {
	path := d.path(name)
	_, err := os.Stat(string(d))
	if err != nil {
		return err
	}
	if err = removeDrafts(path); err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, journal.SyncDir(filepath.Dir(path)))
}

// List implements Store.
func (d Folder) List(_ context.Context, folder string, each func(string, time.Time) error) error {
	if _, err := os.Stat(string(d)); err != nil {
		return err
	}
	return filepath.WalkDir(d.path(folder), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, suffix) {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil {
				name := strings.TrimPrefix(path, filepath.Clean(string(d))+string(filepath.Separator))
				return each(filepath.ToSlash(name), info.ModTime())
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile, or nothing was ever put there
			err = nil
		}
		return err
	})
}

func (d Folder) path(name string) string { return filepath.Join(string(d), filepath.FromSlash(name)) }

// makeFolder makes a folder below d, and has each on the disk; d itself must be there, for a disk that is not mounted
// must not be taken for an empty one.
func (d Folder) makeFolder(path string) error {
	if _, err := os.Stat(path); err == nil || path == filepath.Clean(string(d)) {
		return err
	}
	if err := d.makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return journal.SyncDir(filepath.Dir(path))
}

// removeDrafts removes what was begun of an object and not finished. A process that is still at it fails.
func removeDrafts(path string) error {
	drafts, err := filepath.Glob(path + ".*" + draft) // an object's name has nothing that Glob would take for a pattern
	for _, name := range drafts {
		if removeErr := os.Remove(name); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return err
}
