package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/journal"
)

var (
	alice = History(memory.ChatKey(memory.MustChat("alice")))
	runs  = Events(memory.MustChat("alice"))
	bob   = Events(memory.MustChat("bob"))
	notes = History(memory.SubagentKey("analytic", memory.MustChat("alice:1")))
)

func open(t *testing.T, dir string) *Spool {
	t.Helper()
	return openWith(t, dir, Options{})
}

func openWith(t *testing.T, dir string, opts Options) *Spool {
	t.Helper()
	s, err := Open(dir, opts, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// entry is event seq of a run named after its turn; the message says which one it is.
func entry(key Queue, turn, seq int64) Entry {
	run := fmt.Sprintf("run%d", turn)
	return Entry{
		Queue: key, Mark: memory.Mark{Run: run, Seq: seq, Turn: turn},
		Bytes: memory.Message{Role: memory.RoleUser, Content: name(turn, seq)}.Encode(),
	}
}

func name(turn, seq int64) string { return fmt.Sprintf("message %d.%d <&>", turn, seq) }

func add(t *testing.T, s *Spool, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		require.NoError(t, s.Add(e))
	}
}

// taken drains key and returns all that was handed out.
func taken(t *testing.T, s *Spool, key Queue) []Entry {
	t.Helper()
	var got []Entry
	require.NoError(t, s.Drain(t.Context(), key, takeInto(&got)))
	require.Zero(t, s.Pending(key))
	return got
}

func takeInto(got *[]Entry) Apply {
	return func(_ context.Context, entries []Entry) (int, error) {
		*got = append(*got, entries...)
		return len(entries), nil
	}
}

// texts says what the files under dir hold, names included.
func texts(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.WriteString(path + "\n" + string(b))
		return err
	}))
	return all.String()
}

// crashed is a copy of dir as a process killed now would leave it.
func crashed(t *testing.T, dir string) string {
	t.Helper()
	left := t.TempDir()
	require.NoError(t, os.CopyFS(left, os.DirFS(dir)))
	return left
}

func folders(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, f := range found {
		if !strings.HasSuffix(f.Name(), dead) {
			names = append(names, f.Name())
		}
	}
	return names
}

func TestEntriesAreFoundAgainUnaltered(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	odd := entry(notes, 1, 2)
	odd.Bytes = []byte("{\"role\": \"user\",\n \"content\":\"<b>\u2028 \xff\"}\n")
	add(t, s, entry(notes, 1, 1), odd, entry(alice, 2, 1))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	s = open(t, dir)
	require.Equal(t, []Queue{notes, alice}, s.Queues())
	require.Equal(t, 2, s.Pending(notes))
	require.Zero(t, s.Pending(bob))
	require.Positive(t, s.Bytes())
	require.Equal(t, []Entry{entry(notes, 1, 1), odd}, taken(t, s, notes))
	require.Equal(t, []Queue{alice}, s.Queues())
	require.Equal(t, []Entry{entry(alice, 2, 1)}, taken(t, s, alice))
	require.Empty(t, s.Queues())
	require.Zero(t, s.Bytes())
	require.NoError(t, s.Close())
	require.Empty(t, folders(t, dir), "an empty spool leaves nothing behind")
}

func TestEntriesAreInOrderOfTurnThenArrivalAndHandedOutByRun(t *testing.T) {
	s := open(t, t.TempDir())
	late := entry(alice, 1, 5) // of a paused process after its turn
	add(t, s, entry(bob, 3, 1), entry(alice, 1, 4), entry(alice, 2, 1), late, entry(alice, 2, 2))
	require.Equal(t, []Queue{alice, bob}, s.Queues())
	var runs [][]Entry
	require.NoError(t, s.Drain(t.Context(), alice, func(_ context.Context, entries []Entry) (int, error) {
		runs = append(runs, entries)
		return len(entries), nil
	}))
	require.Equal(t, [][]Entry{
		{entry(alice, 1, 4), late},
		{entry(alice, 2, 1), entry(alice, 2, 2)},
	}, runs)
}

