package webmemory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/access/audit"
	"mneme/access/tally"
	"mneme/internal/redistest"
	"mneme/memory"
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

// score is that of a hit, which falls with its age.
var score = regexp.MustCompile(`"score":[0-9.e-]+,`)

func shortened(c *webmemory.Config) { c.MaxHistory = 4 }

func TestASleepingChatComesBackByteForByte(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), shortened)
	w.rich("A1")
	before := w.bytesOf("A1")
	require.Contains(t, before, "{chat_history:A1}:archive")
	require.Contains(t, before, "{subagent:analytic:A1}:meta")
	require.Contains(t, before, "{chat_history:A1}:notes")
	paths := []string{"/v1/chats/A1", "/v1/chats/A1/history?limit=100", "/v1/chats/A1/notes",
		"/v1/chats/A1/subagents/analytic/history", "/v1/chats/A1/export", "/v1/chats/A1/recall?query=question"}
	said := map[string]string{}
	for _, path := range paths {
		got := w.do("GET", path, nil)
		require.Equal(t, 200, got.status, path)
		said[path] = score.ReplaceAllString(string(got.body), "")
	}
	for _, path := range paths {
		w.restful("A1")
		w.asleep("A1")
		require.Equal(t, redis.Nil, w.look.Get(ctx, "chat_history:A1").Err(), "redis-cli shows none while it sleeps")
		list := w.do("GET", "/v1/chats?order=used", nil)
		require.Contains(t, string(list.body), `"asleep":true`)
		require.Contains(t, string(list.body), `"title":"A title"`)
		require.Contains(t, string(list.body), `"metadata":{"k":"v"}`)
		require.Empty(t, w.keysOf("A1"), "a list wakes no chat")

		got := w.do("GET", path, nil)
		require.Equal(t, 200, got.status, path+string(got.body))
		require.Equal(t, said[path], score.ReplaceAllString(string(got.body), ""))
		require.Equal(t, before, w.bytesOf("A1"))
		require.Equal(t, redis.Nil, w.look.ZScore(ctx, "mneme:cold", "A1").Err())
		require.NotContains(t, string(w.do("GET", "/v1/chats?order=used", nil).body), `"asleep"`)
	}
	w.restful("A1")
	w.asleep("A1")
	got := w.do("POST", "/v1/chats/A1/messages", message{"one more"})
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, w.stored("chat_history:A1"), "user: one more")
	require.Equal(t, before["{chat_history:A1}:notes"], w.bytesOf("A1")["{chat_history:A1}:notes"])
	require.Greater(t, len(w.bytesOf("A1")["{chat_history:A1}:archive"].(map[string]string)), 2)
}

// What another program writes under a sleeping chat's name stays, and is adopted as in a chat that is awake.
func TestAForeignWriteToASleepingChatIsAdopted(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), shortened)
	w.rich("1")
	notes := w.bytesOf("1")["{chat_history:1}:notes"]
	w.restful("1")
	w.asleep("1")
	require.NoError(t, w.look.Set(ctx, "chat_history:1", `[{"role":"user","content":"by hand"}]`, 0).Err())
	got := w.do("POST", "/v1/chats/1/messages", message{"next"})
	require.Equal(t, 200, got.status, string(got.body))
	require.Equal(t, []string{"user: by hand", "user: next", "assistant: hello"}, w.stored("chat_history:1"))
	require.Equal(t, notes, w.bytesOf("1")["{chat_history:1}:notes"])
	require.NotEmpty(t, w.stored("subagent:analytic:1"))
}

// So is one to a chat of which a killed sweeper has left nothing but the place in the list.
func TestAForeignWriteToAChatThatFallsAsleepStays(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	w.rich("1")
	w.restful("1")
	w.asleep("1")
	by := `[{"role":"user","content":"by hand"}]`
	require.NoError(t, w.look.Set(ctx, "chat_history:1", by, 0).Err())
	require.NoError(t, w.look.ZAdd(ctx, "mneme:chats", redis.Z{Score: 1, Member: "1"}).Err())
	eventually(t, "it is awake", func() bool {
		return errors.Is(w.look.ZScore(ctx, "mneme:cold", "1").Err(), redis.Nil)
	})
	require.Equal(t, by, w.look.Get(ctx, "chat_history:1").Val())
	require.NotEmpty(t, w.stored("subagent:analytic:1"))
}

