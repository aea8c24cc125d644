package spool

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/journal"
)

// leave makes a spool directory in which a dead process left entries, and names its folder.
func leave(t *testing.T, entries ...Entry) (dir, folder string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir)
	add(t, s, entries...)
	require.NoError(t, s.Close())
	return dir, filepath.Join(dir, folders(t, dir)[0])
}

// TestCrashWhileFoldersChangeHands kills at every state of the disk that the life of an adopted folder goes through,
// and looks at what the next process finds.
func TestCrashWhileFoldersChangeHands(t *testing.T) {
	testtier.Slow(t)
	left := []Entry{entry(alice, 1, 1), entry(alice, 1, 2), entry(bob, 1, 3)}
	more := entry(alice, 1, 4)
	tests := map[string]struct {
		meanwhile func(t *testing.T, s *Spool)
		alice     []Entry
		bob       []Entry
	}{
		"just adopted": {
			meanwhile: func(*testing.T, *Spool) {},
			alice:     left[:2], bob: left[2:],
		},
		"both folders hold entries of one history": {
			meanwhile: func(t *testing.T, s *Spool) { add(t, s, more) },
			alice:     []Entry{left[0], left[1], more}, bob: left[2:],
		},
		"one history drained from both": {
			meanwhile: func(t *testing.T, s *Spool) { add(t, s, more); taken(t, s, alice) },
			bob:       left[2:],
		},
		"half a run drained": {
			meanwhile: func(t *testing.T, s *Spool) {
				require.Error(t, s.Drain(t.Context(), alice, func(context.Context, []Entry) (int, error) {
					return 1, os.ErrDeadlineExceeded
				}))
			},
			alice: left[1:2], bob: left[2:],
		},
		"the adopted folder drained and deleted": {
			meanwhile: func(t *testing.T, s *Spool) { taken(t, s, alice); taken(t, s, bob); add(t, s, more) },
			alice:     []Entry{more},
		},
		"applied, not yet removed": {
			meanwhile: func(t *testing.T, s *Spool) {
				// What apply was given is on the disk until apply has returned; the copy is taken in between.
				require.NoError(t, s.Drain(t.Context(), bob, func(context.Context, []Entry) (int, error) {
					after := open(t, crashed(t, s.dir))
					require.Equal(t, left[2:], taken(t, after, bob))
					return 1, nil
				}))
			},
			alice: left[:2],
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, _ := leave(t, left...)
			s := open(t, dir)
			test.meanwhile(t, s)
			after := open(t, crashed(t, dir))
			require.Equal(t, test.alice, taken(t, after, alice))
			require.Equal(t, test.bob, taken(t, after, bob))
		})
	}
}

func TestLeftoversOfACrash(t *testing.T) {
	left := []Entry{entry(alice, 1, 1), entry(alice, 1, 2)}
	tests := map[string]struct {
		leave func(t *testing.T, dir, folder string)
		want  []Entry
	}{
		"renamed to be deleted: never read": {
			leave: func(t *testing.T, _, folder string) { require.NoError(t, os.Rename(folder, folder+deletedSuffix)) },
		},
		"deleted in part": {
			leave: func(t *testing.T, _, folder string) {
				require.NoError(t, os.Rename(folder, folder+deletedSuffix))
				require.NoError(t, os.Remove(filepath.Join(folder+deletedSuffix, "journal")))
			},
		},
		"a folder without its lock file": {
			leave: func(t *testing.T, _, folder string) { require.NoError(t, os.Remove(filepath.Join(folder, "lock"))) },
			want:  left,
		},
		"a compaction cut short": {
			leave: func(t *testing.T, _, folder string) {
				require.NoError(t, os.WriteFile(filepath.Join(folder, "journal.new"), []byte("mnemejl1 half"), 0o600))
			},
			want: left,
		},
		"a torn record": {
			leave: func(t *testing.T, _, folder string) {
				path := filepath.Join(folder, "journal")
				whole, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, whole[:len(whole)-3], 0o600))
			},
			want: left[:1],
		},
		"a folder in which nothing was begun": {
			leave: func(t *testing.T, dir, _ string) {
				require.NoError(t, os.Mkdir(filepath.Join(dir, newFolderName()), 0o700))
			},
			want: left,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, folder := leave(t, left...)
			test.leave(t, dir, folder)
			s := open(t, dir)
			require.Equal(t, test.want, taken(t, s, alice))
			require.NoDirExists(t, folder)
			require.NoDirExists(t, folder+deletedSuffix)
		})
	}
}

