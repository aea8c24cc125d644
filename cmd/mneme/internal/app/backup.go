package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/backup"
	"mneme/cmd/mneme/internal/config"
	"mneme/memory/embedded"
	"mneme/memory/journal"
)

// slowRead is how long a backup or a restore waits for one answer of a store: a
// value may have 128 MiB.
const slowRead = 2 * time.Minute

// embeddedDir is where the embedded store keeps its journal.
func embeddedDir(dataDir string) string { return filepath.Join(dataDir, "redis") }

// Backup saves the configured store to out. Services may run: the embedded store
// of a running process is read through its read-only port.
func Backup(ctx context.Context, cfg config.Config, out io.Writer, log zerolog.Logger,
	tell backup.Progress) (backup.Summary, error) {
	s := &stack{log: log}
	defer s.unwind()
	client, err := s.source(ctx, cfg, log)
	if err != nil {
		return backup.Summary{}, err
	}
	return backup.Save(ctx, client, out, tell)
}

// source opens the configured store to be read.
func (s *stack) source(ctx context.Context, cfg config.Config, log zerolog.Logger) (redis.UniversalClient, error) {
	if !cfg.Redis.Embedded() {
		return s.dial(cfg, nil)
	}
	dir := embeddedDir(cfg.DataDir)
	if _, err := os.Stat(filepath.Join(dir, "journal")); err != nil {
		return nil,
			fmt.Errorf("there is no store in %s: run this where mneme runs, or set data_dir (MNEME_DATA_DIR), or redis.url: %w",
				dir, err)
	}
	client, err := s.openEmbedded(ctx, cfg, dir, log)
	var running *journal.InUseError
	if !errors.As(err, &running) {
		return client, err
	}
	// A process has it open: it is read through that one's port, if it is that one's.
	if cfg.Redis.EmbeddedListen == "" {
		return nil, fmt.Errorf("%w, which has no port to read it through (redis.embedded_listen): stop it first", err)
	}
	if client, err = s.dial(cfg, func(o *redis.UniversalOptions) {
		o.Addrs = []string{cfg.Redis.EmbeddedListen}
	}); err != nil {
		return nil, err
	}
	info, err := client.InfoMap(ctx, "server").Result()
	switch {
	case err != nil:
		return nil, fmt.Errorf("process %d uses %s, and its store cannot be read on %s (redis.embedded_listen): %w",
			running.PID, dir, cfg.Redis.EmbeddedListen, err)
	case info["Server"]["process_id"] != strconv.Itoa(running.PID):
		return nil, fmt.Errorf("process %d uses %s, but another one listens on %s: set redis.embedded_listen as that "+
			"process has it, or stop it", running.PID, dir, cfg.Redis.EmbeddedListen)
	}
	return client, nil
}

// dial connects to a server.
func (s *stack) dial(cfg config.Config, change func(*redis.UniversalOptions)) (redis.UniversalClient, error) {
	o, err := RedisOptions(cfg.Redis)
	if err != nil {
		return nil, err
	}
	o.Protocol, o.ReadTimeout, o.WriteTimeout = 2, slowRead, slowRead
	if change != nil {
		change(o)
	}
	redis.SetLogger(redisLog{s.log})
	client := redis.NewUniversalClient(o)
	s.push("redis client", client.Close)
	return client, nil
}

// openEmbedded opens a folder of the embedded store, which no other process may use.
func (s *stack) openEmbedded(ctx context.Context, cfg config.Config, dir string,
	log zerolog.Logger) (redis.UniversalClient, error) {
	store, err := embedded.Open(ctx, embedded.Options{Dir: dir, Log: log})
	if err != nil {
		return nil, err
	}
	s.push("embedded store", store.Close)
	return s.dial(cfg, func(o *redis.UniversalOptions) { o.Addrs, o.Dialer = []string{"embedded"}, store.Dial })
}

// Restore puts a backup, which must be verified, into the configured store, which
// must hold nothing of mneme's unless replace is true, and which no service may
// use. It says where the store is that it replaced, if that was kept.
func Restore(ctx context.Context, cfg config.Config, in io.Reader, replace bool, log zerolog.Logger,
	tell backup.Progress) (done backup.Summary, oldPath string, err error) {
	s := &stack{log: log}
	defer s.unwind()
	if cfg.Redis.Embedded() {
		return s.restoreEmbedded(ctx, cfg, in, replace, log, tell)
	}
	client, err := s.dial(cfg, nil)
	if err != nil {
		return done, "", err
	}
	switch user, err := backup.InUse(ctx, client); {
	case err != nil:
		return done, "", err
	case user != "":
		return done, "", fmt.Errorf("this Redis is in use: %s; stop mneme's services first, they would write what they have "+
			"cached over what is restored", user)
	}
	if _, err := mayReplace(ctx, client, replace); err != nil {
		return done, "", err
	}
	if done, err = backup.Restore(ctx, client, in, tell); err != nil {
		err = fmt.Errorf("the restore did not get to its end, so that Redis holds a part of the backup; run it again with "+
			"--force: %w", err)
	}
	return done, "", err
}

// mayReplace refuses a store that holds something, unless it may be replaced.
func mayReplace(ctx context.Context, client redis.UniversalClient, replace bool) (holds bool, err error) {
	key, err := backup.Holds(ctx, client)
	if err != nil {
		return false, err
	}
	if key != "" && !replace {
		return true, fmt.Errorf("the store is not empty, it holds %s: restore into an empty one, or add --force to replace "+
			"everything of mneme's in it", key)
	}
	return key != "", nil
}

// restoreEmbedded restores into a new folder, which then takes the place of the old
// one: at any moment one of both is whole. What was there before is kept beside it,
// unless it was empty.
func (s *stack) restoreEmbedded(ctx context.Context, cfg config.Config, in io.Reader, replace bool, log zerolog.Logger,
	tell backup.Progress) (done backup.Summary, oldPath string, err error) {
	dir := embeddedDir(cfg.DataDir)
	present := &stack{log: log}
	defer present.unwind()
	old, err := present.openEmbedded(ctx, cfg, dir, log) // makes it if need be: its lock keeps services away
	if running := new(journal.InUseError); errors.As(err, &running) {
		return done, "", fmt.Errorf("%w; stop it before a restore", err)
	}
	if err != nil {
		return done, "", err
	}
	holds, err := mayReplace(ctx, old, replace)
	if err != nil {
		return done, "", err
	}
	fresh, err := os.MkdirTemp(cfg.DataDir, "redis.restoring-")
	if err != nil {
		return done, "", err
	}
	defer os.RemoveAll(fresh) // it is gone by then if all went well
	client, err := s.openEmbedded(ctx, cfg, fresh, log)
	if err == nil {
		done, err = backup.Restore(ctx, client, in, tell)
	}
	s.unwind()
	if err != nil {
		return done, "", fmt.Errorf("nothing was changed: %w", err)
	}
	oldPath = dir + ".before-" + time.Now().UTC().Format("20060102T150405.000Z")
	if err = os.Rename(dir, oldPath); err != nil {
		return done, "", err
	}
	if err = os.Rename(fresh, dir); err != nil {
		return done, "", errors.Join(err, os.Rename(oldPath, dir))
	}
	if err = journal.SyncDir(cfg.DataDir); err == nil && !holds {
		oldPath, err = "", os.RemoveAll(oldPath)
	}
	return done, oldPath, err
}
