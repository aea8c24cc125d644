package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/memory/journal"
)

func TestJournalSalvage(t *testing.T) {
	data := t.TempDir()
	dir := filepath.Join(data, "redis")
	j, _, err := journal.Open(dir, journal.Options{}, func([]byte) error { return nil })
	require.NoError(t, err)
	for _, r := range []string{"before", "damaged", "behind"} {
		require.NoError(t, j.Append([]byte(r)))
	}
	used := mneme(t, "", "journal", "salvage", dir)
	require.Equal(t, 1, used.code)
	require.Contains(t, used.stderr, "data is in use by process")
	require.Contains(t, used.stderr, "stop it first")
	require.NoError(t, j.Close())

	sound := mneme(t, "", "journal", "salvage", dir)
	require.Equal(t, result{0, filepath.Join(dir, "journal") + " is sound: 3 records; nothing was changed.\n", ""}, sound)
	require.Equal(t, result{1, "", "mneme: there is no journal in " + data + "; the embedded store's is in " + dir + "\n"},
		mneme(t, "", "journal", "salvage", data))

	path := filepath.Join(dir, "journal")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(raw, []byte("damaged"), []byte("DAMAGED"), 1), 0o600))
	_, _, err = journal.Open(dir, journal.Options{}, func([]byte) error { return nil })
	require.ErrorContains(t, err, "damaged at byte 26")
	require.ErrorContains(t, err, "mneme journal salvage "+dir)

	mended := mneme(t, "", "journal", "salvage", dir)
	require.Zero(t, mended.code, mended.stderr)
	require.Contains(t, mended.stdout,
		"lost: bytes 26 to 44 (19)\nkept: 2 records, 12 bytes; lost: 19 bytes in 1 place.\nThe damaged file is "+path+
			".damaged-")
	var got []string
	j, _, err = journal.Open(dir, journal.Options{}, func(p []byte) error { got = append(got, string(p)); return nil })
	require.NoError(t, err)
	require.NoError(t, j.Close())
	require.Equal(t, []string{"before", "behind"}, got)

	help := mneme(t, "", "journal", "salvage", "--help")
	require.Zero(t, help.code)
	require.Contains(t, strings.Join(strings.Fields(help.stdout), " "), "keeps the damaged file beside it")
}
