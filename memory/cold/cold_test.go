package cold_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/memory"
	"mneme/memory/cold"
)

// What a killed process left of an object goes with the next one of its name, or when the object is deleted. A folder
// that is not there, as of a disk that is not mounted, is not an empty one.
func TestAFolderKeepsNoDraftsAndMustBeThere(t *testing.T) {
	t.Parallel()
	ctx, dir := context.Background(), t.TempDir()
	s, name := cold.Folder(dir), cold.Name(cold.Chats, memory.MustChat("1"))
	drafts := func() []string {
		all, err := filepath.Glob(filepath.Join(dir, "chats", "default", "*.draft"))
		require.NoError(t, err)
		return all
	}
	leave := func() {
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)+".1.draft"), []byte("secret"), 0o600))
	}
	require.NoError(t, s.Put(ctx, name, nil))
	leave()
	require.NoError(t, s.List(ctx, cold.Chats, func(found string, _ time.Time) error {
		require.Equal(t, name, found)
		return nil
	}))
	require.NoError(t, s.Put(ctx, name, nil))
	require.Empty(t, drafts())
	leave()
	require.NoError(t, s.Delete(ctx, name))
	require.Empty(t, drafts())

	away := cold.Folder(filepath.Join(dir, "mount"))
	_, err := away.Get(ctx, name)
	require.Error(t, err)
	require.NotErrorIs(t, err, cold.ErrNone)
	require.Error(t, away.Put(ctx, name, nil))
	require.Error(t, away.Delete(ctx, name))
	require.Error(t, away.List(ctx, cold.Chats, nil))
	require.NoDirExists(t, string(away))
}

func TestAnObjectIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	chat := memory.MustChat("A1")
	odd := "\x00\xff<&>\u2028 \ud7ff é"
	o := cold.Object{Chat: chat.ID(), Used: 1, Turn: 2, Frozen: 3,
		Card: cold.Card{Title: "t", Messages: 4, Metadata: `{"a":1}`},
		Keys: []cold.Key{
			{Name: "chat_history:A1", String: cold.Text(odd)},
			{Name: "subagent:analytic:A1", String: "[]<&>\u2028"},
			{Name: "{chat_history:A1}:meta", Hash: map[string]cold.Text{"turn": "9", "": "", "e": cold.Text(odd)}},
			{Name: "{chat_history:A1}:archive", Hash: map[string]cold.Text{"0": "[1]"}},
		}}
	data, err := o.Encode()
	require.NoError(t, err)
	got, err := cold.Decode(chat, data)
	require.NoError(t, err)
	o.Format, o.SHA256 = got.Format, got.SHA256
	require.Equal(t, o, got)

	_, err = cold.Decode(memory.MustChat("a1"), data)
	require.ErrorIs(t, err, memory.ErrDamaged, "it is another chat's")
	for at := range data {
		spoilt := bytes.Clone(data)
		spoilt[at] ^= 0x10
		got, err := cold.Decode(chat, spoilt)
		if err == nil { // gzip has bits without a meaning
			require.Equal(t, o, got)
		}
		got, err = cold.Decode(chat, data[:at])
		require.ErrorIs(t, err, memory.ErrDamaged)
		require.ErrorContains(t, err, cold.Name(cold.Chats, chat))
		require.Empty(t, got)
	}
	o.Keys = []cold.Key{{Name: "chat_history:2", String: "[]"}}
	data, err = o.Encode()
	require.NoError(t, err)
	_, err = cold.Decode(chat, data)
	require.ErrorIs(t, err, memory.ErrDamaged, "it has a key of another chat")
}
