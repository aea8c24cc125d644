package webmemory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/memory/cold"
	"mneme/webmemory"
)

// score is that of a hit, which falls with its age.
var score = regexp.MustCompile(`"score":[0-9.e-]+,`)

func TestASleepingChatComesBackByteForByte(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	fillChat(w, "A1")
	before := chatValues(w, "A1")
	require.Contains(t, before, "{chat_history:A1}:archive")
	require.Contains(t, before, "{subagent:analytic:A1}:meta")
	require.Contains(t, before, "{chat_history:A1}:notes")
	paths := []string{"/v1/chats/A1", "/v1/chats/A1/history?limit=100", "/v1/chats/A1/notes",
		"/v1/chats/A1/subagents/analytic/history", "/v1/chats/A1/export", "/v1/chats/A1/recall?query=question"}
	said := map[string]string{}
	for _, path := range paths {
		got := w.Do("GET", path, nil)
		require.Equal(t, 200, got.Status, path)
		said[path] = score.ReplaceAllString(string(got.Body), "")
	}
	stored := func() string { return w.Redis.HGet(ctx, "mneme:stored", "A1").Val() }
	size := 0
	for name, value := range before {
		switch value := value.(type) {
		case string:
			if !strings.Contains(name, ":damaged:") { // it was set aside
				size += len(value)
			}
		case map[string]string: // an archive, or a meta without bytes
			n, _ := strconv.Atoi(value["bytes"])
			size += n
		}
	}
	bytes := strconv.Itoa(size)
	webmemorytest.Eventually(t, "its bytes are counted", func() bool { return stored() == bytes })
	for _, path := range paths {
		ageChats(w, "A1")
		awaitSleep(w, "A1")
		require.Equal(t, bytes, stored(), "a chat that sleeps is stored, too")
		require.Equal(t, redis.Nil, w.Redis.Get(ctx, "chat_history:A1").Err(), "redis-cli shows none while it sleeps")
		list := w.Do("GET", "/v1/chats?order=used", nil)
		require.Contains(t, string(list.Body), `"asleep":true`)
		require.Contains(t, string(list.Body), `"title":"A title"`)
		require.Contains(t, string(list.Body), `"metadata":{"k":"v"}`)
		require.Empty(t, chatKeys(w, "A1"), "a list wakes no chat")

		got := w.Do("GET", path, nil)
		require.Equal(t, 200, got.Status, path+string(got.Body))
		require.Equal(t, said[path], score.ReplaceAllString(string(got.Body), ""))
		require.Equal(t, before, chatValues(w, "A1"))
		require.Equal(t, redis.Nil, w.Redis.ZScore(ctx, "mneme:cold", "A1").Err())
		require.NotContains(t, string(w.Do("GET", "/v1/chats?order=used", nil).Body), `"asleep"`)
	}
	ageChats(w, "A1")
	awaitSleep(w, "A1")
	got := w.Post("A1", "one more")
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, w.History("chat_history:A1"), "user: one more")
	require.Equal(t, before["{chat_history:A1}:notes"], chatValues(w, "A1")["{chat_history:A1}:notes"])
	require.Greater(t, len(chatValues(w, "A1")["{chat_history:A1}:archive"].(map[string]string)), 2)
}

// What another program writes under a sleeping chat's name stays, and is adopted as in a chat that is awake.
func TestAForeignWriteToASleepingChatIsAdopted(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful), shortened)
	fillChat(w, "1")
	notes := chatValues(w, "1")["{chat_history:1}:notes"]
	ageChats(w, "1")
	awaitSleep(w, "1")
	require.NoError(t, w.Redis.Set(ctx, "chat_history:1", `[{"role":"user","content":"by hand"}]`, 0).Err())
	got := w.Post("1", "next")
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, []string{"user: by hand", "user: next", "assistant: hello"}, w.History("chat_history:1"))
	require.Equal(t, notes, chatValues(w, "1")["{chat_history:1}:notes"])
	require.NotEmpty(t, w.History("subagent:analytic:1"))
}

// So is one to a chat of which a killed sweeper has left nothing but the place in the list.
func TestAForeignWriteToAChatThatFallsAsleepStays(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	fillChat(w, "1")
	ageChats(w, "1")
	awaitSleep(w, "1")
	by := `[{"role":"user","content":"by hand"}]`
	require.NoError(t, w.Redis.Set(ctx, "chat_history:1", by, 0).Err())
	require.NoError(t, w.Redis.ZAdd(ctx, "mneme:chats", redis.Z{Score: 1, Member: "1"}).Err())
	webmemorytest.Eventually(t, "it is awake", func() bool {
		return errors.Is(w.Redis.ZScore(ctx, "mneme:cold", "1").Err(), redis.Nil)
	})
	require.Equal(t, by, w.Redis.Get(ctx, "chat_history:1").Val())
	require.NotEmpty(t, w.History("subagent:analytic:1"))
}

