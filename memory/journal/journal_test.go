package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
)

// reopen opens dir and returns what it replays. The journal is closed again when the test ends.
func reopen(t testing.TB, dir string) (*Journal, Recovered, []string) {
	t.Helper()
	var got []string
	j, rec, err := Open(dir, Options{}, collect(&got))
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j, rec, got
}

func collect(into *[]string) func([]byte) error {
	return func(payload []byte) error {
		*into = append(*into, string(payload))
		return nil
	}
}

func discard([]byte) error { return nil }

// written makes a closed journal that holds records.
func written(t testing.TB, records ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	j, _, err := Open(dir, Options{}, discard)
	require.NoError(t, err)
	for _, r := range records {
		require.NoError(t, j.Append([]byte(r)))
	}
	require.NoError(t, j.Close())
	return dir
}

func TestRecordsComeBackInOrder(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	dir := written(t, "one", big, "three")
	j, rec, got := reopen(t, dir)
	require.Equal(t, []string{"one", big, "three"}, got)
	require.Equal(t, Recovered{}, rec)

	require.NoError(t, j.Append([]byte("four")))
	var again []string
	require.NoError(t, j.Replay(collect(&again)))
	require.Equal(t, []string{"one", big, "three", "four"}, again)
	info, err := os.Stat(filepath.Join(dir, fileName))
	require.NoError(t, err)
	require.Equal(t, info.Size(), j.Size())
}

func TestReadBesideItsWriter(t *testing.T) {
	dir := written(t, "one")
	j, _, _ := reopen(t, dir)
	require.NoError(t, j.Append([]byte("two")))
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	require.NoError(t, err)
	for cut := len(magic); cut <= len(whole); cut++ { // at any moment of the write
		seen := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(seen, fileName), whole[:cut], 0o600))
		var got []string
		require.NoError(t, Read(seen, Options{}, collect(&got)))
		require.True(t, strings.HasPrefix("one two", strings.Join(got, " ")))
		require.Equal(t, cut == len(whole), len(got) == 2)
	}
	require.ErrorIs(t, Read(t.TempDir(), Options{}, discard), os.ErrNotExist)
	require.NoError(t, j.Append([]byte("three")), "the writer is not disturbed")
}

func TestTornAtEveryByteOfTheLastRecord(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join(written(t, "first", "second", "the last record"), fileName))
	require.NoError(t, err)
	last := len(whole) - headerSize - len("the last record")
	for cut := 0; cut < len(whole); cut++ {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, fileName), whole[:cut], 0o600))
		var got []string
		j, rec, err := Open(dir, Options{}, collect(&got))
		if cut < len(magic) {
			require.ErrorIs(t, err, ErrEmptied, "cut at byte %d", cut)
			continue
		}
		require.NoError(t, err, "cut at byte %d", cut)
		require.False(t, rec.Altered, "cut at byte %d", cut)
		if cut >= last {
			require.Equal(t, []string{"first", "second"}, got, "cut at byte %d", cut)
			require.Equal(t, int64(cut-last), rec.Dropped)
		}
		require.NoError(t, j.Append([]byte("after")))
		require.NoError(t, j.Close())
		_, rec, again := reopen(t, dir)
		require.Equal(t, append(got, "after"), again, "cut at byte %d", cut)
		require.Zero(t, rec.Dropped)
	}
}

func TestEveryFlippedBit(t *testing.T) {
	testtier.Slow(t)
	records := []string{"first", "second", "third"}
	whole, err := os.ReadFile(filepath.Join(written(t, records...), fileName))
	require.NoError(t, err)
	last := int64(len(whole) - headerSize - len("third"))
	for bit := range len(whole) * 8 {
		damaged := bytes.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		var got []string
		j, rec, err := Open(dir, Options{}, collect(&got))

		var corrupt *CorruptError
		switch at := int64(bit / 8); {
		case at == int64(len(magic))-1: // the version
			require.ErrorIs(t, err, ErrNotJournal)
		case at < last:
			require.ErrorAs(t, err, &corrupt, "byte %d", at)
			require.LessOrEqual(t, corrupt.Offset, at)
			require.Greater(t, corrupt.Next, corrupt.Offset)
			require.Contains(t, err.Error(), fmt.Sprintf("damaged at byte %d", corrupt.Offset))
			require.Contains(t, err.Error(), "mneme journal salvage "+filepath.Dir(path))
		default:
			require.NoError(t, err)
			require.Equal(t, records[:2], got)
			require.Equal(t, int64(len(whole))-last, rec.Dropped)
			require.True(t, rec.Altered, "byte %d", at)
			require.NoError(t, j.Close())
		}
		if err != nil { // a refused file is left as it was
			kept, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, damaged, kept)
		}
	}
}

