package main

import (
	"fmt"
	"io"
	"os"

	"mneme/memory/journal"
)

// writeFile writes a file with save. The file appears at path when it is complete and on disk. Until then it has the
// suffix .tmp. Only its owner can read it, because it holds messages or keys.
func writeFile(path string, overwrite bool, save func(io.Writer) error) error {
	return journal.Replace(path, ".tmp", func(out io.Writer) error {
		if err := checkOverwrite(path, overwrite); err != nil {
			return err
		}
		if err := save(out); err != nil {
			return err
		}
		return checkOverwrite(path, overwrite) // again, because save may take long
	})
}

// checkOverwrite returns an error if the file exists and overwrite is not set.
func checkOverwrite(path string, overwrite bool) error {
	if _, err := os.Lstat(path); err == nil && !overwrite {
		return fmt.Errorf("%s: the file exists; name another one, or add --force to write over it", path)
	}
	return nil
}
