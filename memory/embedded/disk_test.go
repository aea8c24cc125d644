//go:build linux

package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// disk is a file system of size bytes.
func disk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Skipf("mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}

// fill leaves no byte free in dir; the file that it made is returned.
func fill(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	return path
}

// once is a client that tries nothing twice.
func once(t *testing.T, s *Server) redis.UniversalClient {
	t.Helper()
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"embedded"}, Dialer: s.Dial,
		MaintNotificationsConfig: noMaintenance, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// until waits for what the store does by itself.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 10*time.Millisecond, what)
}

func TestAFullDiskIsWaitedFor(t *testing.T) {
	testtier.Slow(t)
	ctx := context.Background()
	mount := disk(t, 1<<20)
	dir := filepath.Join(mount, "redis")
	s := open(t, Options{Dir: dir})
	c := once(t, s)
	require.NoError(t, c.Set(ctx, "before", "full", 0).Err())
	filler := fill(t, mount)

	written := 0
	var err error
	for ; err == nil; written++ { // a page of the file may have room left
		err = c.Set(ctx, fmt.Sprint("k", written), strings.Repeat("v", 100), 0).Err()
	}
	require.ErrorContains(t, err, "MISCONF mneme's embedded store takes no writes")
	require.ErrorContains(t, err, "no space left on device")
	require.ErrorContains(t, err, "goes on by itself")
	require.ErrorContains(t, c.Ping(ctx).Err(), "MISCONF")
	acknowledged := written - 1
	check := func(c redis.UniversalClient) {
		t.Helper()
		require.Equal(t, "full", c.Get(ctx, "before").Val())
		require.EqualValues(t, acknowledged+1, c.DBSize(ctx).Val(), "what was acknowledged, and nothing else")
	}
	check(c)
	require.ErrorContains(t, s.Compact(ctx), "no space left on device", "what was deleted may be in the file still")
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())

	s = open(t, Options{Dir: dir}) // reads, at least
	c = once(t, s)
	check(c)
	until(t, "a write is refused", func() bool {
		if err := c.Set(ctx, fmt.Sprint("k", acknowledged), "v", 0).Err(); err != nil {
			return true
		}
		acknowledged++
		return false
	})
	check(c)

	require.NoError(t, os.Remove(filler))
	until(t, "the store goes on", func() bool { return c.Ping(ctx).Err() == nil })
	require.NoError(t, c.Set(ctx, "after", "room again", 0).Err())
	acknowledged++
	check(c)
	require.NoError(t, s.Compact(ctx))
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	check(insider(t, open(t, Options{Dir: dir})))
}

func TestAFolderThatWasRemovedTakesNoWrites(t *testing.T) {
	testtier.Slow(t)
	ctx := context.Background()
	for name, remove := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
		"moved":   func(t *testing.T, dir string) { require.NoError(t, os.Rename(dir, dir+".away")) },
		"replaced": func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, open(t, Options{Dir: dir}).Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log syncBuffer
			dir := filepath.Join(t.TempDir(), "redis")
			s, err := Open(ctx, Options{Dir: dir, Log: zerolog.New(&log)})
			require.NoError(t, err)
			t.Cleanup(func() { s.Close() })
			c := once(t, s)
			require.NoError(t, c.Set(ctx, "k", "acknowledged", 0).Err())
			remove(t, dir)
			require.ErrorContains(t, c.Set(ctx, "k", "lost", 0).Err(), "MISCONF")
			require.ErrorContains(t, c.Ping(ctx).Err(), "was removed or replaced")
			require.Equal(t, "acknowledged", c.Get(ctx, "k").Val())
			require.Error(t, s.Compact(ctx))
			until(t, "the log says so", func() bool { return strings.Contains(log.String(), "removed or replaced") })
			if name == "replaced" {
				other := insider(t, open(t, Options{Dir: dir}))
				require.Zero(t, other.DBSize(ctx).Val(), "nothing was written into the other store's file")
			}
			if name == "moved" {
				require.NoError(t, os.Rename(dir+".away", dir))
				until(t, "the store goes on", func() bool { return c.Set(ctx, "k", "back", 0).Err() == nil })
				require.NoError(t, c.Close())
				require.NoError(t, s.Close())
				require.Equal(t, "back", insider(t, open(t, Options{Dir: dir})).Get(ctx, "k").Val())
			}
		})
	}
}

// A quiet store notices that its folder is gone before any write.
func TestARemovedFolderIsNoticedWithoutAWrite(t *testing.T) {
	testtier.Slow(t)
	dir := filepath.Join(t.TempDir(), "redis")
	s := open(t, Options{Dir: dir})
	c := once(t, s)
	require.NoError(t, os.RemoveAll(dir))
	until(t, "PING tells", func() bool { return c.Ping(context.Background()).Err() != nil })
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// filesWith are the files below dir that hold text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if os.IsNotExist(err) { // of a rewrite that has ended
			return nil
		}
		if bytes.Contains(raw, []byte(text)) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

func TestWhatWasDeletedIsInNoFileAfterACompaction(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open(t, Options{Dir: dir})
	c := insider(t, s)
	for i := range 20 {
		require.NoError(t, c.Set(ctx, fmt.Sprint("chat", i), fmt.Sprintf("secret<%d>", i), 0).Err())
	}
	require.NotEmpty(t, filesWith(t, dir, "secret<7>"))
	var all sync.WaitGroup
	for i := range 19 {
		all.Go(func() { // many at a time share what they can
			if err := c.Del(ctx, fmt.Sprint("chat", i)).Err(); err != nil {
				t.Error(err)
			}
			if err := s.Compact(ctx); err != nil {
				t.Error(err)
			}
			if found := filesWith(t, dir, fmt.Sprintf("secret<%d>", i)); len(found) > 0 {
				t.Errorf("secret %d is in %v", i, found)
			}
		})
	}
	all.Wait()
	require.Empty(t, filesWith(t, dir, "secret<7>"))
	require.NotEmpty(t, filesWith(t, dir, "secret<19>"))
	require.NoError(t, c.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Compact(ctx), errClosed)
	require.Equal(t, "secret<19>", insider(t, open(t, Options{Dir: dir})).Get(ctx, "chat19").Val())
}

// A quiet bot's journal holds little beside what lives, also below the size at which
// a busy one is compacted.
func TestAQuietStoreGivesRoomBack(t *testing.T) {
	testtier.Slow(t)
	ctx := context.Background()
	s := open(t, Options{Dir: t.TempDir()})
	c := insider(t, s)
	for range 100 {
		require.NoError(t, c.Set(ctx, "k", strings.Repeat("x", 1000), 0).Err())
	}
	require.Greater(t, s.journal.Size(), int64(100_000))
	until(t, "the journal is compacted", func() bool { return s.journal.Size() < 2000 })
	require.Equal(t, strings.Repeat("x", 1000), c.Get(ctx, "k").Val())
}
