package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

func newClient(t *testing.T, w *webmemorytest.World) *webapi.Client {
	t.Helper()
	c, err := webapi.New(w.URL)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func chatKey(t *testing.T, id string) memory.Key {
	t.Helper()
	chat, err := memory.ParseChat(id)
	require.NoError(t, err)
	return memory.ChatKey(chat)
}

// contents are what the messages of a page say.
func contents(t *testing.T, p webapi.HistoryPage) (out []string) {
	t.Helper()
	for _, raw := range p.Messages {
		var m memory.Message
		require.NoError(t, json.Unmarshal(raw, &m))
		out = append(out, m.Content)
	}
	return out
}

// A page counts the archive and what is at hand as one sequence, from either end.
func TestPagesOverTheArchive(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 20 })
	status, body := w.Do("POST", "/v1/chats/old/import", webmemorytest.ExportLines(300, 300)).Text()
	require.Equal(t, 201, status, body)
	var all []string
	for i := range 300 {
		all = append(all, fmt.Sprintf("question %d — ё <b>", i), fmt.Sprintf("answer %d", i))
	}
	c, own := newClient(t, w), chatKey(t, "old")
	for _, key := range []memory.Key{own, memory.SubagentKey("analytic", own.Chat())} {
		for _, offset := range []int{0, 1, 250, 255, 256, 257, 560, 579, 580, 581, 599, 600, 700, -1, -20, -30, -600, -1000} {
			for _, limit := range []int{1, 40, 1000} {
				from := offset
				if from < 0 {
					from = max(600+from, 0)
				}
				from = min(from, 600)
				to := min(from+limit, 600)
				page, err := c.PageOf(t.Context(), key, webapi.PageQuery{Offset: offset, Limit: limit, Archive: true})
				require.NoError(t, err)
				require.Equal(t, 600, page.Total)
				require.Equal(t, from, page.Offset)
				require.Equal(t, append([]string(nil), all[from:to]...), contents(t, page), "%d, %d", offset, limit)
				require.Equal(t, to%600, page.NextOffset)
				require.Empty(t, page.Damaged)
			}
		}
	}
	hot, err := c.Page(t.Context(), own, 0, 100)
	require.NoError(t, err)
	require.LessOrEqual(t, hot.Total, 20)
	empty, err := c.PageOf(t.Context(), chatKey(t, "none"), webapi.PageQuery{Archive: true})
	require.NoError(t, err)
	require.Zero(t, empty.Total)
	status, body = w.Do("GET", "/v1/chats/old/history?archive=yes", nil).Text()
	require.Equal(t, 400, status)
	require.Contains(t, body, "archive is true or false")
}

// While turns trim the history, a page has each message once.
func TestPagesOfAnArchiveThatGrows(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 4 })
	c := newClient(t, w)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for i := range 30 {
			w.Post("g", "m"+strconv.Itoa(i))
		}
	})
	look := func() {
		page, err := c.PageOf(t.Context(), chatKey(t, "g"), webapi.PageQuery{Limit: 1000, Archive: true})
		require.NoError(t, err)
		require.Len(t, page.Messages, page.Total)
		for i, text := range contents(t, page) {
			if i%2 == 0 {
				require.Equal(t, "m"+strconv.Itoa(i/2), text)
			}
		}
	}
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		look()
	}
	wg.Wait()
	page, err := c.PageOf(t.Context(), chatKey(t, "g"), webapi.PageQuery{Archive: true})
	require.NoError(t, err)
	require.Equal(t, 60, page.Total)
}