func TestDrainStopsAtAnErrorAndResumes(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	add(t, s, entry(alice, 1, 1), entry(alice, 1, 2), entry(alice, 1, 3), entry(alice, 2, 1))
	away := errors.New("Redis is away")
	calls := 0
	err := s.Drain(t.Context(), alice, func(context.Context, []Entry) (int, error) { calls++; return 2, away })
	require.ErrorIs(t, err, away)
	require.Equal(t, 1, calls)
	require.Equal(t, 2, s.Pending(alice))

	err = s.Drain(t.Context(), alice, func(context.Context, []Entry) (int, error) { return 0, nil })
	require.ErrorContains(t, err, "without a reason")
	err = s.Drain(t.Context(), alice, func(context.Context, []Entry) (int, error) { return 7, away })
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "7 of 1")
	require.Equal(t, 1, s.Pending(alice))

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Drain(gone, alice, takeInto(new([]Entry))), context.Canceled)
	require.Equal(t, 1, s.Pending(alice))

	after := open(t, crashed(t, dir))
	require.Equal(t, []Entry{entry(alice, 2, 1)}, taken(t, after, alice))
	require.Equal(t, []Entry{entry(alice, 2, 1)}, taken(t, s, alice))
}

func TestDrainSeesWhatIsAddedMeanwhile(t *testing.T) {
	s := open(t, t.TempDir())
	add(t, s, entry(alice, 1, 1))
	var got []Entry
	require.NoError(t, s.Drain(t.Context(), alice, func(_ context.Context, entries []Entry) (int, error) {
		got = append(got, entries...)
		if len(got) < 4 {
			add(t, s, entry(alice, 1, int64(len(got)+1)))
		}
		require.Positive(t, s.Pending(alice), "until it is removed, later appends must queue behind it")
		return len(entries), nil
	}))
	require.Equal(t, []Entry{entry(alice, 1, 1), entry(alice, 1, 2), entry(alice, 1, 3), entry(alice, 1, 4)}, got)
}

func TestOneDrainPerHistoryAtATime(t *testing.T) {
	s := open(t, t.TempDir())
	add(t, s, entry(alice, 1, 1), entry(bob, 1, 1))
	require.NoError(t, s.Drain(t.Context(), alice, func(_ context.Context, entries []Entry) (int, error) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Drain(gone, alice, takeInto(new([]Entry))), context.Canceled)
		require.Len(t, taken(t, s, bob), 1, "another history is not held up")
		return len(entries), nil
	}))
	require.Empty(t, taken(t, s, alice))
}

// forget erases all of some histories.
func forget(s *Spool, keys ...memory.Key) error {
	erased := func(k memory.Key) int64 {
		if slices.Contains(keys, k) {
			return math.MaxInt64
		}
		return 0
	}
	return s.Forget(erased, func(e Entry) bool { return e.Mark.Turn < erased(e.Key) })
}

func TestForgetLeavesNoText(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	add(t, s, entry(alice, 1, 1), entry(bob, 1, 2))
	require.NoError(t, s.Close())
	s = open(t, dir) // now in an adopted folder and in one of its own
	add(t, s, entry(alice, 1, 3), entry(notes, 1, 4), entry(bob, 1, 5))
	require.Len(t, taken(t, s, notes), 1)
	require.Contains(t, texts(t, dir), "message 1.4", "drained and not yet compacted")

	require.NoError(t, forget(s, alice.Key, notes.Key))
	for _, text := range []string{"message 1.1", "message 1.3", "message 1.4", "alice"} {
		require.NotContains(t, texts(t, dir), text)
	}
	require.Equal(t, []Queue{bob}, s.Queues())
	require.Empty(t, taken(t, s, alice))
	require.NoError(t, forget(s, alice.Key), "it may be told twice")

	after := open(t, crashed(t, dir))
	require.Equal(t, []Queue{bob}, after.Queues())
	require.Equal(t, []Entry{entry(bob, 1, 2), entry(bob, 1, 5)}, taken(t, after, bob))

	require.NoError(t, forget(s, bob.Key))
	require.NotContains(t, texts(t, dir), "message")
	require.Len(t, folders(t, dir), 1, "the adopted folder is empty and deleted")
	require.Zero(t, s.Bytes())
}

