package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// listChats reads the list of chats in the order of use, limit entries at a time.
func listChats(t *testing.T, w *webmemorytest.World, q string, limit int) (all []webapi.ChatEntry) {
	t.Helper()
	for cursor := ""; ; {
		page := chatsByUse(t, w, q, cursor, limit)
		require.LessOrEqual(t, len(page.Chats), limit)
		all = append(all, page.Chats...)
		if cursor = page.NextCursor; cursor == "" {
			return all
		}
	}
}

// chatsByUse reads one page of that list.
func chatsByUse(t *testing.T, w *webmemorytest.World, q, cursor string, limit int) (page webapi.ChatList) {
	t.Helper()
	query := url.Values{"order": {"used"}, "q": {q}, "limit": {strconv.Itoa(limit)}, "cursor": {cursor}}
	got := w.Do("GET", "/v1/chats?"+query.Encode(), nil)
	require.Equal(t, 200, got.Status, string(got.Body))
	require.NoError(t, json.Unmarshal(got.Body, &page))
	return page
}

// awaitIdle waits until the chats have no open run.
func awaitIdle(w *webmemorytest.World, chats ...string) {
	for _, chat := range chats {
		webmemorytest.Eventually(w.T, "the run is over", func() bool {
			return !w.Redis.HExists(w.T.Context(), "{chat_history:"+chat+"}:meta", "open").Val()
		})
	}
}

func idsOf(entries []webapi.ChatEntry) (ids []string) {
	for _, e := range entries {
		ids = append(ids, e.ChatID.ID())
	}
	return ids
}

// chatTitle returns the title of a chat in the list. It reports whether the chat is listed.
func chatTitle(t *testing.T, w *webmemorytest.World, chat string) (title string, ok bool) {
	t.Helper()
	for _, e := range listChats(t, w, "", 100) {
		if e.ChatID.ID() == chat {
			return e.Title, true
		}
	}
	return "", false
}

// The list shows what was used last first, how each chat began, and what it does.
func TestChatsInTheOrderOfUse(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		if r.Message == "wait" {
			webmemorytest.AnswersAfter(release)(ctx, r, emit)
			return
		}
		webmemorytest.Answers("hello")(ctx, r, emit)
	}, func(c *webmemory.Config) { c.MaxHistory = 4 })
	before := time.Now().Add(-time.Second)
	for _, chat := range []string{"a", "b", "moved", "d"} {
		got := w.Post(chat, "Who\nis\u0007 "+chat+"?")
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	for i := range 4 {
		w.Post("b", "more "+strconv.Itoa(i))
	}
	w.PostStream("a", "wait").Until("subagent_delegation")
	awaitIdle(w, "b", "d", "moved")
	all := listChats(t, w, "", 100)
	require.Equal(t, []string{"a", "b", "d", "moved"}, idsOf(all))
	require.Equal(t, "Who is b?", all[1].Title)
	require.Equal(t, 10, all[1].Messages) // most of them in the archive
	require.Equal(t, webapi.ChatBusy, all[0].State)
	require.Empty(t, all[1].State)
	require.Greater(t, all[1].Used, all[2].Used)
	require.WithinRange(t, time.UnixMilli(int64(all[3].Used*1000)), before, time.Now().Add(time.Second))
	for limit := 1; limit < 6; limit++ {
		require.Equal(t, idsOf(all), idsOf(listChats(t, w, "", limit)), limit)
	}
	require.Equal(t, []string{"b"}, idsOf(listChats(t, w, "IS B", 1)))
	require.Equal(t, []string{"moved"}, idsOf(listChats(t, w, "MOVE", 1)))
	require.Empty(t, listChats(t, w, "nobody", 10))

	require.NoError(t, w.Redis.HSet(t.Context(), "{chat_history:d}:meta", "waits", `{"run":"x","turn":1}`).Err())
	require.Equal(t, webapi.ChatWaiting, listChats(t, w, "", 100)[2].State)
	require.NoError(t, w.Redis.HDel(t.Context(), "{chat_history:d}:meta", "waits").Err())

	for query, want := range map[string]string{
		"order=size": "order is used", "q=a": "q goes with order=used", "order=used&cursor=x": "no cursor",
		"order=used&cursor=1.a/b": "no cursor", "order=used&limit=0": "limit", "order=used&q=" + strings.Repeat("x", 300): "256",
	} {
		got := w.Do("GET", "/v1/chats?"+query, nil)
		require.Equal(t, http.StatusBadRequest, got.Status, query)
		require.Contains(t, string(got.Body), want)
	}
	// A cursor goes on from its place also when the chat there is used again, or gone.
	next := chatsByUse(t, w, "", "", 2).NextCursor
	w.Post("b", "once more")
	rest := chatsByUse(t, w, "", next, 10)
	require.Equal(t, []string{"d", "moved"}, idsOf(rest.Chats))
}

