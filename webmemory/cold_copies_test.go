package webmemory_test

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/cold"
	webapi "mneme/webmemory/api"
)

// Removed parts of a chat that woke do not return from the cold store when Redis loses its data.
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

// A chat wakes and has a turn, and Redis loses its last two seconds: the chat is whole.
func TestAWakeThatRedisLosesCostsNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewDurableWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	fillChat(w, "1")
	sleepAll(w, "1")
	before := dumpRedis(w)
	got := w.Post("1", "one more")
	require.Equal(t, 200, got.Status, string(got.Body))
	delete(before, "mneme:epoch") // as another server
	loadRedis(w, before)
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

// An object that another version left behind brings back no history that was deleted by hand later.
func TestAnOldObjectBringsBackNoDeletedHistory(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	require.Equal(t, 200, w.Post("1", "secret").Status)
	doNote(t, w, 201, "POST", "/v1/chats/1/notes", `{"text":"a note"}`)
	sleepAll(w, "1")
	object, err := s.Store.Get(t.Context(), objectOf("1"))
	require.NoError(t, err)
	require.Contains(t, string(w.Do("GET", "/v1/chats/1/history", nil).Body), "secret")
	require.NoError(t, w.Redis.Del(t.Context(), "chat_history:1").Err())
	doNote(t, w, 201, "POST", "/v1/chats/1/notes", `{"text":"another note"}`) // its turn notices the missing history
	webmemorytest.Eventually(t, "the object is deleted", func() bool { return len(s.names(t, cold.Chats)) == 0 })

	require.NoError(t, s.Store.Delete(t.Context(), cold.Name(cold.Erased, memory.MustChat("1"))))
	require.NoError(t, s.Store.Put(t.Context(), objectOf("1"), object))
	require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
	webmemorytest.Eventually(t, "the chat wakes", func() bool { return len(listNotes(t, w, "/v1/chats/1")) == 1 })
	require.NotContains(t, string(w.Do("GET", "/v1/chats/1/history", nil).Body), "secret")
	require.NotEmpty(t, w.History("subagent:analytic:1"))
}

// A history that is missing beside its meta right after Redis lost data was lost. It comes back, and its object stays.
func TestAHistoryThatRedisLostWasNotDeletedByHand(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	require.Equal(t, 200, w.Post("1", "question").Status)
	sleepAll(w, "1")
	require.Equal(t, 200, w.Do("GET", "/v1/chats/1/history", nil).Status)
	require.Equal(t, 200, w.Post("1", "second").Status)
	require.NoError(t, w.Redis.Del(t.Context(), "chat_history:1", "mneme:epoch").Err())
	require.Equal(t, 200, w.Post("1", "third").Status)
	require.Equal(t, []string{"user: question", "assistant: hello", "user: second", "assistant: hello", "user: third",
		"assistant: hello"}, w.History("chat_history:1"))
	require.Len(t, s.names(t, cold.Chats), 1)
}

// A process that takes the sleep of a chat for a loss writes back its copy, which is older than the object. The wake
// joins both. After a loss of all data, this also holds before the objects are listed.
func TestAnOlderCopyThatWasWrittenBackCostsNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	for name, flushed := range map[string]bool{"listed": false, "not listed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newColdStore(t)
			w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
			require.Equal(t, 200, w.Post("1", "first").Status)
			before := dumpRedis(w)
			maps.DeleteFunc(before, func(key, _ string) bool { return !strings.Contains(key, "chat_history:1") })
			require.Equal(t, 200, w.Post("1", "second").Status)
			sleepAll(w, "1")
			w.Shutdown(w.URL)
			if flushed {
				unlisted := func(op, _ string) error {
					if op == "list" {
						return errAway
					}
					return nil
				}
				s.before.Store(&unlisted)
				require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
			}
			w.URL = w.StartReplica(sleepy(s, wakeful), webmemorytest.OwnDisk(t))
			for key, dump := range before {
				require.NoError(t, w.Redis.Restore(t.Context(), key, 0, dump).Err())
			}
			require.Contains(t, string(w.Do("GET", "/v1/chats/1/history", nil).Body), "second")
			require.Equal(t, 200, w.Post("1", "third").Status)
			require.Equal(t, []string{"user: first", "assistant: hello", "user: second", "assistant: hello", "user: third",
				"assistant: hello"}, w.History("chat_history:1"))
		})
	}
}

