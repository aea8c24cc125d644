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
		c.Cold = webmemory.Cold{Store: s, After: after, Settle: time.Millisecond}
		c.KeepRuns = 10 * time.Second // and with that, sweeps once a second
	}
}

// awake never has a chat fall asleep by itself.
const wakeful = 1000 * time.Hour

// asleep waits until a chat sleeps, and nothing of it is in Redis but its place in the list.
func (w *world) asleep(chat string) {
	w.t.Helper()
	ctx := context.Background()
	eventually(w.t, "the chat sleeps", func() bool {
		return w.look.ZScore(ctx, "mneme:cold", chat).Err() == nil &&
			errors.Is(w.look.ZScore(ctx, "mneme:chats", chat).Err(), redis.Nil)
	})
	require.Empty(w.t, w.keysOf(chat))
}

// keysOf are the names of all keys of a chat that do not end by themselves.
func (w *world) keysOf(chat string) (names []string) {
	w.t.Helper()
	ctx := context.Background()
	all, err := w.look.Keys(ctx, "*:"+chat+"*").Result()
	require.NoError(w.t, err)
	for _, name := range all {
		if w.look.PTTL(ctx, name).Val() == -1 { // and it is there still
			names = append(names, name)
		}
	}
	return names
}

// bytesOf are the values of all keys of a chat that do not end by themselves, without what a lease moves.
func (w *world) bytesOf(chat string) map[string]any {
	w.t.Helper()
	ctx, all := context.Background(), map[string]any{}
	for _, name := range w.keysOf(chat) {
		switch w.look.Type(ctx, name).Val() {
		case "string":
			all[name] = w.look.Get(ctx, name).Val()
		case "hash":
			fields := w.look.HGetAll(ctx, name).Val()
			delete(fields, "turn")
			delete(fields, "cold")
			all[name] = fields
		default:
			w.t.Fatal(name)
		}
	}
	return all
}

// idle has a chat as if it had been used long ago.
func (w *world) restful(chats ...string) {
	w.t.Helper()
	ctx := context.Background()
	long := float64(time.Now().Add(-2 * wakeful).UnixMilli())
	for _, chat := range chats {
		require.NoError(w.t, w.look.HSet(ctx, "{chat_history:"+chat+"}:meta", "turn", int64(long)).Err())
		require.NoError(w.t, w.look.ZAddXX(ctx, "mneme:chats", redis.Z{Score: long, Member: chat}).Err())
	}
}

// rich fills a chat with all that one may have: subagents, an archive, notes, what was set aside, a title, metadata.
func (w *world) rich(chat string) {
	w.t.Helper()
	ctx := context.Background()
	for i := range 6 {
		got := w.do("POST", "/v1/chats/"+chat+"/messages", message{fmt.Sprintf("question %d <&> \u2028 ü", i)})
		require.Equal(w.t, 200, got.status, string(got.body))
	}
	got := w.do("PATCH", "/v1/chats/"+chat, `{"title":"A title","metadata":{"k":"v"}}`, "Content-Type", "application/json")
	require.Equal(w.t, 200, got.status, string(got.body))
	for _, path := range []string{"/notes", "/subagents/analytic/notes"} {
		got := w.do("POST", "/v1/chats/"+chat+path, `{"text":"a note"}`, "Content-Type", "application/json")
		require.Equal(w.t, 201, got.status, string(got.body))
	}
	aside := "{chat_history:" + chat + "}:damaged:1"
	require.NoError(w.t, w.look.Set(ctx, aside, "\x00\xff odd", 0).Err())
	require.NoError(w.t, w.look.HSet(ctx, "{chat_history:"+chat+"}:meta", "d:1", 6).Err())
}

func shortened(c *webmemory.Config) { c.MaxHistory = 4 }
