package main

import (
	"context"
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

func restoreCommand(con *console) *cobra.Command {
	c := newCommand("restore <file>", "Restore the store from such a file.", `The file - is standard input. Writes a backup into the store that the configuration names: the embedded one in data_dir, or a Redis. Stop all of mneme's services first; a store that is seen to be in use is refused. So is one that holds anything of mneme's, unless --force is given; then nothing of it stays, and the old folder of an embedded store is kept under another name. A file that is damaged or cut short is refused before anything is written.

Examples:
  mneme restore mneme.backup
  MNEME_REDIS_URL=redis://127.0.0.1:6379 mneme restore mneme.backup
  docker compose run --rm -T --no-deps webmemory restore --force - < mneme.backup`)
	force := c.Flags().Bool("force", false, "Replace everything of mneme's that the store holds")
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, args []string) error {
		return restoreBackup(ctx, con, cfg, args[0], *force)
	})
}

// restoreBackup writes a backup into the store.
func restoreBackup(ctx context.Context, con *console, cfg config.Config, name string, force bool) error {
	ctx, release := cancelOnSignal(ctx)
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
	summary, err := backup.Verify(file)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	tell, end := term.Counter(con.stderr)
	done, oldPath, err := app.Restore(ctx, cfg, file, force, newLogger(con.stderr, cfg.Log),
		func(s backup.Summary) { tell("restored %d keys, %s", s.Keys, s) })
	end()
	if err != nil {
		return err
	}
	fmt.Fprintf(con.stderr, "restored %s, saved on %s\n", done, summary.Created.Local().Format(time.DateTime))
	if oldPath != "" {
		fmt.Fprintf(con.stderr, "what was there before is kept in %s\n", oldPath)
	}
	return nil
}