// A part of the archive that cannot be read is named, and the rest is there.
func TestPagesWithADamagedSegment(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 20 })
	status, body := w.Do("POST", "/v1/chats/old/import", webmemorytest.ExportLines(500, 0)).Text()
	require.Equal(t, 201, status, body)
	c, own, archive := newClient(t, w), chatKey(t, "old"), "{chat_history:old}:archive"
	whole, err := c.PageOf(t.Context(), own, webapi.PageQuery{Limit: 1000, Archive: true})
	require.NoError(t, err)
	positions := map[int]int{} // of segments, and how many messages they have
	for field, about := range w.Redis.HGetAll(t.Context(), archive).Val() {
		if position, is := strings.CutSuffix(field, ":about"); is {
			at, err := strconv.Atoi(position)
			require.NoError(t, err)
			_, err = fmt.Sscan(about, new(int))
			require.NoError(t, err)
			n, err := strconv.Atoi(strings.Fields(about)[0])
			require.NoError(t, err)
			positions[at] = n
		}
	}
	require.GreaterOrEqual(t, len(positions), 3)
	second := positions[0]
	require.NoError(t, w.Redis.HSet(t.Context(), archive, strconv.Itoa(second), sentinel).Err())

	page, err := c.PageOf(t.Context(), own, webapi.PageQuery{Offset: second - 2, Limit: 10, Archive: true})
	require.NoError(t, err)
	require.Equal(t, []webapi.HistoryGap{{Offset: second, Messages: 8}}, page.Damaged)
	require.Equal(t, whole.Messages[second-2:second], page.Messages)
	require.Equal(t, second+8, page.NextOffset)
	inside, err := c.PageOf(t.Context(), own, webapi.PageQuery{Offset: second + 3, Limit: 4, Archive: true})
	require.NoError(t, err)
	require.Empty(t, inside.Messages)
	require.Equal(t, []webapi.HistoryGap{{Offset: second + 3, Messages: 4}}, inside.Damaged)

	// Nothing says any more how many messages the first one has.
	require.NoError(t, w.Redis.HDel(t.Context(), archive, "0:about").Err())
	page, err = c.PageOf(t.Context(), own, webapi.PageQuery{Limit: 1000, Archive: true})
	require.NoError(t, err)
	require.Equal(t, 1000-second, page.Total)
	require.Equal(t, []webapi.HistoryGap{{}, {Messages: positions[second]}}, page.Damaged)
	require.Equal(t, whole.Messages[second+positions[second]:], page.Messages)

	// What is not on the page is not looked at.
	page, err = c.PageOf(t.Context(), own, webapi.PageQuery{Offset: -30, Archive: true})
	require.NoError(t, err)
	require.Empty(t, page.Damaged)
	require.Equal(t, whole.Messages[970:], page.Messages)
}

// A part of the archive that is damaged or gone takes nothing else with it: exports and forks give the rest and say
// what is missing, a search says that it is partial, and the metric counts.
func TestAnArchiveWithAPartMissing(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *webmemorytest.World, archive, position string){
		"damaged": func(w *webmemorytest.World, archive, position string) {
			w.Redis.HSet(t.Context(), archive, position, "[{")
		},
		"gone": func(w *webmemorytest.World, archive, position string) { w.Redis.HDel(t.Context(), archive, position) },
		"gone with what describes it": func(w *webmemorytest.World, archive, position string) {
			w.Redis.HDel(t.Context(), archive, position, position+":about")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 20 })
			status, body := w.Do("POST", "/v1/chats/old/import", webmemorytest.ExportLines(500, 0)).Text()
			require.Equal(t, 201, status, body)
			whole := strings.Split(exportChat(t, w, "old"), "\n")
			require.NotContains(t, string(w.Do("GET", "/v1/chats/old/recall?query=question+1", nil).Body), `"partial":true`)
			const archive = "{chat_history:old}:archive"
			at, n := 0, 0
			_, err := fmt.Sscan(w.Redis.HGet(t.Context(), archive, "0:about").Val(), &at)
			require.NoError(t, err)
			_, err = fmt.Sscan(w.Redis.HGet(t.Context(), archive, strconv.Itoa(at)+":about").Val(), &n)
			require.NoError(t, err)
			lose(w, archive, strconv.Itoa(at))

			want := slices.Concat(whole[:at], []string{fmt.Sprintf(`{"missing":{"offset":%d,"messages":%d}}`, at, n)},
				whole[at+n:1000], []string{fmt.Sprintf(`{"messages":%d}`, 1000-n)})
			require.Equal(t, want, strings.Split(strings.TrimSpace(exportChat(t, w, "old")), "\n"))
			status, body = w.Do("POST", "/v1/chats/again/import", exportChat(t, w, "old")).Text()
			require.Equal(t, 201, status, body)
			require.JSONEq(t, fmt.Sprintf(`{"messages":%d,"histories":1}`, 1000-n), body)

			status, body = w.Do("POST", "/v1/chats/old/fork", `{"as":"fork"}`).Text()
			require.Equal(t, 201, status, body)
			require.JSONEq(t, fmt.Sprintf(`{"messages":%d,"histories":1,"missing":%d}`, 1000-n, n), body)

			other := w.StartReplica(func(c *webmemory.Config) { c.MaxHistory = 20 })
			w.Target(other, func() { // which has no index yet
				require.Contains(t, string(w.Do("GET", "/v1/chats/old/recall?query=question+1", nil).Body), `"partial":true`)
			})
			require.Positive(t, w.Metric("mneme_memory_damaged_total"))
		})
	}
}

