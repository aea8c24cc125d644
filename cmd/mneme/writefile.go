package main

import (
	"fmt"
	"io"
	"os"

	"mneme/memory/journal"
)

// writeFile has save write a file at path, which appears there when it is whole and on
// disk; until then it is a .tmp file beside it. The file is its owner's only: it holds what
// users said, or keys.
func writeFile(path string, overwrite bool, save func(io.Writer) error) error {
	return journal.Replace(path, ".tmp", func(out io.Writer) error {
		if err := mayWrite(path, overwrite); err != nil {
			return err
		}
		if err := save(out); err != nil {
			return err
		}
		return mayWrite(path, overwrite) // once more: a backup may take long
	})
}

func mayWrite(path string, overwrite bool) error {
	if _, err := os.Lstat(path); err == nil && !overwrite {
		return fmt.Errorf("%s: the file exists; name another one, or add --force to write over it", path)
	}
	return nil
}
