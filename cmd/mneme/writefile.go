package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mneme/memory/journal"
)

// writeFile has save write a file at path, which appears there when it is whole and on
// disk; until then it is a .tmp file beside it. The file is its owner's only: it holds what
// users said, or keys.
func writeFile(path string, overwrite bool, save func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	if err = mayWrite(path, overwrite); err == nil {
		err = save(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = mayWrite(path, overwrite) // once more: a backup may take long
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return journal.SyncDir(filepath.Dir(path))
}

func mayWrite(path string, overwrite bool) error {
	if _, err := os.Lstat(path); err == nil && !overwrite {
		return fmt.Errorf("%s: the file exists; name another one, or add --force to write over it", path)
	}
	return nil
}