// Whatever step a process dies at, on the way out and back, nothing of the chat is lost, and nothing is left.
func TestAChatSurvivesADeathAtEveryStepOfItsSleep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), shortened)
	w.rich("1")
	before := w.bytesOf("1")
	// The steps are those commands and scripts that change something, as a client sends them.
	for at := 1; ; at++ {
		hook := &failing{}
		w.restful("1")
		hook.dieAt(at)
		w.hook = hook
		dies := w.process(sleepy(s, wakeful), shortened, func(c *webmemory.Config) { c.Lease = 300 * time.Millisecond })
		w.hook = nil
		eventually(t, "it sleeps, or its process is dead", func() bool {
			return hook.dead.Load() || w.look.ZScore(ctx, "mneme:cold", "1").Err() == nil &&
				errors.Is(w.look.ZScore(ctx, "mneme:chats", "1").Err(), redis.Nil)
		})
		slept := !hook.dead.Load()
		if slept { // the rest of the steps are those on the way back
			w.on(dies, func() { w.do("GET", "/v1/chats/1/history", nil) })
		}
		reached := hook.dead.Load()
		w.shutdown[dies]()
		lives := w.process(sleepy(s, wakeful), shortened, func(c *webmemory.Config) { c.Lease = 300 * time.Millisecond })
		read := func() {
			w.on(lives, func() {
				got := w.do("GET", "/v1/chats/1/history", nil)
				require.Equal(t, 200, got.status, string(got.body))
			})
		}
		if read(); at%2 == 0 {
			require.Equal(t, before, w.bytesOf("1"), "step %d", at)
			w.restful("1")
			w.asleep("1")
			read()
		}
		require.Equal(t, before, w.bytesOf("1"), "step %d", at)
		require.NoError(t, w.look.ZScore(ctx, "mneme:chats", "1").Err())
		w.shutdown[lives]()
		if !reached {
			require.Greater(t, at, 10)
			return
		}
	}
}

// failing is a hook after which a client does nothing any more, as if its process were dead.
type failing struct {
	mu   sync.Mutex
	left int // guarded by mu: steps until it dies; 0 while it lives
	dead atomic.Bool
}

func (f *failing) dieAt(step int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = step
}

var errDead = errors.New("this process is dead")

// step counts a command that is about the chat's sleep.
func (f *failing) step(cmd redis.Cmder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name := cmd.Name(); f.left > 0 && (strings.HasPrefix(name, "eval") || name == "zadd" || name == "zrem") {
		if f.left--; f.left == 0 {
			f.dead.Store(true)
		}
	}
	if f.dead.Load() {
		return errDead
	}
	return nil
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.step(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := f.step(cmd); err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func TestAnErasureReachesTheColdStore(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), shortened)
	name := cold.Name(cold.Chats, memory.MustChat("1"))
	w.rich("1")
	w.restful("1")
	w.asleep("1")
	require.Equal(t, []string{name}, s.names(t, cold.Chats))
	data, err := s.Store.Get(ctx, name)
	require.NoError(t, err)

	s.away.Store(true)
	got := w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 503, got.status, string(got.body))
	require.Contains(t, got.problem(t).Message, "cold store")
	require.NoError(t, w.look.ZScore(ctx, "mneme:cold", "1").Err(), "nothing is changed")
	require.Equal(t, 503, w.do("GET", "/v1/chats/1/history", nil).status)
	got = w.do("POST", "/chat", `{"chat_id":"1","message":"hi"}`, "Content-Type", "application/json")
	require.Equal(t, 503, got.status, string(got.body))
	s.away.Store(false)

	// It is open until the object is gone.
	gone := func(op, _ string) error {
		if op == "delete" {
			return errAway
		}
		return nil
	}
	s.before.Store(&gone)
	require.Equal(t, 503, w.do("DELETE", "/v1/chats/1", nil).status)
	require.NotEmpty(t, w.look.HGet(ctx, "{chat_history:1}:meta", "pending").Val())
	s.before.Store(nil)
	got = w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Empty(t, s.names(t, cold.Chats))
	require.Empty(t, w.keysOf("1"))
	require.Equal(t, redis.Nil, w.look.ZScore(ctx, "mneme:cold", "1").Err())

	w.rich("2")
	w.restful("2")
	w.asleep("2")
	got = w.do("DELETE", "/v1/chats/2", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), cold.Name(cold.Chats, memory.MustChat("2")), "what is erased names the object")

	// A sweeper that was paused since before the erasure brings nothing back.
	require.NoError(t, s.Store.Put(ctx, name, data))
	require.NoError(t, w.look.FlushAll(ctx).Err())
	got = w.do("GET", "/v1/chats/1/history", nil)
	require.NotContains(t, string(got.body), "question")
	require.Empty(t, s.names(t, cold.Chats))
}

