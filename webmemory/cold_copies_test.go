package webmemory_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory/cold"
	webapi "mneme/webmemory/api"
)

// What was taken away of a chat that woke does not come back from the cold store when Redis loses its data.
func TestNothingTakenAwayComesBackFromTheColdStore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	ways := map[string]func(chat, note string){
		"note removed": func(chat, note string) {
			require.Equal(t, 204, w.Do("DELETE", "/v1/chats/"+chat+"/notes/"+note, nil).Status)
		},
		"note corrected": func(chat, note string) {
			require.Equal(t, 200, w.Do("PATCH", "/v1/chats/"+chat+"/notes/"+note, webapi.NoteChange{Text: "new"}).Status)
		},
		"title emptied": func(chat, _ string) {
			require.Equal(t, 200, w.Do("PATCH", "/v1/chats/"+chat, `{"title":""}`).Status)
		},
		"metadata changed": func(chat, _ string) {
			require.Equal(t, 200, w.Do("PATCH", "/v1/chats/"+chat, `{"metadata":{"k":"new"}}`).Status)
		},
		"quarantine released": func(chat, _ string) {
			require.Equal(t, 200, w.Do("DELETE", "/v1/chats/"+chat+"/quarantine?entry=secret", nil).Status)
		},
		"deleted by hand": func(chat, _ string) {
			require.NoError(t, w.Redis.Del(t.Context(), "chat_history:"+chat).Err())
			require.Equal(t, 200, w.Post(chat, "next").Status)
		},
	}
	chats, i := map[string]string{}, 0
	for name := range ways {
		chats[name] = fmt.Sprint("c", i)
		i++
		require.Equal(t, 200, w.Post(chats[name], "secret question").Status)
		require.Equal(t, 200, w.Do("PATCH", "/v1/chats/"+chats[name], `{"title":"secret","metadata":{"k":"secret"}}`).Status)
		doNote(t, w, 201, "POST", "/v1/chats/"+chats[name]+"/notes", `{"text":"secret"}`)
		require.Equal(t, 200, w.Do("POST", "/v1/chats/"+chats[name]+"/quarantine",
			webapi.Quarantine{Entries: []string{"secret"}}).Status)
		sleepAll(w, chats[name])
	}
	shown := func(name string) string {
		chat := "/v1/chats/" + chats[name]
		switch {
		case strings.HasPrefix(name, "note"):
			return string(w.Do("GET", chat+"/notes", nil).Body)
		case strings.HasPrefix(name, "quarantine"):
			return string(w.Do("GET", chat+"/quarantine", nil).Body)
		case strings.HasPrefix(name, "deleted"):
			return string(w.Do("GET", chat+"/history", nil).Body)
		}
		got := w.Do("GET", chat, nil)
		return string(got.Body) + string(w.Do("GET", "/v1/chats?order=used", nil).Body)
	}
	for name, way := range ways {
		require.Contains(t, shown(name), "secret", name)
		note := ""
		if strings.HasPrefix(name, "note") {
			note = listNotes(t, w, "/v1/chats/"+chats[name])[0].ID
		}
		way(chats[name], note)
		webmemorytest.Eventually(t, "the object of the chat is deleted: "+name, func() bool {
			_, err := s.Store.Get(t.Context(), objectOf(chats[name]))
			return err != nil
		})
	}
	require.Empty(t, s.names(t, cold.Chats))
	require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
	webmemorytest.Eventually(t, "the objects are listed anew", func() bool {
		return w.Redis.ZScore(t.Context(), "mneme:cold", "*filled").Err() == nil
	})
	for name := range ways {
		if name != "title emptied" && name != "metadata changed" { // a list shows the first message as the title
			require.NotContains(t, shown(name), "secret", name)
		}
	}
	require.NotContains(t, string(w.Do("GET", "/v1/chats?order=used", nil).Body), `"k":"secret"`)
}

// The object of a chat that woke goes once Redis has the chat on its disk, and not before. A removal waits for that.
func TestACopyStaysUntilRedisHasSavedTheChat(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewDurableWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	var deleted atomic.Int64
	before := func(op, name string) error {
		if op == "delete" && strings.HasPrefix(name, cold.Chats) {
			deleted.Store(time.Now().UnixMilli())
		}
		return nil
	}
	s.before.Store(&before)
	for chat, removes := range map[string]bool{"kept": false, "removed": true} {
		require.Equal(t, 200, w.Post(chat, "question").Status)
		note := doNote(t, w, 201, "POST", "/v1/chats/"+chat+"/notes", `{"text":"secret"}`)
		sleepAll(w, chat)
		deleted.Store(0)
		woken := time.Now()
		require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat+"/history", nil).Status)
		require.Equal(t, 200, w.Post(chat, "next").Status)
		require.Zero(t, deleted.Load(), "the first turn keeps the object")
		if removes {
			require.Equal(t, 204, w.Do("DELETE", "/v1/chats/"+chat+"/notes/"+note.ID, nil).Status)
			require.NotZero(t, deleted.Load())
		}
		webmemorytest.Eventually(t, "the object is deleted", func() bool { return len(s.names(t, cold.Chats)) == 0 })
		require.Greater(t, deleted.Load(), woken.Add(2*time.Second).UnixMilli())
		require.Len(t, w.History("chat_history:"+chat), 4)
		webmemorytest.Eventually(t, "the chat is not listed any more", func() bool {
			return w.Redis.ZCard(t.Context(), "mneme:woken").Val() == 0
		})
		sleepAll(w, chat)
		require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat+"/history", nil).Status)
		require.Len(t, w.History("chat_history:"+chat), 4)
		require.Equal(t, 200, w.Do("DELETE", "/v1/chats/"+chat, nil).Status)
	}
}

// dump returns all keys of Redis as they are, and load makes it have these alone, as another server.
func dump(w *webmemorytest.World) map[string]string {
	w.T.Helper()
	all := map[string]string{}
	for _, key := range w.Keys("") {
		value, err := w.Redis.Dump(w.T.Context(), key).Result()
		if err == nil {
			all[key] = value
		}
	}
	return all
}

func load(w *webmemorytest.World, all map[string]string) {
	w.T.Helper()
	_, err := w.Redis.TxPipelined(w.T.Context(), func(p redis.Pipeliner) error {
		p.FlushAll(w.T.Context())
		delete(all, "mneme:epoch")
		for key, value := range all {
			p.Restore(w.T.Context(), key, 0, value)
		}
		return nil
	})
	require.NoError(w.T, err)
}

// A chat wakes and has a turn, and Redis loses its last two seconds: the chat is whole.
func TestAWakeThatRedisLosesCostsNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewDurableWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	fillChat(w, "1")
	sleepAll(w, "1")
	before := dump(w)
	got := w.Post("1", "one more")
	require.Equal(t, 200, got.Status, string(got.Body))
	load(w, before)
	w.URL = w.StartReplica(sleepy(s, wakeful), shortened)
	export := string(w.Do("GET", "/v1/chats/1/export", nil).Body)
	for i := range 6 {
		require.Equal(t, 1, strings.Count(export, fmt.Sprintf(`"question %d`, i)), export)
	}
	webmemorytest.Eventually(t, "the turn comes back", func() bool {
		return strings.Contains(string(w.Do("GET", "/v1/chats/1/export", nil).Body), "one more")
	})
	require.Len(t, listNotes(t, w, "/v1/chats/1"), 1)
	require.Contains(t, string(w.Do("GET", "/v1/chats/1", nil).Body), "A title")
}
