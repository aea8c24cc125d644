package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/backup"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
)

type backupCmd struct {
	serveFlags
	File  string `arg:"" help:"File to write, - for standard output."`
	Force bool   `help:"Write over an existing file."`
}

func (backupCmd) Help() string {
	return `Saves everything that is stored: histories, documents, what the gateway keeps of conversations, and usage; not the session logs, which are files. Services may run meanwhile. The configuration says which store: the embedded one in data_dir, which is read through redis.embedded_listen while mneme runs, or the Redis of redis.url or redis.addrs. The file can be restored into either of them.

The file holds what users said, in the clear: keep it as you keep the store.

Examples:
  mneme backup mneme.backup
  mneme backup "mneme-$(date +%F).backup"
  docker compose exec -T webmemory /usr/local/bin/mneme backup - > mneme.backup
  zcat mneme.backup | head -n 3`
}

func (c backupCmd) Run(ctx context.Context, con *console) error {
	cfg, err := config.Load(c.Config, con.environ)
	if err != nil {
		return err
	}
	if c.File == "-" && term.IsTerminal(con.stdout) {
		return errors.New("a backup is no text for a terminal: name a file, or send standard output into one")
	}
	ctx, release := untilSignal(ctx)
	defer release()
	var saved backup.Summary
	save := func(out io.Writer) error {
		tell, end := con.counting("saved")
		defer end()
		var err error
		saved, err = app.Backup(ctx, cfg, out, logger(cfg.Log, con), tell)
		return err
	}
	if c.File == "-" {
		err = save(con.stdout)
	} else {
		err = backup.WriteFile(c.File, c.Force, save)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("stopped before the end; there is no backup")
	}
	if err == nil {
		fmt.Fprintf(con.stderr, "saved %s to %s\n", saved, c.File)
	}
	return err
}

type restoreCmd struct {
	serveFlags
	File  string `arg:"" help:"File that mneme backup wrote, - for standard input."`
	Force bool   `help:"Replace everything of mneme's that the store holds."`
}

func (restoreCmd) Help() string {
	return `Writes a backup into the store that the configuration names: the embedded one in data_dir, or a Redis. Stop all of mneme's services first; a store that is seen to be in use is refused. So is one that holds anything of mneme's, unless --force is given; then nothing of it stays, and the old folder of an embedded store is kept under another name. A file that is damaged or cut short is refused before anything is written.

Examples:
  mneme restore mneme.backup
  MNEME_REDIS_URL=redis://127.0.0.1:6379 mneme restore mneme.backup
  docker compose run --rm -T --no-deps webmemory restore --force - < mneme.backup`
}

func (c restoreCmd) Run(ctx context.Context, con *console) error {
	cfg, err := config.Load(c.Config, con.environ)
	if err != nil {
		return err
	}
	ctx, release := untilSignal(ctx)
	defer release()
	if cfg.Redis.Embedded() || c.File == "-" {
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return fmt.Errorf("%w; check data_dir", err)
		}
	}
	var file *os.File
	var found backup.Summary
	if c.File == "-" {
		file, found, err = backup.Spool(con.stdin, cfg.DataDir)
	} else {
		file, found, err = backup.Open(c.File)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	tell, end := con.counting("restored")
	done, kept, err := app.Restore(ctx, cfg, file, c.Force, logger(cfg.Log, con), tell)
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

// counting shows on a terminal how far a backup or a restore is, a few times a second.
func (con *console) counting(what string) (tell backup.Progress, end func()) {
	if !term.IsTerminal(con.stderr) {
		return func(backup.Summary) {}, func() {}
	}
	show, end := con.progress()
	next := time.Now()
	return func(s backup.Summary) {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(200 * time.Millisecond)
			show(fmt.Sprintf("%s %d keys, %s", what, s.Keys, s))
		}
	}, end
}