// An object that is damaged is told by its name, changes nothing, and can be erased.
func TestADamagedObjectIsTold(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	name := cold.Name(cold.Chats, memory.MustChat("1"))
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"hi"}).status)
	w.restful("1")
	w.asleep("1")
	whole, err := s.Store.Get(ctx, name)
	require.NoError(t, err)
	for _, data := range [][]byte{whole[:len(whole)/2], nil} {
		if data == nil {
			require.NoError(t, s.Store.Delete(ctx, name))
		} else {
			require.NoError(t, s.Store.Put(ctx, name, data))
		}
		got := w.do("GET", "/v1/chats/1/history", nil)
		require.Equal(t, 500, got.status, string(got.body))
		require.Contains(t, got.problem(t).Message, name)
		require.NoError(t, w.look.ZScore(ctx, "mneme:cold", "1").Err())
		require.Equal(t, redis.Nil, w.look.Get(ctx, "chat_history:1").Err())
	}
	require.NoError(t, s.Store.Put(ctx, name, whole))
	require.Equal(t, 200, w.do("GET", "/v1/chats/1/history", nil).status)
	w.restful("1")
	w.asleep("1")
	require.NoError(t, s.Store.Put(ctx, name, []byte("x")))
	got := w.do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Empty(t, s.names(t, cold.Chats))
	require.Equal(t, redis.Nil, w.look.ZScore(ctx, "mneme:cold", "1").Err())
}

// A redaction, a rewind and the erasure of a history take out of the store what it has of the chat.
func TestWhatIsTakenAwayLeavesTheColdStore(t *testing.T) {
	t.Parallel()
	s := newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	for i, way := range []func(chat, id string) answer{
		func(chat, id string) answer { return w.do("DELETE", "/v1/chats/"+chat+"/messages/"+id, nil) },
		func(chat, id string) answer {
			return w.do("POST", "/v1/chats/"+chat+"/rewind", `{"to":"`+id+`"}`, "Content-Type", "application/json")
		},
		func(chat, _ string) answer {
			return w.do("DELETE", "/v1/chats/"+chat+"/subagents/analytic/history", nil)
		},
	} {
		chat := fmt.Sprint("c", i)
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi"}).status)
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"secret"}).status)
		w.restful(chat)
		w.asleep(chat)
		require.Len(t, s.names(t, cold.Chats), 1)
		var page struct {
			Messages []struct{ ID string }
		}
		require.NoError(t, json.Unmarshal(w.do("GET", "/v1/chats/"+chat+"/history", nil).body, &page))
		require.Len(t, s.names(t, cold.Chats), 1, "it stays as it was")
		got := way(chat, page.Messages[1].ID)
		require.Equal(t, 200, got.status, string(got.body))
		require.Empty(t, s.names(t, cold.Chats), chat)
	}
}

func TestChatsOfTheEmbeddedStoreSleep(t *testing.T) {
	t.Parallel()
	s := newColdStore(t)
	w := newSmall(t, t.TempDir(), answers("hello"), sleepy(s, wakeful), shortened)
	w.rich("1")
	before := w.bytesOf("1")
	w.restful("1")
	w.asleep("1")
	require.Equal(t, 200, w.do("GET", "/v1/chats/1/history", nil).status)
	require.Equal(t, before, w.bytesOf("1"))
}

