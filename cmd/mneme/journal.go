package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mneme/memory/journal"
)

type journalCmd struct {
	Salvage journalSalvageCmd `cmd:"" help:"Mend a damaged journal: keep every sound record of it."`
}

type journalSalvageCmd struct {
	Dir string `arg:"" help:"Folder that holds the file journal: redis in data_dir, or one of those in data_dir/spool."`
}

func (journalSalvageCmd) Help() string {
	return `The embedded store and the spool keep what they acknowledge in journals. One that is damaged in the middle is refused at start, with the place. This command writes it anew with every record that is sound, before the damage and behind it, and keeps the damaged file beside it under another name. It says which bytes were lost. A sound journal stays as it is, and so does one that a process has open: stop mneme first.

A history that lost records is set aside as damaged when it is used next, or lacks messages. The file that is kept holds texts that no erasure reaches: delete it when it is of no more use.

Examples:
  mneme journal salvage data/redis`
}

// Run salvages one journal.
func (c journalSalvageCmd) Run(con *console) error {
	found, err := journal.Salvage(c.Dir, journal.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		hint := ""
		if _, err := os.Stat(filepath.Join(c.Dir, "redis", "journal")); err == nil {
			hint = "; the embedded store's is in " + filepath.Join(c.Dir, "redis")
		}
		return fmt.Errorf("there is no journal in %s%s", c.Dir, hint)
	}
	if inUse := new(journal.InUseError); errors.As(err, &inUse) {
		return fmt.Errorf("%w; stop it first", err)
	}
	if err != nil {
		return err
	}
	if len(found.Lost) == 0 {
		_, err = fmt.Fprintf(con.stdout, "%s is sound: %s; nothing was changed.\n", filepath.Join(c.Dir, "journal"),
			plural(found.Records, "record"))
		return err
	}
	lost := int64(0)
	for _, span := range found.Lost {
		lost += span.To - span.From
		fmt.Fprintf(con.stdout, "lost: bytes %d to %d (%d)\n", span.From, span.To-1, span.To-span.From)
	}
	_,
		err = fmt.Fprintf(con.stdout,
		"kept: %s, %d bytes; lost: %d bytes in %s.\nThe damaged file is %s: delete it when it is of no more use.\n",
		plural(found.Records, "record"), found.Bytes, lost, plural(len(found.Lost), "place"), found.Kept)
	return err
}
