package webmemory_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// sayAs posts a message of a user.
func sayAs(w *webmemorytest.World, chat, user, text string) {
	w.T.Helper()
	got := w.Do("POST", "/v1/chats/"+chat+"/messages", webapi.MessageRequest{Message: text, User: user})
	require.Equal(w.T, 200, got.Status, string(got.Body))
}

// sleepAll makes chats fall asleep.
func sleepAll(w *webmemorytest.World, chats ...string) {
	w.T.Helper()
	for _, chat := range chats {
		aged := time.Time{}
		webmemorytest.Eventually(w.T, "the chat sleeps", func() bool {
			awake := w.Redis.ZScore(w.T.Context(), "mneme:chats", chat).Err() == nil
			if awake && time.Since(aged) > 5*time.Second { // a process may have used it since
				ageChats(w, chat)
				aged = time.Now()
			}
			return !awake
		})
		awaitSleep(w, chat)
	}
}

// objectOf returns the name of a chat's object.
func objectOf(chat string) string { return cold.Name(cold.Chats, memory.MustChat(chat)) }

// A user's erasure erases every chat that can be read. It names the others, which can be erased one by one.
func TestAUserErasureNamesTheChatsThatItCannotRead(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	folder := t.TempDir()
	s := &coldStore{Store: cold.Folder(folder)}
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	var chats []string
	for i := range 6 {
		chats = append(chats, fmt.Sprint("c", i))
		sayAs(w, chats[i], "ann", "hi")
	}
	sleepAll(w, chats...)
	require.NoError(t, s.Store.Put(t.Context(), objectOf("c0"), []byte("x")))
	require.NoError(t, s.Store.Delete(t.Context(), objectOf("c1")))
	c2 := filepath.Join(folder, filepath.FromSlash(objectOf("c2")))
	require.NoError(t, os.Remove(c2))
	require.NoError(t, os.Mkdir(c2, 0o700), "reading the object fails")

	erase := func() (out webapi.ErasedUser) {
		got := w.Do("DELETE", "/v1/users/ann?chats=true", nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.NoError(t, json.Unmarshal(got.Body, &out))
		return out
	}
	ids := func(all []memory.Chat) (ids []string) {
		for _, chat := range all {
			ids = append(ids, chat.ID())
		}
		return ids
	}
	out := erase()
	require.ElementsMatch(t, chats[3:], ids(out.Chats))
	require.ElementsMatch(t, chats[:3], ids(out.Failed))
	require.Equal(t, 3, out.Remaining)
	out = erase()
	require.Empty(t, out.Chats)
	require.ElementsMatch(t, chats[:3], ids(out.Failed))

	for _, chat := range chats[:3] {
		got := w.Do("DELETE", "/v1/chats/"+chat, nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.Equal(t, redis.Nil, w.Redis.ZScore(t.Context(), "mneme:cold", chat).Err())
	}
	require.Empty(t, s.names(t, cold.Chats))
	out = erase()
	require.Empty(t, out.Failed)
	require.Zero(t, out.Remaining)
}

// A search in a user's chats reads the objects of sleeping chats without waking them. It names unreadable chats.
func TestASearchOfAUsersChatsWakesNone(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened,
		func(c *webmemory.Config) { c.RecallEverywhere = 10 })
	chats := []string{"c0", "c1", "c2", "c3"}
	for _, chat := range chats {
		sayAs(w, chat, "ann", "the parrot of "+chat)
		for i := range 6 { // so that the first message moves into the archive
			sayAs(w, chat, "ann", fmt.Sprint("other words ", i))
		}
	}
	sayAs(w, "c3", "bob", "hi")
	ids := messageIDs(t, w, "c2")
	got := w.Do("POST", "/v1/chats/c2/quarantine", webapi.Quarantine{Entries: []string{ids[0]}})
	require.Equal(t, 200, got.Status, string(got.Body))
	sleepAll(w, chats...)
	recall := func() (out webapi.Recalled) {
		got := w.Do("GET", "/v1/users/ann/recall?query=parrot", nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.NoError(t, json.Unmarshal(got.Body, &out))
		return out
	}
	for range 2 {
		out := recall()
		require.False(t, out.Partial)
		found := map[string]bool{}
		for _, hit := range out.Hits {
			found[hit.Chat] = found[hit.Chat] || strings.Contains(hit.Text, "parrot")
		}
		require.Equal(t, map[string]bool{"c0": true, "c1": true, "c2": false}, found)
		for _, chat := range chats {
			require.Empty(t, chatKeys(w, chat))
		}
	}
	require.NoError(t, s.Store.Put(t.Context(), objectOf("c1"), []byte("x")))
	out := recall()
	require.True(t, out.Partial)
	require.Equal(t, []string{"c1"}, out.Unread)
	require.NotEmpty(t, out.Hits)

	// A chat that woke since is searched in Redis.
	sayAs(w, "c0", "ann", "the macaw of c0")
	got = w.Do("GET", "/v1/users/ann/recall?query=macaw", nil)
	require.Contains(t, string(got.Body), "macaw")
	got = w.Do("DELETE", "/v1/chats/c0", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	for _, hit := range recall().Hits {
		require.NotEqual(t, "c0", hit.Chat)
	}
}

// A history that another program has overwritten with junk hides no other chat, in a search, a list or an export.
func TestAJunkHistoryHidesNoOtherChat(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := t.Context(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), everywhere)
	for _, chat := range []string{"c0", "c1"} {
		sayAs(w, chat, "ann", "the parrot of "+chat)
	}
	require.NoError(t, w.Redis.Set(ctx, "chat_history:c0", "junk", 0).Err())
	require.NoError(t, w.Redis.HDel(ctx, "{chat_history:c0}:meta", "count").Err())
	got := w.Do("GET", "/v1/users/ann/recall?query=parrot", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	var out webapi.Recalled
	require.NoError(t, json.Unmarshal(got.Body, &out))
	require.True(t, out.Partial)
	require.Equal(t, []string{"c0"}, out.Unread)
	require.NotEmpty(t, out.Hits)
	got = w.Do("GET", "/v1/chats?order=used", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), `"c0"`)
	require.Contains(t, string(got.Body), `"c1"`)

	w.SetApiserver(forTenants(w.Runs.Handler()))
	store, acme, text, operator := createKeys(w)
	w.URL = w.StartReplica(sleepy(s, wakeful), requireKeys(w, store))
	for _, chat := range []string{"t0", "t1", "t2"} {
		got := w.Do("POST", "/v1/chats/"+chat+"/messages", webapi.MessageRequest{Message: "rosebud " + chat, User: "ann"},
			"Authorization", "Bearer "+text)
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	require.NoError(t, w.Redis.ZAdd(ctx, "mneme:tenants", redis.Z{Score: 1, Member: "acme"}).Err()) // its key was used
	require.NoError(t, w.Redis.Set(ctx, "chat_history:acme/t0", "junk", 0).Err())
	require.NoError(t, w.Redis.Set(ctx, "user_notes:acme/ann", "junk", 0).Err())
	t1, err := acme.Chat("t1")
	require.NoError(t, err)
	require.NoError(t, s.Store.Put(ctx, cold.Name(cold.Chats, t1), []byte("x")))
	require.NoError(t, w.Redis.ZAdd(ctx, "mneme:cold:acme", redis.Z{Score: 1, Member: "t1"}).Err())
	require.NoError(t, w.Redis.ZRem(ctx, "mneme:chats:acme", "t1").Err())
	got = w.Do("GET", "/v1/tenants/acme/export", nil, "Authorization", "Bearer "+operator)
	require.Equal(t, 200, got.Status)
	require.Contains(t, string(got.Body), "rosebud t2")
	var unread []string
	var last webapi.TenantExport
	for line := range strings.Lines(string(got.Body)) {
		last = webapi.TenantExport{}
		require.NoError(t, json.Unmarshal([]byte(line), &last))
		if last.Kind == webapi.TenantUnread {
			require.NotEmpty(t, last.Error)
			unread = append(unread, last.Chat+last.User)
		}
	}
	require.ElementsMatch(t, []string{"t0", "t1", "ann"}, unread)
	require.Equal(t, webapi.TenantEnds, last.Kind)
	require.Equal(t, int64(3), last.Lines[webapi.TenantUnread])
}

// Another process finishes a user's erasure if its process is killed. It keeps what the user posted later.
func TestAKilledErasureOfAUserIsFinished(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), webmemorytest.ShortenLease)
	for _, requests := range []int64{8, 30, 90} {
		user := fmt.Sprint("user", requests)
		chat := func(i int) string { return fmt.Sprint(user, ".", i) }
		for i := range 4 {
			sayAs(w, chat(i), user, "hi")
		}
		doUserNote(t, w, 201, "POST", user+"/notes", `{"text":"old"}`)
		way := newCutter(t, w.RedisServer.Addr)
		settings := w.ChildConfig()
		settings.Redis = []string{way.addr}
		child, process := w.StartChild(settings)
		w.Target(child, func() {
			require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat(0), nil).Status)
			req := w.NewRequest("DELETE", "/v1/users/"+user+"?chats=true", nil)
			way.left.Store(requests)
			way.armed.Store(true)
			go sendQuietly(w, req)
		})
		<-way.reached
		process.Kill()
		require.NotEmpty(t, w.History("chat_history:"+chat(3)))
		sayAs(w, chat(9), user, "hi again")
		webmemorytest.Eventually(t, "the chats are erased", func() bool {
			return len(w.Keys("chat_history:"+user)) == 1 && w.Redis.ZCard(t.Context(), "mneme:erasing").Val() == 0
		})
		require.NotEmpty(t, w.History("chat_history:"+chat(9)))
		require.Empty(t, listUserNotes(t, w, user))
	}
}