// A tenant's sleeping chats are in its export, and go when it is erased.
func TestChatsOfATenantSleep(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"))
	w.putApiserver(forTenants(w.runs.Handler()))
	store := access.NewStore(w.look)
	acme, err := memory.ParseTenant("acme")
	require.NoError(t, err)
	text, _, err := store.Create(ctx, access.Key{Name: "bot", Tenant: acme, Scopes: access.Scopes})
	require.NoError(t, err)
	operator, _, err := store.Create(ctx, access.Key{Name: "operator", Scopes: []access.Scope{access.Admin}})
	require.NoError(t, err)
	w.url = w.process(sleepy(s, wakeful), func(c *webmemory.Config) {
		keys := access.NewAuthenticator(nil, store, zerolog.Nop())
		t.Cleanup(func() { _ = keys.Close() })
		c.Gate, c.Keys = &access.Gate{Keys: keys, Secret: strings.Repeat("s", 32)}, store
		c.Usage, c.Audit = tally.New(w.look, time.Hour), audit.New(w.look)
	})
	for _, chat := range []string{"t1", "t2"} {
		got := w.do("POST", "/v1/chats/"+chat+"/messages", message{"rosebud " + chat}, "Authorization", "Bearer "+text)
		require.Equal(t, 200, got.status, string(got.body))
	}
	require.NoError(t, w.look.ZAdd(ctx, "mneme:tenants", redis.Z{Score: 1, Member: "acme"}).Err()) // its key was used
	sleep := func(chat string) {
		long := float64(time.Now().Add(-2 * wakeful).UnixMilli())
		require.NoError(t, w.look.HSet(ctx, "{chat_history:acme/"+chat+"}:meta", "turn", int64(long)).Err())
		require.NoError(t, w.look.ZAddXX(ctx, "mneme:chats:acme", redis.Z{Score: long, Member: chat}).Err())
		eventually(t, "the chat sleeps", func() bool {
			return w.look.ZScore(ctx, "mneme:cold:acme", chat).Err() == nil && len(w.keysOf("acme/"+chat)) == 0
		})
	}
	sleep("t1")
	got := w.do("GET", "/v1/tenants/acme/export", nil, "Authorization", "Bearer "+operator)
	require.Equal(t, 200, got.status)
	require.Contains(t, string(got.body), "rosebud t1")
	require.Contains(t, string(got.body), "rosebud t2")
	sleep("t2")
	for erased := (struct{ Done bool }{}); !erased.Done; {
		got := w.do("DELETE", "/v1/tenants/acme", nil, "Authorization", "Bearer "+operator)
		require.Equal(t, 200, got.status, "%s", got.body)
		require.NoError(t, json.Unmarshal(got.body, &erased))
	}
	require.Empty(t, s.names(t, cold.Chats))
	require.Zero(t, w.look.Exists(ctx, "mneme:cold:acme").Val())
}

// Redis that lost everything is told by a list of the objects which chats sleep; until then each is found by its name.
func TestChatsSleepThroughTheLossOfRedis(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful))
	var said []string
	for i := range 5 {
		chat := fmt.Sprint("c", i)
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi " + chat}).status)
		said = append(said, string(w.do("GET", "/v1/chats/"+chat+"/history", nil).body))
		w.restful(chat)
		w.asleep(chat)
	}
	held := func(op, _ string) error {
		if op == "list" {
			return errAway
		}
		return nil
	}
	s.before.Store(&held)
	require.NoError(t, w.look.FlushAll(ctx).Err())
	require.Equal(t, said[0], string(w.do("GET", "/v1/chats/c0/history", nil).body), "found by its name")
	s.before.Store(nil)
	eventually(t, "the others are listed", func() bool { return w.look.ZCard(ctx, "mneme:cold").Val() == 5 })
	list := string(w.do("GET", "/v1/chats?order=used", nil).body)
	for i := range 5 {
		require.Equal(t, 1, strings.Count(list, fmt.Sprintf(`"c%d"`, i)), list)
		require.Equal(t, said[i], string(w.do("GET", fmt.Sprintf("/v1/chats/c%d/history", i), nil).body))
	}
	require.Equal(t, 404, w.do("GET", "/v1/chats/none/export", nil).status)
}