// If Redis lost the wake of a chat, it lists the chat as sleeping, although the object was deleted. The chat wakes with
// the messages that a process wrote back.
func TestAChatWithoutItsObjectWakesWithWhatWasWrittenBack(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	require.Equal(t, 200, w.Post("1", "first").Status)
	before := dumpRedis(w)
	sleepAll(w, "1")
	require.NoError(t, s.Store.Delete(t.Context(), objectOf("1")))
	require.Equal(t, 500, w.Do("GET", "/v1/chats/1/history", nil).Status, "nothing was written back")
	for _, key := range []string{"chat_history:1", "{chat_history:1}:meta"} {
		require.NoError(t, w.Redis.RestoreReplace(t.Context(), key, 0, before[key]).Err())
	}
	require.Equal(t, 200, w.Post("1", "second").Status)
	require.Equal(t, []string{"user: first", "assistant: hello", "user: second", "assistant: hello"},
		w.History("chat_history:1"))
}

// Messages missing between an archive and its history are reported, also after a sleep and after trims.
func TestAGapAfterAnArchiveIsReportedEverywhere(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	say := func(chat string, from, to int) {
		for i := from; i < to; i++ {
			got := w.Post(chat, fmt.Sprintf("question %d.", i))
			require.Equal(t, 200, got.Status, string(got.Body))
		}
	}
	say("gap", 0, 10)
	say("whole", 0, 10)
	sleepAll(w, "gap", "whole")
	say("gap", 10, 30) // all of 10 to 20 moves into the archive in Redis
	require.Equal(t, 200, w.Do("GET", "/v1/chats/whole/history", nil).Status)
	require.NotContains(t, string(w.Do("GET", "/v1/chats/gap/export", nil).Body), `"missing"`)
	require.NoError(t, w.Redis.FlushAll(t.Context()).Err())
	webmemorytest.Eventually(t, "the histories are written back, and the objects are listed", func() bool {
		return w.Redis.Exists(t.Context(), "chat_history:gap", "chat_history:whole").Val() == 2 &&
			w.Redis.ZScore(t.Context(), "mneme:cold", "gap").Err() == nil
	})
	check := func() {
		t.Helper()
		export := string(w.Do("GET", "/v1/chats/gap/export", nil).Body)
		require.Contains(t, export, `"question 0."`)
		require.NotContains(t, export, `"question 15."`)
		require.Contains(t, export, `"question 29."`)
		require.Equal(t, 1, strings.Count(export, `{"missing":`), export)
		before, after, _ := strings.Cut(export, `{"missing":`)
		require.Contains(t, before, `"question 5."`)
		require.NotContains(t, before, `"question 29."`)
		require.Contains(t, after, `"question 29."`)
		page := string(w.Do("GET", "/v1/chats/gap/history?archive=true&limit=1000", nil).Body)
		require.Equal(t, 1, strings.Count(page, `"damaged":[{`), page)
		require.Contains(t, string(w.Do("GET", "/v1/chats/gap/recall?query=question", nil).Body), `"partial":true`)
		export = string(w.Do("GET", "/v1/chats/whole/export", nil).Body)
		require.NotContains(t, export, `"missing"`)
		for i := range 10 {
			require.Equal(t, 1, strings.Count(export, fmt.Sprintf(`"question %d."`, i)), "%d %s", i, export)
		}
		require.Contains(t, string(w.Do("GET", "/v1/chats/whole/recall?query=question", nil).Body), `"partial":false`)
	}
	check()
	sleepAll(w, "gap", "whole")
	check()
	say("gap", 30, 40)
	say("whole", 30, 40)
	check()
	sleepAll(w, "gap", "whole")
	check()
	rewound := w.Do("POST", "/v1/chats/whole/rewind", `{"to":"`+messageIDs(t, w, "whole")[32]+`"}`)
	require.Equal(t, 200, rewound.Status, string(rewound.Body))
	check()
}