func TestTailOfZeroesIsTorn(t *testing.T) {
	dir := written(t, "kept")
	f, err := os.OpenFile(filepath.Join(dir, fileName), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(make([]byte, 8192))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, rec, got := reopen(t, dir)
	require.Equal(t, []string{"kept"}, got)
	require.Equal(t, int64(8192), rec.Dropped)
}

func TestRecordSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	j, _, err := Open(dir, Options{MaxRecord: 8}, discard)
	require.NoError(t, err)
	require.ErrorIs(t, j.Append(nil), ErrRecordSize)
	require.ErrorIs(t, j.Append([]byte("123456789")), ErrRecordSize)
	require.NoError(t, j.Append([]byte("12345678")))
	require.NoError(t, j.Close())

	_, _, err = Open(dir, Options{MaxRecord: 4}, discard)
	require.ErrorIs(t, err, ErrRecordSize)
}

func TestSecondOpenerIsToldWho(t *testing.T) {
	dir := written(t, "x")
	j, _, _ := reopen(t, dir)
	_, _, err := Open(dir, Options{}, discard)
	var inUse *InUseError
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, os.Getpid(), inUse.PID)
	require.Contains(t, err.Error(), fmt.Sprintf("data is in use by process %d", os.Getpid()))

	require.NoError(t, j.Close())
	_, _, got := reopen(t, dir)
	require.Equal(t, []string{"x"}, got)
}

func TestClosedJournal(t *testing.T) {
	j, _, _ := reopen(t, t.TempDir())
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	require.ErrorIs(t, j.Append([]byte("x")), ErrClosed)
	require.ErrorIs(t, j.Sync(), ErrClosed)
	require.ErrorIs(t, j.Replay(discard), ErrClosed)
	require.ErrorIs(t, j.Rewrite(func(func([]byte) error) error { return nil }), ErrClosed)
}

func TestReplayErrorStopsOpening(t *testing.T) {
	dir := written(t, "x")
	mine := errors.New("not now")
	_, _, err := Open(dir, Options{}, func([]byte) error { return mine })
	require.ErrorIs(t, err, mine)
	reopen(t, dir) // and the lock is free
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, _, err := Open(filepath.Join(file, "dir"), Options{}, discard)
	require.ErrorContains(t, err, "create the journal's directory")
}

func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	reopen(t, dir)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestAnySequenceOfAppendsRewritesAndReopens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		require.NoError(rt, err)
		want := []string{}
		open := func() *Journal {
			got := []string{}
			j, rec, err := Open(dir, Options{}, collect(&got))
			require.NoError(rt, err)
			require.Equal(rt, want, got)
			require.Zero(rt, rec.Dropped)
			return j
		}
		j := open()
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				record := string(rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(rt, "record"))
				require.NoError(rt, j.Append([]byte(record)))
				want = append(want, record)
			},
			"rewrite": func(rt *rapid.T) {
				kept := want[rapid.IntRange(0, len(want)).Draw(rt, "dropped"):]
				require.NoError(rt, j.Rewrite(emitAll(kept)))
				want = append([]string{}, kept...)
			},
			"sync": func(rt *rapid.T) { require.NoError(rt, j.Sync()) },
			"reopen": func(rt *rapid.T) {
				require.NoError(rt, j.Close())
				j = open()
			},
		})
		require.NoError(rt, j.Close())
	})
}

func emitAll(records []string) func(func([]byte) error) error {
	return func(emit func([]byte) error) error {
		for _, r := range records {
			if err := emit([]byte(r)); err != nil {
				return err
			}
		}
		return nil
	}
}

func FuzzReplay(f *testing.F) {
	one := appendFrame(nil, []byte("payload"))
	f.Add([]byte{})
	f.Add(one)
	f.Add(append(bytes.Clone(one), one[:10]...))
	f.Add(append([]byte("junk"), one...))
	f.Fuzz(func(t *testing.T, body []byte) {
		file := append([]byte(magic), body...)
		s := scanner{file: bytes.NewReader(file), path: "journal", size: int64(len(file)), maxRecord: 1 << 20}
		// Whatever is accepted has to be exactly what Append writes for those payloads.
		rebuilt := []byte(magic)
		end, err := s.each(func(payload []byte) error {
			rebuilt = appendFrame(rebuilt, payload)
			return nil
		})
		require.Equal(t, file[:end], rebuilt)
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			require.Equal(t, end, corrupt.Offset)
			_, ok := parseHeader(file[corrupt.Next:])
			require.True(t, ok)
		}
	})
}