// Two processes that have the same chats fall asleep and wake them at once lose nothing.
func TestTwoProcessesWakeTheSameChats(t *testing.T) {
	t.Parallel()
	s := newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, 10*time.Millisecond), shortened)
	urls := []string{w.url, w.process(sleepy(s, 10*time.Millisecond), shortened)}
	const chats, rounds = 4, 12
	var asking sync.WaitGroup
	for i := range chats {
		for k, url := range urls {
			asking.Go(func() {
				for n := range rounds {
					body, _ := json.Marshal(message{fmt.Sprintf("m %d.%d", k, n)})
					req, _ := http.NewRequest("POST", fmt.Sprintf("%s/v1/chats/c%d/messages", url, i), bytes.NewReader(body))
					req.Header.Set("Content-Type", "application/json")
					if got := w.send(req); got.status != 200 {
						t.Errorf("%d %s", got.status, got.body)
					}
					time.Sleep(time.Duration(50+30*i+20*k) * time.Millisecond) // not to wait for something: it is the load
				}
			})
		}
	}
	asking.Wait()
	for _, url := range urls {
		w.shutdown[url]()
	}
	w.url = w.process(sleepy(s, wakeful), shortened)
	for i := range chats {
		got := w.do("GET", fmt.Sprintf("/v1/chats/c%d/export", i), nil)
		require.Equal(t, 200, got.status)
		for k := range urls {
			for n := range rounds {
				require.Equal(t, 1, strings.Count(string(got.body), fmt.Sprintf(`"m %d.%d"`, k, n)), "c%d: %d.%d", i, k, n)
			}
		}
	}
}

// Processes that are killed while chats fall asleep, wake and are erased lose nothing that was acknowledged, and leave
// nothing of what was erased.
func TestProcessesAreKilledWhileChatsSleep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), shortened)
	settings := w.settings()
	settings.Cold = string(s.Store.(cold.Folder))
	lives, _ := w.start(settings)
	said := map[string][]string{}
	post := func(url, chat, text string) {
		w.on(url, func() {
			resp, err := http.DefaultClient.Do(w.request("POST", "/v1/chats/"+chat+"/messages", message{text}))
			if err != nil {
				return // its process was killed
			}
			resp.Body.Close()
			require.NotEqual(t, 500, resp.StatusCode)
			if resp.StatusCode == 200 {
				said[chat] = append(said[chat], text)
			}
		})
	}
	for round := range 15 {
		dies, process := w.start(settings)
		for i := range 3 {
			chat := fmt.Sprint("c", i)
			post(dies, chat, fmt.Sprintf("m%d.%d.a", i, round))
			post(lives, chat, fmt.Sprintf("m%d.%d.b", i, round))
		}
		time.Sleep(time.Duration(100*round) * time.Millisecond) // another moment of its sweeps each time
		process.Kill()
	}
	w.shutdown[w.url]()
	w.url = w.process(sleepy(s, wakeful), shortened)
	for chat, texts := range said {
		require.Greater(t, len(texts), 20)
		got := w.do("GET", "/v1/chats/"+chat+"/export", nil)
		require.Equal(t, 200, got.status, string(got.body))
		for _, text := range texts {
			require.Equal(t, 1, strings.Count(string(got.body), `"content":"`+text+`"`), text)
		}
	}
	for chat := range said {
		dies, process := w.start(settings)
		erased := make(chan struct{})
		go func() {
			defer close(erased)
			req, _ := http.NewRequest("DELETE", dies+"/v1/chats/"+chat, nil)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}()
		time.Sleep(5 * time.Millisecond) // some moment of it
		process.Kill()
		<-erased
		got := w.do("DELETE", "/v1/chats/"+chat, nil)
		require.Equal(t, 200, got.status, string(got.body))
		require.Empty(t, w.keysOf(chat))
		require.ErrorIs(t, w.look.ZScore(ctx, "mneme:cold", chat).Err(), redis.Nil)
		require.NotContains(t, s.names(t, cold.Chats), cold.Name(cold.Chats, memory.MustChat(chat)))
	}
}

