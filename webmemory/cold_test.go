package webmemory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/memory/cold"
	"mneme/webmemory"
)

// coldStore is a store in a folder that can be taken away, and told what is done to it.
type coldStore struct {
	cold.Store
	away   atomic.Bool
	before atomic.Pointer[func(op, name string) error]
}

var errAway = errors.New("the store is away")

func (s *coldStore) asked(op, name string) error {
	if s.away.Load() {
		return errAway
	}
	if before := s.before.Load(); before != nil {
		return (*before)(op, name)
	}
	return nil
}

func (s *coldStore) Put(ctx context.Context, name string, data []byte) error {
	if err := s.asked("put", name); err != nil {
		return err
	}
	return s.Store.Put(ctx, name, data)
}

func (s *coldStore) Get(ctx context.Context, name string) ([]byte, error) {
	if err := s.asked("get", name); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, name)
}

func (s *coldStore) Delete(ctx context.Context, name string) error {
	if err := s.asked("delete", name); err != nil {
		return err
	}
	return s.Store.Delete(ctx, name)
}

func (s *coldStore) List(ctx context.Context, folder string, each func(string, time.Time) error) error {
	if err := s.asked("list", folder); err != nil {
		return err
	}
	return s.Store.List(ctx, folder, each)
}

// names are those of all objects in a folder.
func (s *coldStore) names(t *testing.T, folder string) (all []string) {
	t.Helper()
	require.NoError(t, s.Store.List(context.Background(), folder, func(name string, _ time.Time) error {
		all = append(all, name)
		return nil
	}))
	return all
}

func newColdStore(t *testing.T) *coldStore { return &coldStore{Store: cold.Folder(t.TempDir())} }

// sleepy has chats fall asleep that were not used for so long, in rounds without a time between them.
func sleepy(s cold.Store, after time.Duration) func(*webmemory.Config) {
	return func(c *webmemory.Config) {
		c.Cold = webmemory.Cold{Store: s, IdleTime: after, Settle: time.Millisecond}
		c.KeepRuns = 10 * time.Second // and with that, sweeps once a second
	}
}

// awake never has a chat fall asleep by itself.
const wakeful = 1000 * time.Hour

// awaitSleep waits until a chat sleeps and Redis has nothing of it except its place in the list.
func awaitSleep(w *webmemorytest.World, chat string) {
	w.T.Helper()
	ctx := context.Background()
	webmemorytest.Eventually(w.T, "the chat sleeps", func() bool {
		return w.Redis.ZScore(ctx, "mneme:cold", chat).Err() == nil &&
			errors.Is(w.Redis.ZScore(ctx, "mneme:chats", chat).Err(), redis.Nil)
	})
	require.Empty(w.T, chatKeys(w, chat))
}

// chatKeys returns the names of a chat's keys that do not expire.
func chatKeys(w *webmemorytest.World, chat string) (names []string) {
	w.T.Helper()
	ctx := context.Background()
	all, err := w.Redis.Keys(ctx, "*:"+chat+"*").Result()
	require.NoError(w.T, err)
	for _, name := range all {
		if w.Redis.PTTL(ctx, name).Val() == -1 { // and it is there still
			names = append(names, name)
		}
	}
	return names
}

// chatValues returns the values of a chat's keys that do not expire, without the fields that a lease changes.
func chatValues(w *webmemorytest.World, chat string) map[string]any {
	w.T.Helper()
	ctx, all := context.Background(), map[string]any{}
	for _, name := range chatKeys(w, chat) {
		switch w.Redis.Type(ctx, name).Val() {
		case "string":
			all[name] = w.Redis.Get(ctx, name).Val()
		case "hash":
			fields := w.Redis.HGetAll(ctx, name).Val()
			delete(fields, "turn")
			delete(fields, "cold")
			all[name] = fields
		default:
			w.T.Fatal(name)
		}
	}
	return all
}

// ageChats makes chats look as if they had been used long ago.
func ageChats(w *webmemorytest.World, chats ...string) {
	w.T.Helper()
	ctx := context.Background()
	long := float64(time.Now().Add(-2 * wakeful).UnixMilli())
	for _, chat := range chats {
		require.NoError(w.T, w.Redis.HSet(ctx, "{chat_history:"+chat+"}:meta", "turn", int64(long)).Err())
		require.NoError(w.T, w.Redis.ZAddXX(ctx, "mneme:chats", redis.Z{Score: long, Member: chat}).Err())
	}
}

// fillChat gives a chat subagents, an archive, notes, a set-aside part, a title and metadata.
func fillChat(w *webmemorytest.World, chat string) {
	w.T.Helper()
	ctx := context.Background()
	for i := range 6 {
		got := w.Post(chat, fmt.Sprintf("question %d <&> \u2028 ü", i))
		require.Equal(w.T, 200, got.Status, string(got.Body))
	}
	got := w.Do("PATCH", "/v1/chats/"+chat, `{"title":"A title","metadata":{"k":"v"}}`, "Content-Type", "application/json")
	require.Equal(w.T, 200, got.Status, string(got.Body))
	for _, path := range []string{"/notes", "/subagents/analytic/notes"} {
		got := w.Do("POST", "/v1/chats/"+chat+path, `{"text":"a note"}`, "Content-Type", "application/json")
		require.Equal(w.T, 201, got.Status, string(got.Body))
	}
	aside := "{chat_history:" + chat + "}:damaged:1"
	require.NoError(w.T, w.Redis.Set(ctx, aside, "\x00\xff odd", 0).Err())
	require.NoError(w.T, w.Redis.HSet(ctx, "{chat_history:"+chat+"}:meta", "d:1", 6).Err())
}

func shortened(c *webmemory.Config) { c.MaxHistory = 4 }
