package s3_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"os"
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

// stores returns the stores that must keep the contract of cold.Store.
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
