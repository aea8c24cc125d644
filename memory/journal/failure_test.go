package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var errDisk = errors.New("the disk is on fire")

// failing returns options that fail each step named.
func failing(steps ...step) Options {
	return Options{fault: func(s step) error {
		for _, bad := range steps {
			if s == bad {
				return errDisk
			}
		}
		return nil
	}}
}

func TestFailedWriteEndsAppendsAndLosesNothing(t *testing.T) {
	for name, opts := range map[string]Options{
		"write":                    failing(stepWrite),
		"write, then the rollback": failing(stepWrite, stepTruncate),
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t, "acknowledged")
			j, _, err := Open(dir, opts, discard)
			require.NoError(t, err)
			err = j.Append([]byte("refused"))
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, err, errDisk)

			j.opts.fault = nil // the disk is well again; the journal stays closed for records
			require.ErrorIs(t, j.Append([]byte("too late")), ErrFailed)
			require.ErrorIs(t, j.Sync(), ErrFailed)
			require.ErrorIs(t, j.Rewrite(emitAll(nil)), ErrFailed)
			var got []string
			require.NoError(t, j.Replay(collect(&got)))
			require.Equal(t, []string{"acknowledged"}, got)
			require.NoError(t, j.Close())

			j, _, got = reopen(t, dir)
			require.Equal(t, []string{"acknowledged"}, got)
			require.NoError(t, j.Append([]byte("well again")))
		})
	}
}

func TestFailedSyncEndsAppends(t *testing.T) {
	dir := t.TempDir()
	j, _, err := Open(dir, failing(stepSync), discard)
	require.NoError(t, err)
	require.NoError(t, j.Append([]byte("x")))
	require.ErrorIs(t, j.Sync(), ErrFailed)
	require.ErrorIs(t, j.Append([]byte("y")), ErrFailed)
	require.NoError(t, j.Close())
}

func TestCloseReportsAFailedSync(t *testing.T) {
	j, _, err := Open(t.TempDir(), failing(stepSync), discard)
	require.NoError(t, err)
	require.NoError(t, j.Append([]byte("x")))
	require.ErrorIs(t, j.Close(), errDisk)
	require.NoError(t, j.Close())
}

func TestRewriteCrashedAtAnyStepLeavesOldOrNew(t *testing.T) {
	old := []string{"a", "b", "c"}
	// The middle record is larger than the write buffer, so that the new file is seen half written.
	fresh := []string{"abc", strings.Repeat("d", 100_000), "def"}
	dir := written(t, old...)
	copies := map[step]string{}
	// What is on the disk before each step is what a kill at that instant leaves.
	opts := Options{fault: func(s step) error {
		copies[s] = t.TempDir()
		return os.CopyFS(copies[s], os.DirFS(dir))
	}}
	j, _, err := Open(dir, opts, discard)
	require.NoError(t, err)
	require.NoError(t, j.Rewrite(emitAll(fresh)))
	j.opts.fault = nil
	require.NoError(t, j.Append([]byte("ghi")))
	require.NoError(t, j.Close())
	_, _, got := reopen(t, dir)
	require.Equal(t, append(fresh, "ghi"), got)

	want := map[step][]string{
		stepCreate: old, stepFill: old, stepSyncNew: old, stepRename: old, stepSyncDir: fresh,
	}
	require.Len(t, copies, len(want))
	for s, records := range want {
		_, rec, got := reopen(t, copies[s])
		require.Equal(t, records, got, "killed before %q", s)
		require.Zero(t, rec.Dropped)
		require.NoFileExists(t, filepath.Join(copies[s], newName))
	}
}

func TestFailedRewrite(t *testing.T) {
	for _, s := range []step{stepCreate, stepFill, stepSyncNew, stepRename} {
		t.Run("leaves the journal usable: "+string(s), func(t *testing.T) {
			dir := written(t, "old")
			j, _, err := Open(dir, failing(s), discard)
			require.NoError(t, err)
			err = j.Rewrite(emitAll([]string{"new"}))
			require.ErrorIs(t, err, errDisk)
			require.NotErrorIs(t, err, ErrFailed)
			require.NoFileExists(t, filepath.Join(dir, newName))
			require.NoError(t, j.Append([]byte("more")))
			require.NoError(t, j.Close())
			_, _, got := reopen(t, dir)
			require.Equal(t, []string{"old", "more"}, got)
		})
	}
	t.Run("fails the journal once renamed", func(t *testing.T) {
		dir := written(t, "old")
		j, _, err := Open(dir, failing(stepSyncDir), discard)
		require.NoError(t, err)
		require.ErrorIs(t, j.Rewrite(emitAll([]string{"new"})), ErrFailed)
		require.ErrorIs(t, j.Append([]byte("more")), ErrFailed)
		require.NoError(t, j.Close())
	})
	t.Run("by its source", func(t *testing.T) {
		j, _, _ := reopen(t, written(t, "old"))
		mine := errors.New("source")
		require.ErrorIs(t, j.Rewrite(func(emit func([]byte) error) error { return mine }), mine)
		require.ErrorIs(t, j.Rewrite(func(emit func([]byte) error) error { return emit(nil) }), ErrRecordSize)
		require.NoError(t, j.Append([]byte("more")))
	})
}

func TestSyncAndRewriteBesideAppends(t *testing.T) {
	dir := t.TempDir()
	j, _, _ := reopen(t, dir)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 50 {
				require.NoError(t, j.Append([]byte("x")))
			}
		})
	}
	for range 10 {
		require.NoError(t, j.Sync())
		require.NoError(t, j.Rewrite(emitAll([]string{"base"})))
	}
	writers.Wait()
	require.NoError(t, j.Close())
	_, rec, got := reopen(t, dir)
	require.Equal(t, "base", got[0])
	require.Zero(t, rec.Dropped)
}
