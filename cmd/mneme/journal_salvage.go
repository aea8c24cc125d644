package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mneme/memory/journal"
)

func journalSalvageCommand(con *console) *cobra.Command {
	c := newCommand("salvage <dir>", "Mend a damaged journal: keep every sound record of it.", `<dir> is the folder that holds the file journal: redis in data_dir, or one of those in data_dir/spool.

The embedded store and the spool keep what they acknowledge in journals. One that is damaged in the middle is refused at start, with the place. This command writes it anew with every record that is sound, before the damage and behind it, and keeps the damaged file beside it under another name. It says which bytes were lost. A sound journal stays as it is, and so does one that a process has open: stop mneme first.

A history that lost records is set aside as damaged when it is used next, or lacks messages. The file that is kept holds texts that no erasure reaches: delete it when it is of no more use.

Examples:
  mneme journal salvage data/redis`)
	c.RunE = func(_ *cobra.Command, args []string) error { return salvage(con.stdout, args[0]) }
	return c
}

// salvage repairs the journal in a folder and prints the lost bytes.
func salvage(out io.Writer, dir string) error {
	report, err := journal.Salvage(dir, journal.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		hint := ""
		if _, err := os.Stat(filepath.Join(dir, "redis", "journal")); err == nil {
			hint = "; the embedded store's is in " + filepath.Join(dir, "redis")
		}
		return fmt.Errorf("there is no journal in %s%s", dir, hint)
	}
	if inUse := new(journal.InUseError); errors.As(err, &inUse) {
		return fmt.Errorf("%w; stop it first", err)
	}
	if err != nil {
		return err
	}
	if len(report.Damaged) == 0 {
		_, err = fmt.Fprintf(out, "%s is sound: %s; nothing was changed.\n", filepath.Join(dir, "journal"),
			plural(report.Records, "record"))
		return err
	}
	total := int64(0)
	for _, span := range report.Damaged {
		total += span.End - span.Start
		fmt.Fprintf(out, "lost: bytes %d to %d (%d)\n", span.Start, span.End-1, span.End-span.Start)
	}
	_, err = fmt.Fprintf(out,
		"kept: %s, %d bytes; lost: %d bytes in %s.\nThe damaged file is %s: delete it when it is of no more use.\n",
		plural(report.Records, "record"), report.Bytes, total, plural(len(report.Damaged), "place"), report.Backup)
	return err
}
