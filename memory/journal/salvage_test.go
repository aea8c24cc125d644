package journal

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// damaged is a journal with records, and what a change makes of its bytes.
func damaged(t testing.TB, records []string, change func(raw []byte) []byte) (dir string, before []byte) {
	t.Helper()
	dir = written(t, records...)
	path := filepath.Join(dir, fileName)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(slices.Clone(before)), 0o600))
	return dir, before
}

func TestSalvageKeepsBothSidesOfTheDamage(t *testing.T) {
	dir, _ := damaged(t, []string{"one", "two", "three", "four"}, func(raw []byte) []byte {
		raw[bytes.Index(raw, []byte("two"))] ^= 1
		return raw
	})
	path := filepath.Join(dir, fileName)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	_, _, err = Open(dir, Options{}, discard)
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, int64(8+12+3), corrupt.Offset)

	found, err := Salvage(dir, Options{})
	require.NoError(t, err)
	require.Equal(t, Salvaged{Records: 3, Bytes: 12, Damaged: []Span{{23, 38}}, Backup: found.Backup}, found)
	kept, err := os.ReadFile(found.Backup)
	require.NoError(t, err)
	require.Equal(t, raw, kept, "the damaged file, unaltered")
	j, rec, got := reopen(t, dir)
	require.Equal(t, []string{"one", "three", "four"}, got)
	require.Zero(t, rec.Dropped)
	require.NoError(t, j.Close())

	again, err := Salvage(dir, Options{})
	require.NoError(t, err)
	require.Equal(t, Salvaged{Records: 3, Bytes: 12}, again, "a sound journal stays as it is")
}

func TestADamagedStartIsSaidAndSalvaged(t *testing.T) {
	dir, _ := damaged(t, []string{"one", "two"}, func(raw []byte) []byte { raw[2] ^= 4; return raw })
	_, _, err := Open(dir, Options{}, discard)
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Zero(t, corrupt.Offset)
	require.ErrorAs(t, Read(dir, Options{}, discard), &corrupt)
	found, err := Salvage(dir, Options{})
	require.NoError(t, err)
	require.Equal(t, []Span{{0, 8}}, found.Damaged)
	_, _, got := reopen(t, dir)
	require.Equal(t, []string{"one", "two"}, got)
}

func TestSalvageRefuses(t *testing.T) {
	dir := written(t, "one")
	j, _, err := Open(dir, Options{}, discard)
	require.NoError(t, err)
	var inUse *InUseError
	_, err = Salvage(dir, Options{})
	require.ErrorAs(t, err, &inUse)
	require.Equal(t, os.Getpid(), inUse.PID)
	require.NoError(t, j.Close())

	empty := t.TempDir()
	_, err = Salvage(empty, Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	left, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, os.WriteFile(filepath.Join(empty, fileName), []byte("a diary of mine, not a journal"), 0o600))
	_, err = Salvage(empty, Options{})
	require.ErrorIs(t, err, ErrNotJournal)
	raw, err := os.ReadFile(filepath.Join(empty, fileName))
	require.NoError(t, err)
	require.Equal(t, "a diary of mine, not a journal", string(raw))
}

func TestASalvageThatFailsLeavesTheJournalAsItWas(t *testing.T) {
	for _, bad := range []step{stepCreate, stepFill, stepSyncNew, stepRename} {
		t.Run(string(bad), func(t *testing.T) {
			dir, _ := damaged(t, []string{"one", "two", "three"}, func(raw []byte) []byte { raw[30] ^= 1; return raw })
			before, err := os.ReadFile(filepath.Join(dir, fileName))
			require.NoError(t, err)
			_, err = Salvage(dir, failing(bad))
			require.ErrorIs(t, err, errDisk)
			after, err := os.ReadFile(filepath.Join(dir, fileName))
			require.NoError(t, err)
			require.Equal(t, before, after)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, e := range entries {
				require.NotContains(t, e.Name(), "damaged-")
				require.NotEqual(t, newName, e.Name())
			}
			found, err := Salvage(dir, Options{})
			require.NoError(t, err)
			require.Equal(t, 2, found.Records)
		})
	}
}