// An object that is damaged is told by its name, changes nothing, and can be erased.
func TestADamagedObjectIsTold(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	name := cold.Name(cold.Chats, memory.MustChat("1"))
	require.Equal(t, 200, w.Post("1", "hi").Status)
	ageChats(w, "1")
	awaitSleep(w, "1")
	whole, err := s.Store.Get(ctx, name)
	require.NoError(t, err)
	for _, data := range [][]byte{whole[:len(whole)/2], nil} {
		if data == nil {
			require.NoError(t, s.Store.Delete(ctx, name))
		} else {
			require.NoError(t, s.Store.Put(ctx, name, data))
		}
		got := w.Do("GET", "/v1/chats/1/history", nil)
		require.Equal(t, 500, got.Status, string(got.Body))
		require.Contains(t, got.Problem(t).Message, name)
		require.NoError(t, w.Redis.ZScore(ctx, "mneme:cold", "1").Err())
		require.Equal(t, redis.Nil, w.Redis.Get(ctx, "chat_history:1").Err())
	}
	require.NoError(t, s.Store.Put(ctx, name, whole))
	require.Equal(t, 200, w.Do("GET", "/v1/chats/1/history", nil).Status)
	ageChats(w, "1")
	awaitSleep(w, "1")
	require.NoError(t, s.Store.Put(ctx, name, []byte("x")))
	got := w.Do("DELETE", "/v1/chats/1", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Empty(t, s.names(t, cold.Chats))
	require.Equal(t, redis.Nil, w.Redis.ZScore(ctx, "mneme:cold", "1").Err())
}

// Redis that lost everything is told by a list of the objects which chats sleep; until then each is found by its name.
func TestChatsSleepThroughTheLossOfRedis(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful))
	var said []string
	for i := range 5 {
		chat := fmt.Sprint("c", i)
		require.Equal(t, 200, w.Post(chat, "hi "+chat).Status)
		said = append(said, string(w.Do("GET", "/v1/chats/"+chat+"/history", nil).Body))
		ageChats(w, chat)
		awaitSleep(w, chat)
	}
	held := func(op, _ string) error {
		if op == "list" {
			return errAway
		}
		return nil
	}
	s.before.Store(&held)
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	require.Equal(t, said[0], string(w.Do("GET", "/v1/chats/c0/history", nil).Body), "found by its name")
	s.before.Store(nil)
	webmemorytest.Eventually(t, "the others are listed", func() bool {
		return w.Redis.ZCard(ctx, "mneme:cold").Val() == 5
	})
	list := string(w.Do("GET", "/v1/chats?order=used", nil).Body)
	for i := range 5 {
		require.Equal(t, 1, strings.Count(list, fmt.Sprintf(`"c%d"`, i)), list)
		require.Equal(t, said[i], string(w.Do("GET", fmt.Sprintf("/v1/chats/c%d/history", i), nil).Body))
	}
	require.Equal(t, 404, w.Do("GET", "/v1/chats/none/export", nil).Status)
}

// Two processes that have the same chats fall asleep and wake them at once lose nothing.
func TestTwoProcessesWakeTheSameChats(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, 10*time.Millisecond), shortened)
	urls := []string{w.URL, w.StartReplica(sleepy(s, 10*time.Millisecond), shortened)}
	const chats, rounds = 4, 12
	var asking sync.WaitGroup
	for i := range chats {
		for k, url := range urls {
			asking.Go(func() {
				for n := range rounds {
					body, _ := json.Marshal(webmemorytest.Message(fmt.Sprintf("m %d.%d", k, n)))
					req, _ := http.NewRequest("POST", fmt.Sprintf("%s/v1/chats/c%d/messages", url, i), bytes.NewReader(body))
					req.Header.Set("Content-Type", "application/json")
					if got := w.Send(req); got.Status != 200 {
						t.Errorf("%d %s", got.Status, got.Body)
					}
					time.Sleep(time.Duration(50+30*i+20*k) * time.Millisecond) // not to wait for something: it is the load
				}
			})
		}
	}
	asking.Wait()
	for _, url := range urls {
		w.Shutdown(url)
	}
	w.URL = w.StartReplica(sleepy(s, wakeful), shortened)
	for i := range chats {
		got := w.Do("GET", fmt.Sprintf("/v1/chats/c%d/export", i), nil)
		require.Equal(t, 200, got.Status)
		for k := range urls {
			for n := range rounds {
				require.Equal(t, 1, strings.Count(string(got.Body), fmt.Sprintf(`"m %d.%d"`, k, n)), "c%d: %d.%d", i, k, n)
			}
		}
	}
}

// A user's erasure and a fork wake the chats that sleep. A search in all of a user's chats only reads them.
func TestWhatReadsOtherChatsWakesThem(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx, s := context.Background(), newColdStore(t)
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sleepy(s, wakeful),
		func(c *webmemory.Config) { c.RecallEverywhere = 10 })
	say := func(chat string) {
		got := w.Do("POST", "/v1/chats/"+chat+"/messages", `{"message":"the parrot of `+chat+`","user":"ann"}`,
			"Content-Type", "application/json")
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	for _, chat := range []string{"c1", "c2"} {
		say(chat)
	}
	sleep := func() {
		for _, chat := range []string{"c1", "c2"} {
			ageChats(w, chat)
			awaitSleep(w, chat)
		}
	}
	sleep()
	got := w.Do("GET", "/v1/users/ann/recall?query=parrot", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), `"chat":"c1"`)
	require.Contains(t, string(got.Body), `"chat":"c2"`)
	got = w.Do("POST", "/v1/chats/c1/fork", `{"as":"c2"}`, "Content-Type", "application/json")
	require.Equal(t, 409, got.Status, "c2 only sleeps: %s", got.Body)
	require.Equal(t, 200, w.Do("PATCH", "/v1/chats/c2", `{"pinned":true}`, "Content-Type", "application/json").Status)
	sleep()
	pinned := string(w.Do("GET", "/v1/chats?order=pinned", nil).Body)
	require.Contains(t, pinned, `"asleep":true`)
	require.Contains(t, pinned, `"the parrot of c2"`)
	got = w.Do("DELETE", "/v1/users/ann?chats=true", nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, string(got.Body), `"c1"`)
	require.Contains(t, string(got.Body), `"c2"`)
	require.Empty(t, s.names(t, cold.Chats))
	require.Zero(t, w.Redis.ZCount(ctx, "mneme:cold", "(0", "+inf").Val()-1, "all but that they are listed")
}
