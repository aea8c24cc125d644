package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/backup"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
)

func (con *console) backup() *cobra.Command {
	c := newCommand("backup <file>", "Save everything that is stored into a file.", `The file - is standard output. Saves everything that is stored: histories, documents, what the gateway keeps of conversations, and usage; not the session logs, which are files. Services may run meanwhile. The configuration says which store: the embedded one in data_dir, which is read through redis.embedded_listen while mneme runs, or the Redis of redis.url or redis.addrs. The file can be restored into either of them.

The file holds what users said, in the clear: keep it as you keep the store.

Examples:
  mneme backup mneme.backup
  mneme backup "mneme-$(date +%F).backup"
  docker compose exec -T webmemory /usr/local/bin/mneme backup - > mneme.backup
  zcat mneme.backup | head -n 3`)
	force := c.Flags().Bool("force", false, "Write over an existing file")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, args []string) error {
		return con.save(ctx, cfg, args[0], *force)
	})
}

// save writes a backup of the store into a file.
func (con *console) save(ctx context.Context, cfg config.Config, file string, force bool) error {
	if file == "-" && term.IsTerminal(con.stdout) {
		return wrong("a backup is no text for a terminal: name a file, or send standard output into one")
	}
	ctx, release := untilSignal(ctx)
	defer release()
	var saved backup.Summary
	write := func(out io.Writer) error {
		tell, end := term.Counter(con.stderr)
		defer end()
		var err error
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

func (con *console) restore() *cobra.Command {
	c := newCommand("restore <file>", "Restore the store from such a file.", `The file - is standard input. Writes a backup into the store that the configuration names: the embedded one in data_dir, or a Redis. Stop all of mneme's services first; a store that is seen to be in use is refused. So is one that holds anything of mneme's, unless --force is given; then nothing of it stays, and the old folder of an embedded store is kept under another name. A file that is damaged or cut short is refused before anything is written.

Examples:
  mneme restore mneme.backup
  MNEME_REDIS_URL=redis://127.0.0.1:6379 mneme restore mneme.backup
  docker compose run --rm -T --no-deps webmemory restore --force - < mneme.backup`)
	force := c.Flags().Bool("force", false, "Replace everything of mneme's that the store holds")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, args []string) error {
		return con.restoreFrom(ctx, cfg, args[0], *force)
	})
}

// restoreFrom writes a backup into the store.
func (con *console) restoreFrom(ctx context.Context, cfg config.Config, name string, force bool) error {
	ctx, release := untilSignal(ctx)
	defer release()
	if cfg.Redis.Embedded() || name == "-" {
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return fmt.Errorf("%w; check data_dir", err)
		}
	}
	open := func() (*os.File, error) { return os.Open(name) }
	if name == "-" {
		name, open = "standard input", func() (*os.File, error) { return backup.Spool(con.stdin, cfg.DataDir) }
	}
	file, err := open()
	if err != nil {
		return err
	}
	defer file.Close()
	found, err := backup.Verify(file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	tell, end := term.Counter(con.stderr)
	done, kept, err := app.Restore(ctx, cfg, file, force, newLogger(con.stderr, cfg.Log),
		func(s backup.Summary) { tell("restored %d keys, %s", s.Keys, s) })
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(con.stderr, "restored %s, saved on %s\n", done, found.Created.Local().Format(time.DateTime))
	if kept != "" {
		fmt.Fprintf(con.stderr, "what was there before is kept in %s\n", kept)
	}
	return nil
}
