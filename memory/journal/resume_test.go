package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A journal goes on in its file after a failed write once the disk works. After a failed
// sync it may lack anything on the disk, and is written anew.
func TestAFailedJournalResumes(t *testing.T) {
	for _, bad := range []step{stepWrite, stepSync} {
		t.Run(string(bad), func(t *testing.T) {
			dir := written(t, "acknowledged")
			j, _, err := Open(dir, failing(bad), discard)
			require.NoError(t, err)
			err = j.Append([]byte("unsure"))
			if err == nil {
				err = j.Sync()
			}
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, j.Check(), ErrFailed)
			live := emitAll([]string{"acknowledged"})
			before, err := os.Stat(j.path(fileName))
			require.NoError(t, err)
			if bad == stepWrite {
				require.ErrorIs(t, j.Resume(live), errDisk, "the disk does not work yet")
				require.ErrorIs(t, j.Append([]byte("refused")), ErrFailed)
			}
			j.opts.fault = nil
			require.NoError(t, j.Resume(live))
			require.NoError(t, j.Check())
			require.NoError(t, j.Append([]byte("after")))
			after, err := os.Stat(j.path(fileName))
			require.NoError(t, err)
			require.Equal(t, bad == stepWrite, os.SameFile(before, after))
			require.NoError(t, j.Resume(live), "of a sound journal it changes nothing")
			require.NoError(t, j.Close())
			require.ErrorIs(t, j.Resume(live), ErrClosed)

			_, rec, got := reopen(t, dir)
			require.Zero(t, rec.Dropped)
			require.Equal(t, []string{"acknowledged", "after"}, got)
		})
	}
}

func TestAResumeThatFailsToRewriteLeavesTheJournalFailed(t *testing.T) {
	dir := written(t, "acknowledged")
	j, _, err := Open(dir, failing(stepSync, stepFill), discard)
	require.NoError(t, err)
	require.NoError(t, j.Append([]byte("x")))
	require.ErrorIs(t, j.Sync(), ErrFailed)
	require.ErrorIs(t, j.Resume(emitAll([]string{"acknowledged", "x"})), errDisk)
	require.ErrorIs(t, j.Append([]byte("y")), ErrFailed)
	require.NoFileExists(t, filepath.Join(dir, newName))
	j.opts.fault = nil
	require.NoError(t, j.Resume(emitAll([]string{"acknowledged", "x"})))
	require.NoError(t, j.Close())
	_, _, got := reopen(t, dir)
	require.Equal(t, []string{"acknowledged", "x"}, got)
}

func TestAJournalWhoseFileIsGoneTakesNothing(t *testing.T) {
	dir := written(t, "acknowledged")
	j, _, err := Open(dir, Options{}, discard)
	require.NoError(t, err)
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.ErrorIs(t, j.Append([]byte("lost")), ErrRemoved)
	require.ErrorIs(t, j.Check(), ErrFailed)
	require.ErrorIs(t, j.Resume(emitAll(nil)), ErrRemoved)
	require.NoError(t, os.Rename(dir+".away", dir))
	require.NoError(t, j.Resume(emitAll(nil)))
	require.NoError(t, j.Append([]byte("kept")))
	require.NoError(t, j.Close())
	_, _, got := reopen(t, dir)
	require.Equal(t, []string{"acknowledged", "kept"}, got)
}