// The last page of a long chat takes what it shows out of Redis, and not the archive.
func TestThePageAtTheEndOfALongChat(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 100 })
	status, body := w.Do("POST", "/v1/chats/long/import", webmemorytest.ExportLines(5000, 0)).Text()
	require.Equal(t, 201, status, body)
	sent := func() (bytes int) {
		info := w.Redis.Info(t.Context(), "stats").Val()
		_, rest, _ := strings.Cut(info, "total_net_output_bytes:")
		_, err := fmt.Sscan(rest, &bytes)
		require.NoError(t, err)
		return bytes
	}
	stored := w.Redis.HGet(t.Context(), "{chat_history:long}:archive", "bytes").Val()
	before := sent()
	page, err := newClient(t, w).PageOf(t.Context(), chatKey(t, "long"), webapi.PageQuery{Offset: -150, Archive: true})
	require.NoError(t, err)
	require.Equal(t, 10_000, page.Total)
	require.Equal(t, 9950, page.NextOffset)
	all, err := strconv.Atoi(stored)
	require.NoError(t, err)
	require.Less(t, sent()-before, all/10)
}

// A page tells what the runs behind its messages showed, for as long as their logs are there: of a run that goes on,
// of one that is over, and also where only a subagent's history is looked at.
func TestPagesWithRuns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		if r.Message == "wait" {
			webmemorytest.AnswersAfter(release)(ctx, r, emit)
			return
		}
		webmemorytest.Answers("hello")(ctx, r, emit)
	})
	c, own := newClient(t, w), chatKey(t, "r")
	for _, text := range []string{"one", "two"} {
		require.Equal(t, 200, w.Post("r", text).Status)
	}
	open := w.PostStream("r", "wait")
	open.Until("subagent_delegation")
	page, err := c.PageOf(t.Context(), own, webapi.PageQuery{Runs: true})
	require.NoError(t, err)
	require.Len(t, page.Messages, 5)
	require.Len(t, page.Runs, 3)
	ids := memory.IDs(page.Messages)
	for i, id := range ids {
		run, _, _ := memory.SplitID(id)
		v := page.Runs[run]
		require.NotNil(t, v)
		require.Equal(t, run, v.RunID)
		require.Len(t, v.Delegations, 1)
		require.Equal(t, i == 4, v.Outcome == "")
		if i < 4 {
			require.Equal(t, event.Completed, v.Outcome)
			require.Equal(t, "done", v.Delegations[0].Content)
		}
	}
	last, err := c.PageOf(t.Context(), memory.SubagentKey("analytic", own.Chat()), webapi.PageQuery{Limit: 1, Runs: true})
	require.NoError(t, err)
	require.Len(t, last.Runs, 1)

	// A log that is damaged, not whole, or kept no more costs its own run only: the histories tell what they have.
	first, _, _ := memory.SplitID(ids[0])
	second, _, _ := memory.SplitID(ids[2])
	require.NoError(t, w.Redis.Del(t.Context(), "events:r:"+first, "events:r:"+second).Err())
	require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "events:r:" + first, ID: "1-0",
		Values: []any{"x", "y"}}).Err())
	require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: "events:r:" + second, ID: "7-0",
		Values: []any{"e", `{"role":"run_finished","run_id":"` + second + `","seq":7,"ts":1,"outcome":"completed","usage":{}}`}}).Err())
	page, err = c.PageOf(t.Context(), own, webapi.PageQuery{Runs: true})
	require.NoError(t, err)
	require.Len(t, page.Runs, 3)
	for i, run := range []string{first, second} {
		v := page.Runs[run]
		require.Equal(t, event.Completed, v.Outcome)
		require.Equal(t, []webapi.DelegationView{{
			Subagent: "analytic", Task: "task: " + []string{"one", "two"}[i], Content: "done", Status: event.Completed,
			Tools: []webapi.ToolView{}, Recalled: []event.RecalledMessage{},
		}}, v.Delegations)
		require.Positive(t, v.Started)
		require.GreaterOrEqual(t, v.Finished, v.Started)
	}
	without, err := c.Page(t.Context(), own, 0, 100)
	require.NoError(t, err)
	require.Nil(t, without.Runs)
}
