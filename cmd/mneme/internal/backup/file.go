package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mneme/memory/journal"
)

// ErrExists refuses to write over a file.
var ErrExists = errors.New("the file exists; name another one, or add --force to write over it")

// WriteFile has save write a file at path, which appears there when it is whole
// and on disk; until then it is a .tmp file beside it. The file is its owner's
// only, since it holds what users said.
func WriteFile(path string, overwrite bool, save func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err = mayWrite(path, overwrite); err == nil {
		err = save(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = mayWrite(path, overwrite); err != nil { // once more: a backup may take long
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(path))
}

func mayWrite(path string, overwrite bool) error {
	if _, err := os.Lstat(path); err == nil && !overwrite {
		return fmt.Errorf("%s: %w", path, ErrExists)
	}
	return nil
}

// Open verifies the backup in a file and opens it to be restored.
func Open(path string) (*os.File, Summary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Summary{}, err
	}
	return verified(f, path)
}

// Spool copies in into a file without a name, in dir or else where the system keeps
// temporary files, and verifies it there: what is restored must be known to be
// whole, and a stream can be read only once.
func Spool(in io.Reader, dir string) (*os.File, Summary, error) {
	f, err := os.CreateTemp("", "mneme-restore-")
	if err != nil { // a container without a writable /tmp
		if f, err = os.CreateTemp(dir, "restore-"); err != nil {
			return nil, Summary{}, err
		}
	}
	err = os.Remove(f.Name())
	if err == nil {
		_, err = io.Copy(f, in)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, Summary{}, errors.Join(err, f.Close())
	}
	return verified(f, "standard input")
}

func verified(f *os.File, name string) (*os.File, Summary, error) {
	found, err := Verify(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, found, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, found, nil
}