// A chat is given a title and metadata by any client that knows it, while it is busy too.
func TestChangingWhatAListSays(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	w.Post("1", "first words")
	awaitIdle(w, "1")
	c, chat := newClient(t, w), memory.MustChat("1")
	say := func(title string) *string { return &title }
	e, err := c.ChangeChat(t.Context(), chat,
		webapi.ChatChange{Title: say(" Own\n title "), Metadata: &map[string]string{"user": "ann"}})
	require.NoError(t, err)
	require.Equal(t, "Own title", e.Title)
	require.Equal(t, map[string]string{"user": "ann"}, e.Metadata)
	require.Equal(t, 2, e.Messages)
	require.NotZero(t, e.Used)
	require.Equal(t, []webapi.ChatEntry{e}, listChats(t, w, "own", 10))
	e, err = c.ChangeChat(t.Context(), chat, webapi.ChatChange{})
	require.NoError(t, err)
	require.Equal(t, "Own title", e.Title)
	e, err = c.ChangeChat(t.Context(), chat, webapi.ChatChange{Title: say(""), Metadata: &map[string]string{}})
	require.NoError(t, err)
	require.Equal(t, "first words", e.Title)
	require.Nil(t, e.Metadata)

	many := map[string]string{}
	for i := range 17 {
		many[strconv.Itoa(i)] = "x"
	}
	for want, body := range map[string]any{
		"title has 513 bytes": webapi.ChatChange{Title: say(strings.Repeat("x", 513))},
		"at most 16":          webapi.ChatChange{Metadata: &many},
		"made goes with":      webapi.ChatChange{Generated: true},
		"titel":               `{"titel":"x"}`,
	} {
		got := w.Do("PATCH", "/v1/chats/1", body)
		require.Equal(t, http.StatusBadRequest, got.Status, want)
		require.Contains(t, string(got.Body), want)
	}
	got := w.Do("PATCH", "/v1/chats/nobody", webapi.ChatChange{Title: say("x")})
	require.Equal(t, http.StatusNotFound, got.Status)
	require.Equal(t, "unknown_chat", got.Problem(t).Code)
	require.Zero(t, w.Redis.Exists(t.Context(), "{chat_history:nobody}:meta").Val())
}

// Pinned chats are listed by themselves, those used last first, and stand among the others as before. A pin goes with
// its chat.
func TestPinnedChats(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	c, yes, no := newClient(t, w), true, false
	pin := func(chat string, pinned *bool) {
		t.Helper()
		e, err := c.ChangeChat(t.Context(), memory.MustChat(chat), webapi.ChatChange{Pinned: pinned})
		require.NoError(t, err)
		require.Equal(t, *pinned, e.Pinned)
	}
	pins := func(q string) []string {
		t.Helper()
		var page webapi.ChatList
		got := w.Do("GET", "/v1/chats?order=pinned&q="+q, nil)
		require.Equal(t, 200, got.Status, string(got.Body))
		require.NoError(t, json.Unmarshal(got.Body, &page))
		require.Empty(t, page.NextCursor)
		for _, e := range page.Chats {
			require.True(t, e.Pinned)
			require.NotEmpty(t, e.Title)
		}
		return idsOf(page.Chats)
	}
	require.Empty(t, pins(""))
	for _, chat := range []string{"a", "b", "c", "d"} {
		w.Post(chat, "I am "+chat)
	}
	awaitIdle(w, "a", "b", "c", "d")
	pin("a", &yes)
	pin("c", &yes)
	pin("c", &yes)
	require.Equal(t, []string{"c", "a"}, pins(""))
	require.Equal(t, []string{"a"}, pins("AM+A"))
	for limit := 1; limit < 8; limit++ {
		all := listChats(t, w, "", limit)
		require.Equal(t, []string{"d", "c", "b", "a"}, idsOf(all), limit)
		require.Equal(t, []bool{false, true, false, true}, []bool{all[0].Pinned, all[1].Pinned, all[2].Pinned, all[3].Pinned})
	}
	w.Post("a", "once more")
	awaitIdle(w, "a")
	require.Equal(t, []string{"a", "c"}, pins(""))
	e, err := c.ChangeChat(t.Context(), memory.MustChat("a"), webapi.ChatChange{})
	require.NoError(t, err)
	require.True(t, e.Pinned, "what is left out stays")
	pin("a", &no)
	require.Equal(t, []string{"c"}, pins(""))
	require.Equal(t, 404, w.Do("PATCH", "/v1/chats/nobody", webapi.ChatChange{Pinned: &yes}).Status)

	pin("b", &yes)
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/c", nil).Status)
	require.Equal(t, []string{"b"}, pins(""))
	// A chat that an operator deleted by hand, long ago.
	require.NoError(t, w.Redis.Del(t.Context(), "chat_history:b", "{chat_history:b}:meta").Err())
	require.NoError(t, w.Redis.ZAdd(t.Context(), "mneme:chats", redis.Z{Score: 1, Member: "b"}).Err())
	require.Empty(t, pins(""))
	left := w.Redis.ZRange(t.Context(), "mneme:chats", 0, -1).Val()
	require.NotContains(t, strings.Join(left, " "), "pin")
}