// What looks into several chats wakes those that sleep: a search in all of a user's, the user's erasure, and a fork.
func TestWhatReadsOtherChatsWakesThem(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"), sleepy(s, wakeful), func(c *webmemory.Config) { c.RecallEverywhere = 10 })
	say := func(chat string) {
		got := w.do("POST", "/v1/chats/"+chat+"/messages", `{"message":"the parrot of `+chat+`","user":"ann"}`,
			"Content-Type", "application/json")
		require.Equal(t, 200, got.status, string(got.body))
	}
	for _, chat := range []string{"c1", "c2"} {
		say(chat)
	}
	sleep := func() {
		for _, chat := range []string{"c1", "c2"} {
			w.restful(chat)
			w.asleep(chat)
		}
	}
	sleep()
	got := w.do("GET", "/v1/users/ann/recall?query=parrot", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), `"chat":"c1"`)
	require.Contains(t, string(got.body), `"chat":"c2"`)
	sleep()
	got = w.do("POST", "/v1/chats/c1/fork", `{"as":"c2"}`, "Content-Type", "application/json")
	require.Equal(t, 409, got.status, "c2 only sleeps: %s", got.body)
	require.Equal(t, 200, w.do("PATCH", "/v1/chats/c2", `{"pinned":true}`, "Content-Type", "application/json").status)
	sleep()
	pinned := string(w.do("GET", "/v1/chats?order=pinned", nil).body)
	require.Contains(t, pinned, `"asleep":true`)
	require.Contains(t, pinned, `"the parrot of c2"`)
	got = w.do("DELETE", "/v1/users/ann?chats=true", nil)
	require.Equal(t, 200, got.status, string(got.body))
	require.Contains(t, string(got.body), `"c1"`)
	require.Contains(t, string(got.body), `"c2"`)
	require.Empty(t, s.names(t, cold.Chats))
	require.Zero(t, w.look.ZCount(ctx, "mneme:cold", "(0", "+inf").Val()-1, "all but that they are listed")
}

// The list of chats may be in shards; that of the sleeping ones is in one key, where every process finds them.
func TestChatsOfAListInShardsSleep(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := newWorld(t, answers("hello"))
	w.shards = 4
	w.url = w.process(sleepy(s, wakeful))
	long := time.Now().Add(-2 * wakeful).UnixMilli()
	for _, chat := range []string{"c1", "c2", "c3"} {
		require.Equal(t, 200, w.do("POST", "/v1/chats/"+chat+"/messages", message{"hi"}).status)
		require.NoError(t, w.look.HSet(ctx, "{chat_history:"+chat+"}:meta", "turn", long).Err())
		lists, err := w.look.Keys(ctx, "mneme:chats*").Result()
		require.NoError(t, err)
		for _, list := range lists {
			require.NoError(t, w.look.ZAddXX(ctx, list, redis.Z{Score: float64(long), Member: chat}).Err())
		}
		eventually(t, "it sleeps", func() bool {
			return w.look.ZScore(ctx, "mneme:cold", chat).Err() == nil && len(w.keysOf(chat)) == 0
		})
	}
	require.Equal(t, 3, strings.Count(string(w.do("GET", "/v1/chats?order=used", nil).body), `"asleep":true`))
	lists, err := w.look.Keys(ctx, "mneme:cold*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"mneme:cold"}, lists)
	for _, chat := range []string{"c1", "c2", "c3"} {
		require.Contains(t, string(w.do("GET", "/v1/chats/"+chat+"/history", nil).body), `"hi"`)
	}
}

// A sleeping chat takes at most 150 bytes of Redis.
func TestASleepingChatIsSmall(t *testing.T) {
	t.Parallel()
	ctx, n := context.Background(), 100_000
	w := &world{t: t}
	w.redis = redistest.Start(t)
	w.look = w.redis.Client()
	used := func() int64 {
		info := w.look.Info(ctx, "memory").Val()
		var bytes int64
		_, err := fmt.Sscanf(info[strings.Index(info, "used_memory:"):], "used_memory:%d", &bytes)
		require.NoError(t, err)
		return bytes
	}
	before, at := used(), float64(time.Now().UnixMilli())
	members := make([]redis.Z, 0, 1000)
	for i := range n {
		members = append(members, redis.Z{Score: at + float64(i), Member: fmt.Sprintf("%08x-b5f0-4c2e-9a55-000000000000", i)})
		if len(members) == cap(members) {
			require.NoError(t, w.look.ZAdd(ctx, "mneme:cold", members...).Err())
			members = members[:0]
		}
	}
	each := (used() - before) / int64(n)
	t.Logf("%d bytes for each sleeping chat", each)
	require.LessOrEqual(t, each, int64(150))
}
