//go:build linux

package spool

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory/journal"
)

// A folder that is removed must not swallow what is acknowledged: the next Add fails, and
// the spool goes on in a new folder.
func TestARemovedFolderIsNoticed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "spool")
	s, err := Open(dir, Options{}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	require.NoError(t, s.Add(entry(alice, 1, 1)))
	require.NoError(t, s.Check())
	require.NoError(t, os.RemoveAll(filepath.Dir(dir)))
	require.ErrorIs(t, s.Add(entry(alice, 1, 2)), journal.ErrRemoved)
	require.NoError(t, s.Adopt())
	require.NoError(t, s.Add(entry(alice, 1, 3)), "in a new folder")
	require.NoError(t, os.RemoveAll(filepath.Dir(dir)))
	require.NoError(t, s.Check(), "noticed and mended before anybody writes")
	require.NoError(t, s.Add(entry(alice, 1, 4)))
	require.NoError(t, s.Close())

	s, err = Open(dir, Options{}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	require.Equal(t, 1, s.Pending(alice), "what was acknowledged after the removal")
}

func TestAFullDiskIsWaitedFor(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("none", mount, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a small file system takes root: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
	filler := filepath.Join(mount, "filler")
	f, err := os.Create(filler)
	require.NoError(t, err)
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())

	dir := filepath.Join(mount, "spool")
	s, err := Open(dir, Options{}, zerolog.Nop())
	require.NoError(t, err, "a full disk is no reason not to start")
	t.Cleanup(func() { s.Close() })
	require.ErrorIs(t, s.Add(entry(alice, 1, 1)), syscall.ENOSPC)
	require.ErrorIs(t, s.Check(), syscall.ENOSPC)
	require.NoError(t, os.Remove(filler))
	require.NoError(t, s.Check())
	require.NoError(t, s.Add(entry(alice, 1, 2)))
	require.NoError(t, s.Close())
	s, err = Open(dir, Options{}, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	require.Equal(t, 1, s.Pending(alice))
}