func TestALivingSpoolAdoptsWhoDiesBesideIt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	add(t, s, entry(alice, 2, 1))
	other, err := Open(dir, Options{}, zerolog.Nop())
	require.NoError(t, err)
	add(t, other, entry(alice, 1, 1), entry(runs, 1, 1), entry(runs, 1, 2))
	require.NoError(t, s.Adopt())
	require.Zero(t, s.Pending(runs), "the other one lives")
	require.NoError(t, other.Close())
	require.NoError(t, s.Adopt())
	require.NoError(t, s.Adopt())
	require.Equal(t, []Entry{entry(runs, 1, 1), entry(runs, 1, 2)}, taken(t, s, runs))
	require.Equal(t, []Entry{entry(alice, 1, 1), entry(alice, 2, 1)}, taken(t, s, alice))
	require.Len(t, folders(t, dir), 1)

	_, folder := leave(t, entry(bob, 1, 1))
	require.NoError(t, s.Close())
	s.dir = filepath.Dir(folder)
	require.NoError(t, s.Adopt())
	require.Equal(t, []Entry{entry(bob, 1, 1)}, taken(t, open(t, s.dir), bob), "a closed spool leaves it for the next")
}

func TestWhatLivesBesideIsReadAndStays(t *testing.T) {
	dir := t.TempDir()
	mine, other := open(t, dir), open(t, dir)
	add(t, mine, entry(alice, 1, 9))
	add(t, other, entry(bob, 1, 1), entry(alice, 2, 3), entry(alice, 1, 2), entry(runs, 1, 1), entry(runs, 1, 2))
	require.Error(t, other.Drain(t.Context(), runs, func(context.Context, []Entry) (int, error) {
		return 1, os.ErrDeadlineExceeded
	}),
		"drained in part")
	for range 2 {
		found, err := mine.ReadOthers(memory.MustChat("alice"))
		require.NoError(t, err)
		require.Equal(t, []Entry{entry(runs, 1, 2), entry(alice, 1, 2), entry(alice, 2, 3)}, found)
	}
	require.Equal(t, 2, other.Pending(alice))
	require.Equal(t, 1, mine.Pending(alice))
	nothing, err := other.ReadOthers(memory.MustChat("bob"))
	require.NoError(t, err)
	require.Empty(t, nothing)
}

func TestManyGenerationsOfOneHistoryStayInOrder(t *testing.T) {
	dir := t.TempDir()
	var want []Entry
	for generation := range int64(5) {
		s := open(t, dir)
		require.Len(t, folders(t, dir), int(generation)+1)
		for seq := range int64(3) {
			e := entry(alice, 1, 3*generation+seq)
			add(t, s, e)
			want = append(want, e)
		}
		require.NoError(t, s.Close())
	}
	s := open(t, dir)
	require.Equal(t, want, taken(t, s, alice))
	require.Len(t, folders(t, dir), 1)
}

func TestAFolderThatCannotBeReadIsReportedAndKept(t *testing.T) {
	newer := func(t *testing.T, folder string) {
		j, _, err := journal.Open(folder, journal.Options{}, func([]byte) error { return nil })
		require.NoError(t, err)
		require.NoError(t, j.Append([]byte(`{"v":2,"at":1}`)))
		require.NoError(t, j.Close())
	}
	damaged := func(t *testing.T, folder string) {
		path := filepath.Join(folder, "journal")
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		b[30] ^= 1 // inside the first record, sound ones follow
		require.NoError(t, os.WriteFile(path, b, 0o600))
	}
	for name, spoil := range map[string]func(*testing.T, string){"newer version": newer, "damaged": damaged} {
		t.Run(name, func(t *testing.T) {
			dir, folder := leave(t, entry(alice, 1, 1), entry(alice, 1, 2))
			spoil(t, folder)
			before := texts(t, folder)
			var log bytes.Buffer
			s, err := Open(dir, Options{}, zerolog.New(&log))
			require.NoError(t, err)
			require.Contains(t, log.String(), folder)
			require.Empty(t, s.Queues())
			add(t, s, entry(bob, 1, 1))
			require.NoError(t, s.Close())
			require.Equal(t, before, texts(t, folder))
		})
	}
}

func TestFoldersOfOthersAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	for _, other := range []string{"lost+found", "backup", "notes.gone"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, other), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, other, "journal"), []byte("mine"), 0o600))
	}
	before := texts(t, dir)
	s := open(t, dir)
	require.NoError(t, s.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, s.Name()+dead)))
	require.Equal(t, before, texts(t, dir))
}

func TestOpenWhereNoFolderCanBe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err := Open(path, Options{}, zerolog.Nop())
	require.ErrorContains(t, err, "open the spool in "+path)
}

func TestTwoSpoolsOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	one, two := open(t, dir), open(t, dir)
	add(t, one, entry(alice, 1, 1))
	add(t, two, entry(bob, 1, 1))
	three := open(t, dir)
	require.Empty(t, three.Queues())
	require.NoError(t, one.Close())
	four := open(t, dir)
	require.Equal(t, []Queue{alice}, four.Queues())
	require.Equal(t, []Entry{entry(alice, 1, 1)}, taken(t, four, alice))
	require.Equal(t, []Entry{entry(bob, 1, 1)}, taken(t, two, bob))
}