// A payload may hold what looks like records: those of a damaged one must not be taken
// for such.
func TestSalvageInventsNothingOutOfAPayload(t *testing.T) {
	inner := string(appendFrame(appendFrame(nil, []byte("invented")), []byte("too"))) + "and so on"
	dir, _ := damaged(t, []string{"one", "begins: " + inner, "three"}, func(raw []byte) []byte {
		raw[bytes.Index(raw, []byte("begins"))] ^= 1
		return raw
	})
	_, err := Salvage(dir, Options{})
	require.NoError(t, err)
	_, _, got := reopen(t, dir)
	require.Equal(t, []string{"one", "three"}, got)
}

// place is a record's frame in the file.
type place struct {
	from, to int
	payload  string
}

// wreck damages raw at random, in place or, once, by taking bytes out or putting some
// in, and gives what it made and the ranges of the original that it touched.
func wreck(rnd *rand.Rand, raw []byte) (out []byte, touched [][2]int) {
	kinds := 5
	for range 1 + rnd.IntN(3) {
		at := rnd.IntN(len(raw))
		n := min(1+rnd.IntN(40), len(raw)-at)
		switch rnd.IntN(kinds) {
		case 0:
			raw[at] ^= 1 << rnd.IntN(8)
			touched = append(touched, [2]int{at, at + 1})
		case 1:
			clear(raw[at : at+n])
			touched = append(touched, [2]int{at, at + n})
		case 2:
			for i := range n {
				raw[at+i] = byte(rnd.Uint32())
			}
			touched = append(touched, [2]int{at, at + n})
		case 3:
			return slices.Delete(raw, at, at+n), append(touched, [2]int{at, at + n})
		case 4:
			extra := make([]byte, n)
			for i := range extra {
				extra[i] = byte(rnd.Uint32())
			}
			return slices.Insert(raw, at, extra...), append(touched, [2]int{at - 1, at + 1})
		}
	}
	return raw, touched
}

func checkSalvage(t testing.TB, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	raw := []byte(magic)
	var places []place
	for i := range 1 + rnd.IntN(12) {
		size := 1 + rnd.IntN(60)
		if rnd.IntN(3) == 0 {
			size = 20 // some of one length
		}
		p := fmt.Sprintf("%d:", i) + strings.Repeat(string(rune('a'+i)), size)
		places = append(places, place{len(raw), len(raw) + headerSize + len(p), p})
		raw = appendFrame(raw, []byte(p))
	}
	raw, touched := wreck(rnd, raw)
	s := scanner{file: bytes.NewReader(raw), path: fileName, size: int64(len(raw)), maxRecord: defaultMaxRecord}
	var got []string
	found, err := s.salvage(collect(&got))
	require.NoError(t, err, "seed %d", seed)
	require.Equal(t, found.Records, len(got), "seed %d", seed)
	// What is kept is a part of what was written, in its order: nothing is invented.
	rest := places
	for _, g := range got {
		i := slices.IndexFunc(rest, func(p place) bool { return p.payload == g })
		require.GreaterOrEqual(t, i, 0, "seed %d: %q was never written, or not here", seed, g)
		rest = rest[i+1:]
	}
	for _, p := range places {
		hit := slices.ContainsFunc(touched, func(r [2]int) bool { return r[0] < p.to && r[1] > p.from })
		if !hit {
			require.Contains(t, got, p.payload, "seed %d: touched %v", seed, touched)
		}
	}
	// What is lost and what is kept make up the file.
	lost := int64(0)
	for _, l := range found.Damaged {
		lost += l.End - l.Start
	}
	whole := int64(min(len(magic), len(raw)))
	if len(found.Damaged) > 0 && found.Damaged[0].Start == 0 {
		whole = 0
	}
	require.Equal(t, int64(len(raw)), whole+lost+found.Bytes+headerSize*int64(found.Records), "seed %d", seed)
}

func TestSalvageLosesNoSoundRecordAndInventsNone(t *testing.T) {
	testtier.Slow(t)
	for seed := range 10_000 { // FuzzSalvage takes more
		checkSalvage(t, uint64(seed))
	}
}

func FuzzSalvage(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkSalvage(t, seed) })
}
