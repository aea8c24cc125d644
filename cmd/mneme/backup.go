package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/backup"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
)

func backupCommand(con *console) *cobra.Command {
	c := newCommand("backup <file>", "Save everything that is stored into a file.", `The file - is standard output. Saves everything that is stored: histories, documents, what the gateway keeps of conversations, and usage; not the session logs, which are files. Services may run meanwhile. The configuration says which store: the embedded one in data_dir, which is read through redis.embedded_listen while mneme runs, or the Redis of redis.url or redis.addrs. The file can be restored into either of them.

The file holds what users said, in the clear: keep it as you keep the store.

Examples:
  mneme backup mneme.backup
  mneme backup "mneme-$(date +%F).backup"
  docker compose exec -T webmemory /usr/local/bin/mneme backup - > mneme.backup
  zcat mneme.backup | head -n 3`)
	force := c.Flags().Bool("force", false, "Write over an existing file")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, args []string) error {
		return saveBackup(ctx, con, cfg, args[0], *force)
	})
}

// saveBackup writes a backup of the store into a file.
func saveBackup(ctx context.Context, con *console, cfg config.Config, file string, force bool) error {
	if file == "-" && term.IsTerminal(con.stdout) {
		return badUsage("a backup is no text for a terminal: name a file, or send standard output into one")
	}
	ctx, release := cancelOnSignal(ctx)
	defer release()
	var saved backup.Summary
	write := func(out io.Writer) (err error) {
		tell, end := term.Counter(con.stderr)
		defer end()
		saved, err = app.Backup(ctx, cfg, out, newLogger(con.stderr, cfg.Log),
			func(s backup.Summary) { tell("saved %d keys, %s", s.Keys, s) })
		return err
	}
	var err error
	if file == "-" {
		err = write(con.stdout)
	} else {
		err = writeFile(file, force, write)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("stopped before the end; there is no backup")
	case err != nil:
		return err
	}
	fmt.Fprintf(con.stderr, "saved %s to %s\n", saved, file)
	return nil
}