// A title that was made from the first message is hidden by one that a user sets, and goes with the message.
func TestATitleThatWasMade(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	c, chat := newClient(t, w), memory.MustChat("1")
	shows := func(want string, change webapi.ChatChange) {
		t.Helper()
		e, err := c.ChangeChat(t.Context(), chat, change)
		require.NoError(t, err)
		require.Equal(t, want, e.Title)
	}
	own, none, made, late := "Own", "", "A secret", "Once more the secret"
	w.Post("1", "my secret is 4471")
	awaitIdle(w, "1")
	shows("Own", webapi.ChatChange{Title: &own})
	shows("Own", webapi.ChatChange{Title: &made, Generated: true})
	shows("A secret", webapi.ChatChange{Title: &none})
	first := storedIDs(w, "chat_history:1")[0]
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1/messages/"+first, nil).Status)
	shows(memory.RedactedText, webapi.ChatChange{})
	shows(memory.RedactedText, webapi.ChatChange{Title: &late, Generated: true}) // it was asked for before
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/1", nil).Status)
	got := w.Do("PATCH", "/v1/chats/1", webapi.ChatChange{Title: &late, Generated: true})
	require.Equal(t, http.StatusNotFound, got.Status)
	require.NotContains(t, w.Redis.HGetAll(t.Context(), "{chat_history:1}:meta").Val(), "begins")
}

