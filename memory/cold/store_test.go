package cold_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/memory/cold/s3"
)

// stores are those that the contract is tested over.
func stores(t *testing.T) map[string]cold.Store {
	fake := s3mem.New()
	require.NoError(t, fake.CreateBucket("chats"))
	server := httptest.NewServer(gofakes3.New(fake).Server())
	t.Cleanup(server.Close)
	inProcess, err := s3.Open(s3.Config{Endpoint: server.URL, Bucket: "chats", Prefix: "/mneme/", AccessKey: "a",
		SecretKey: "b"})
	require.NoError(t, err)
	all := map[string]cold.Store{"folder": cold.Folder(t.TempDir()), "gofakes3": inProcess}
	if endpoint := os.Getenv("MNEME_TEST_S3"); endpoint != "" { // a real server, of scripts/engines/minio
		all["server"], err = s3.Open(s3.Config{Endpoint: endpoint, Bucket: os.Getenv("MNEME_TEST_S3_BUCKET"),
			Prefix: t.Name(), AccessKey: os.Getenv("MNEME_TEST_S3_ACCESS_KEY"),
			SecretKey: os.Getenv("MNEME_TEST_S3_SECRET_KEY")})
		require.NoError(t, err)
	}
	return all
}

func TestEachStoreKeepsTheContract(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := context.Background()
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			listed := func(folder string) (names []string) {
				require.NoError(t, s.List(ctx, folder, func(name string, changed time.Time) error {
					require.WithinDuration(t, time.Now(), changed, time.Hour)
					names = append(names, name)
					return nil
				}))
				slices.Sort(names)
				return names
			}
			for _, name := range listed(cold.Chats) { // of a run before, on a real server
				require.NoError(t, s.Delete(ctx, name))
			}
			require.Empty(t, listed(cold.Chats))
			one := cold.Name(cold.Chats, memory.MustChat("one"))
			_, err := s.Get(ctx, one)
			require.ErrorIs(t, err, cold.ErrNone)
			require.NoError(t, s.Delete(ctx, one), "there is none, which is no error")
			require.NoError(t, s.Put(ctx, one, []byte("a\x00b")))
			large := bytes.Repeat([]byte("0123456789abcdef"), 20<<16) // above what a client would send in parts
			require.NoError(t, s.Put(ctx, one, large), "in the place of the other")
			got, err := s.Get(ctx, one)
			require.NoError(t, err)
			require.True(t, bytes.Equal(large, got))
			ids := map[string]string{}
			for _, id := range []string{"A", "a", "AA", "aA", "..", "=", "x@y:z+w", strings.Repeat("Q", 128),
				strings.Repeat("q", 128), "a.json.gz"} {
				name := cold.Name(cold.Chats, memory.MustChat(id))
				require.Equal(t, name, strings.ToLower(name), "a file system may not tell capitals from small letters")
				ids[name] = id
				require.NoError(t, s.Put(ctx, name, []byte(id)))
			}
			for name, id := range ids {
				got, err := s.Get(ctx, name)
				require.NoError(t, err)
				require.Equal(t, id, string(got))
				chat, ok := cold.ChatOf(cold.Chats, name)
				require.True(t, ok, name)
				require.Equal(t, id, chat.ID())
			}
			ids[one] = ""
			require.Equal(t, slices.Sorted(maps.Keys(ids)), listed(cold.Chats))
			require.Empty(t, listed(cold.Erased))
			enough := errors.New("enough")
			require.ErrorIs(t, s.List(ctx, cold.Chats, func(string, time.Time) error { return enough }), enough)
			for name := range ids {
				require.NoError(t, s.Delete(ctx, name))
			}
			require.Empty(t, listed(cold.Chats))
		})
	}
}

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

func TestForgettingIsNotedFirst(t *testing.T) {
	t.Parallel()
	ctx, chat := context.Background(), memory.MustChat("1")
	for name, s := range stores(t) {
		turn, err := cold.Forgotten(ctx, s, chat)
		require.NoError(t, err, name)
		require.Zero(t, turn)
		require.NoError(t, s.Put(ctx, cold.Name(cold.Chats, chat), []byte("x")))
		require.NoError(t, cold.Forget(ctx, s, chat, 7))
		_, err = cold.Take(ctx, s, chat)
		require.ErrorIs(t, err, cold.ErrNone)
		turn, err = cold.Forgotten(ctx, s, chat)
		require.NoError(t, err)
		require.EqualValues(t, 7, turn)
	}
}