func TestForgetDuringADrain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	add(t, s, entry(alice, 1, 1), entry(alice, 2, 1))
	calls := 0
	require.NoError(t, s.Drain(t.Context(), alice, func(_ context.Context, entries []Entry) (int, error) {
		calls++
		require.NoError(t, forget(s, alice.Key))
		require.NotContains(t, texts(t, dir), "message")
		return len(entries), nil
	}))
	require.Equal(t, 1, calls, "nothing more is handed out")
	require.Zero(t, s.Bytes())
}

func TestFullSpoolRefusesUntilDrained(t *testing.T) {
	s := openWith(t, t.TempDir(), Options{MaxBytes: 300})
	add(t, s, entry(alice, 1, 1))
	var refused error
	for seq := int64(2); refused == nil; seq++ {
		refused = s.Add(entry(alice, 1, seq))
	}
	require.ErrorIs(t, refused, ErrFull)
	require.LessOrEqual(t, s.Bytes(), int64(300))
	n := s.Pending(alice)
	require.Len(t, taken(t, s, alice), n)
	add(t, s, entry(alice, 2, 1))
}

func TestDrainedRoomIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	size := func() int64 { return int64(len(texts(t, dir))) }
	add(t, s)
	empty := size()
	big := entry(alice, 1, 1)
	big.Bytes = bytes.Repeat([]byte("x"), 3*compactFrom)
	kept := entry(bob, 1, 1)
	add(t, s, kept, big)
	require.Greater(t, size(), int64(3*compactFrom))
	require.Len(t, taken(t, s, alice), 1)
	require.Less(t, size(), int64(compactFrom), "mostly garbage")
	after := open(t, crashed(t, dir))
	require.Equal(t, []Entry{kept}, taken(t, after, bob))
	require.Len(t, taken(t, s, bob), 1)
	require.Equal(t, empty, size())
}

func TestEntryThatCouldNotBeSyncedIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	add(t, s, entry(alice, 1, 1))
	broken := fmt.Errorf("%w: %w", journal.ErrFailed, errors.New("the disk is on fire"))
	refused, err := s.append([]Entry{entry(alice, 1, 2)})
	require.NoError(t, err)
	require.ErrorIs(t, s.withdraw(refused, broken), broken)
	require.Equal(t, 1, s.Pending(alice))

	add(t, s, entry(alice, 1, 3))
	require.Len(t, folders(t, dir), 2, "nothing is added to a file that failed")
	drained, err := s.append([]Entry{entry(alice, 1, 4)})
	require.NoError(t, err)
	require.Equal(t, []Entry{entry(alice, 1, 1), entry(alice, 1, 3), entry(alice, 1, 4)}, taken(t, s, alice))
	require.NoError(t, s.withdraw(drained, broken), "it is in Redis by now")
	require.NoError(t, s.Close())
	require.Empty(t, folders(t, dir))
}

func TestEntriesOfOneAddAreKeptOrRefusedTogether(t *testing.T) {
	dir := t.TempDir()
	s := openWith(t, dir, Options{MaxBytes: 400})
	require.NoError(t, s.Add())
	require.NoError(t, s.Add(entry(runs, 1, 1), entry(runs, 1, 2)))
	require.ErrorIs(t, s.Add(entry(runs, 1, 3), entry(alice, 1, 3), entry(runs, 1, 4)), ErrFull)
	for _, s := range []*Spool{open(t, crashed(t, dir)), s} {
		require.Equal(t, []Entry{entry(runs, 1, 1), entry(runs, 1, 2)}, taken(t, s, runs))
		require.Empty(t, s.Queues())
	}
}

func TestAfterClose(t *testing.T) {
	s := open(t, t.TempDir())
	add(t, s, entry(alice, 1, 1))
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Add(entry(alice, 1, 2)), journal.ErrClosed)
	require.ErrorIs(t, forget(s, alice.Key), journal.ErrClosed)
	require.ErrorIs(t, s.Drain(t.Context(), alice, takeInto(new([]Entry))), journal.ErrClosed)
}