// What takes a chat away takes its title too; what only changes it keeps it in the list.
func TestTitlesGoWithWhatTheyWereMadeFrom(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	c := newClient(t, w)
	post := func(chat, text string) {
		t.Helper()
		got := w.Post(chat, text)
		require.Equal(t, 200, got.Status, string(got.Body))
	}
	gone := func(chat string) {
		t.Helper()
		_, there := chatTitle(t, w, chat)
		require.False(t, there)
		for _, key := range w.Redis.Keys(t.Context(), "*").Val() {
			if w.Redis.Type(t.Context(), key).Val() == "hash" {
				require.NotContains(t, fmt.Sprint(w.Redis.HGetAll(t.Context(), key).Val()), sentinel, key)
			}
		}
	}
	chats := map[string]memory.Chat{}
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		chats[id] = memory.MustChat(id)
		post(id, sentinel)
	}
	_, err := c.EraseChat(t.Context(), chats["1"])
	require.NoError(t, err)
	require.Error(t, w.Redis.ZScore(t.Context(), "mneme:chats", "1").Err())
	_, there := chatTitle(t, w, "1")
	require.False(t, there)

	_, err = c.EraseHistory(t.Context(), memory.ChatKey(chats["2"]))
	require.NoError(t, err)
	title, _ := chatTitle(t, w, "2")
	require.Empty(t, title)
	post("2", "something else")
	title, _ = chatTitle(t, w, "2")
	require.Equal(t, "something else", title)

	page, err := c.Page(t.Context(), memory.ChatKey(chats["3"]), 0, 1)
	require.NoError(t, err)
	_, err = c.Redact(t.Context(), memory.ChatKey(chats["3"]), memory.IDs(page.Messages)[0], false, false)
	require.NoError(t, err)
	title, _ = chatTitle(t, w, "3")
	require.Equal(t, memory.RedactedText, title)

	// A title that was set may say what was redacted in other words.
	titled, fork, own := memory.MustChat("titled"), memory.MustChat("titled.fork"), "About words"
	post("titled", "first words")
	_, err = c.ChangeChat(t.Context(), titled, webapi.ChatChange{Title: &own})
	require.NoError(t, err)
	_, err = c.Fork(t.Context(), titled, webapi.ForkRequest{As: fork})
	require.NoError(t, err)
	title, _ = chatTitle(t, w, fork.ID())
	require.Equal(t, own, title, "a fork is called as its source is")
	page, err = c.Page(t.Context(), memory.ChatKey(titled), -1, 1)
	require.NoError(t, err)
	_, err = c.Redact(t.Context(), memory.ChatKey(titled), memory.IDs(page.Messages)[0], false, false)
	require.NoError(t, err)
	title, _ = chatTitle(t, w, "titled")
	require.Equal(t, "first words", title)

	aside, err := c.Rewind(t.Context(), chats["4"], nil)
	require.NoError(t, err)
	title, there = chatTitle(t, w, "4")
	require.True(t, there)
	require.Empty(t, title)
	_, err = c.Restore(t.Context(), chats["4"], aside.ID)
	require.NoError(t, err)
	title, _ = chatTitle(t, w, "4")
	require.Equal(t, sentinel, title)
	_, err = c.Rewind(t.Context(), chats["4"], nil)
	require.NoError(t, err)
	post("4", "another beginning")
	title, _ = chatTitle(t, w, "4")
	require.Equal(t, "another beginning", title)

	as := memory.MustChat("fork")
	_, err = c.Fork(t.Context(), chats["5"], webapi.ForkRequest{As: as})
	require.NoError(t, err)
	require.Equal(t, "fork", listChats(t, w, "", 1)[0].ChatID.ID())
	title, _ = chatTitle(t, w, "fork")
	require.Equal(t, sentinel, title)
	status, body := w.Do("POST", "/v1/chats/import/import", webmemorytest.ExportLines(3, 0)).Text()
	require.Equal(t, 201, status, body)
	title, _ = chatTitle(t, w, "import")
	require.Equal(t, "question 0 — ё <b>", title)

	for _, id := range []string{"4", "5", "fork"} {
		_, err = c.EraseChat(t.Context(), memory.MustChat(id))
		require.NoError(t, err)
	}
	gone("5")

	// Deleted by hand.
	require.NoError(t, w.Redis.Del(t.Context(), "chat_history:import").Err())
	title, _ = chatTitle(t, w, "import")
	require.Empty(t, title)

	// A message that was refused leaves nothing.
	w.LoseRuns()
	require.NotEqual(t, 200, w.Post("refused", sentinel).Status)
	gone("refused")
}

// Chats that a version without the list has stored come into it when a process starts, once, however many start at
// the same time, and so do those that another program wrote.
func TestChatsOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 4 })
	var want []string
	for i := range 30 {
		chat := fmt.Sprintf("chat-%02d", i)
		want = append(want, chat)
		if i%3 == 0 {
			status, body := w.Do("POST", "/v1/chats/"+chat+"/import", webmemorytest.ExportLines(10, 0)).Text()
			require.Equal(t, 201, status, body)
		} else {
			w.Post(chat, "words of "+chat)
		}
	}
	listed := listChats(t, w, "", 7)
	slices.Reverse(want)
	require.Equal(t, want, idsOf(listed))
	webmemorytest.Eventually(t, "the first process has listed all", func() bool {
		return w.Redis.ZScore(t.Context(), "mneme:chats", "*filled").Err() == nil
	})
	require.NoError(t, w.Redis.Del(t.Context(), "mneme:chats").Err())
	for _, chat := range want {
		require.NoError(t, w.Redis.HDel(t.Context(), "{chat_history:"+chat+"}:meta", "begins").Err())
	}
	require.NoError(t, w.Redis.Set(t.Context(), "chat_history:foreign", `[{"role":"system","content":"x"},
		{"role":"user","content":"Grüezi"}]`, 0).Err())
	for range 2 {
		w.StartReplica()
	}
	webmemorytest.Eventually(t, "all are listed", func() bool {
		return w.Redis.ZScore(t.Context(), "mneme:chats", "*filled").Err() == nil
	})
	again := listChats(t, w, "", 7)
	require.Equal(t, append(want, "foreign"), idsOf(again))
	for i, e := range listed {
		require.Equal(t, e.Title, again[i].Title)
		require.Equal(t, e.Messages, again[i].Messages)
		require.NotEmpty(t, w.Redis.HGet(t.Context(), "{chat_history:"+e.ChatID.ID()+"}:meta", "begins").Val())
	}
	require.Equal(t, "Grüezi", again[30].Title)
	require.Equal(t, 2, again[30].Messages)
	require.Zero(t, again[30].Used)
	require.Equal(t, []string{"chat-08"}, idsOf(listChats(t, w, "WORDS OF CHAT-08", 10)))
}

