package spool

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A living process is not taken for dead, nor one of which nothing is known; a dead
// one is, also by a third process, and after its folder is gone.
func TestADeathIsProven(t *testing.T) {
	dir := t.TempDir()
	a, b, c := open(t, dir), open(t, dir), open(t, dir)
	for _, living := range []*Spool{a, b} {
		require.False(t, b.Dead(living.Name()))
	}
	require.False(t, b.Dead("elsewhere-1-abcdefghijkl"))
	require.False(t, b.Dead("../"+a.Name()))
	require.False(t, b.Dead(""))
	add(t, a, entry(alice, 1, 1))
	name := a.Name()
	require.NoError(t, a.Close())
	require.True(t, b.Dead(name))
	require.True(t, c.Dead(name), "while another process has its folder")
	require.Len(t, taken(t, b, alice), 1)
	require.NoDirExists(t, filepath.Join(dir, name))
	require.True(t, c.Dead(name))
	require.True(t, b.Dead(name))
}

// One that ended with nothing left is known to be dead too; the proof does not stay
// for ever.
func TestTheProofOfADeathGoes(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	require.NoError(t, a.Close())
	require.True(t, b.Dead(a.Name()))
	proof := filepath.Join(dir, a.Name()+dead)
	require.NoError(t, b.Adopt())
	require.FileExists(t, proof)
	long := time.Now().Add(-2 * deadFor)
	require.NoError(t, os.Chtimes(proof, long, long))
	require.NoError(t, b.Adopt())
	require.NoFileExists(t, proof)
}