// A process with more shards lists every chat and pin of the one before it, which still works on, and erases from all keys.
func TestListsInMoreShards(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	before := w.URL
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf("chat-%02d", i))
		w.Post(want[i], "hello")
	}
	require.Equal(t, 200, w.Do("PATCH", "/v1/chats/chat-03", map[string]any{"pinned": true}).Status)
	w.ListShards = 512
	after := w.StartReplica()
	for _, by := range []string{before, after, before} {
		w.URL = by
		want = append(want, fmt.Sprintf("chat-%02d", len(want)))
		w.Post(want[len(want)-1], "hello")
	}
	w.URL = after
	slices.Reverse(want)
	require.Equal(t, want, idsOf(listChats(t, w, "", 4)))
	webmemorytest.Eventually(t, "the lists are gathered", func() bool {
		left := w.Redis.ZRange(t.Context(), "mneme:chats", 0, -1).Val()
		return slices.Equal(left, []string{"*filled#512", "*filled"})
	})
	require.Equal(t, want, idsOf(listChats(t, w, "", 4)))
	for _, e := range listChats(t, w, "", 100) {
		require.Equal(t, e.ChatID.ID() == "chat-03", e.Pinned)
		require.NotZero(t, e.Used)
	}
	var pinned webapi.ChatList
	require.NoError(t, json.Unmarshal(w.Do("GET", "/v1/chats?order=pinned", nil).Body, &pinned))
	require.Equal(t, []string{"chat-03"}, idsOf(pinned.Chats))
	require.NotZero(t, pinned.Chats[0].Used)
	require.Equal(t, 200, w.Do("DELETE", "/v1/chats/chat-03", nil).Status)
	for _, key := range w.Redis.Keys(t.Context(), "mneme:chats*").Val() {
		for _, member := range w.Redis.ZRange(t.Context(), key, 0, -1).Val() {
			require.NotContains(t, member, "chat-03")
		}
	}
}

// A search looks at so many chats and no more, and its cursor goes on; places of the same time are in it each once.
func TestSearchingManyChats(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"))
	webmemorytest.Eventually(t, "the process has listed all", func() bool {
		return w.Redis.ZScore(t.Context(), "mneme:chats", "*filled").Err() == nil
	})
	var members []redis.Z
	_, err := w.Redis.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 5000 {
			id := fmt.Sprintf("c%04d", i)
			p.HSet(t.Context(), "{chat_history:"+id+"}:meta", "begins", "x.1 title "+strconv.Itoa(i))
			members = append(members, redis.Z{Score: float64(1000 + i/2500), Member: id})
		}
		return p.ZAdd(t.Context(), "mneme:chats", members...).Err()
	})
	require.NoError(t, err)
	var page webapi.ChatList
	got := w.Do("GET", "/v1/chats?order=used&q=title+7", nil)
	require.NoError(t, json.Unmarshal(got.Body, &page))
	require.Empty(t, page.Chats) // those of 2500 to 4999 come first
	require.NotEmpty(t, page.NextCursor)
	require.Len(t, listChats(t, w, "title 7", 50), 111)
	require.Len(t, listChats(t, w, "c0123", 50), 1)

	// The place of a cursor may leave the list.
	first := chatsByUse(t, w, "", "", 10)
	require.NoError(t, w.Redis.ZRem(t.Context(), "mneme:chats", first.Chats[9].ChatID.ID()).Err())
	rest := chatsByUse(t, w, "", first.NextCursor, 10)
	require.Equal(t, "c4989", rest.Chats[0].ChatID.ID())
	require.Len(t, listChats(t, w, "", 1000), 4999)
}
