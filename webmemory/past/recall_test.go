package past_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/memory"
	"mneme/webmemory"
)

// What was told long ago is found, with its time and the memory that has it; what was
// never told, or told in another chat, is not.
func TestRecall(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 10 })
	var b strings.Builder
	for i := range 3000 {
		text := fmt.Sprintf("small talk number %d about nothing", i)
		switch i {
		case 5:
			text = "My daughter Aliya is allergic to hazelnuts."
		case 9:
			text = "Мою кошку зовут Мурка, она рыжая."
		}
		fmt.Fprintf(&b, `{"message":{"role":"user","content":%q,"timestamp":%d,"id":"m.%d"}}`+"\n", text, 1_700_000_000+i*3600, i)
	}
	fmt.Fprintln(&b, `{"subagent":"analytic","message":{"role":"user","content":"The budget of Berlin is 4711 euros.","timestamp":5,"id":"s.1"}}`)
	status, body := w.Do("POST", "/v1/chats/a/import", b.String()).Text()
	require.Equal(t, 201, status, "%s", body)

	found := webmemorytest.RecallChat(t, w, "a", "What is Aliya allergic to?")
	require.False(t, found.Partial)
	require.Equal(t, "m.5", found.Hits[0].ID)
	require.Equal(t, "My daughter Aliya is allergic to hazelnuts.", found.Hits[0].Text)
	require.EqualValues(t, 1_700_000_000+5*3600, found.Hits[0].TS)
	require.Equal(t, "m.9", webmemorytest.RecallChat(t, w, "a", "как зовут кошку?").Hits[0].ID)
	berlin := webmemorytest.RecallChat(t, w, "a", "Berlin budget")
	require.EqualValues(t, "analytic", berlin.Hits[0].Subagent)
	require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "Aliya hazelnuts", "subagent",
		"analytic")), "hazelnuts")
	require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "a", "Aliya hazelnuts", "from",
		"2024-01-01")), "hazelnuts")
	require.Empty(t, webmemorytest.RecallChat(t, w, "b", "Aliya").Hits, "another chat")

	for path, want := range map[string]string{
		"/v1/chats/a/recall":                                    "query is missing",
		"/v1/chats/a/recall?query=x&budget=0":                   "budget",
		"/v1/chats/a/recall?query=x&from=yesterday":             "from is a time",
		"/v1/chats/a/recall?query=x&subagent=NO":                "subagent",
		"/v1/chats/no%20chat/recall?query=x":                    "chat id",
		"/v1/chats/a/recall?query=" + strings.Repeat("x", 5000): "at most",
	} {
		status, body := w.Do("GET", path, nil).Text()
		require.Equal(t, 400, status, path)
		require.Contains(t, body, want)
	}
}

// What was acknowledged is found by a search that begins after it, by whichever process,
// also across trims that the other one made; what was erased is found by none.
func TestRecallReadsWhatWasWritten(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 10 })
	first := w.URL
	second := w.StartReplica(func(c *webmemory.Config) { c.MaxHistory = 10 })
	for i := range 40 {
		w.URL = first
		if i%3 == 1 {
			w.URL = second
		}
		word := fmt.Sprintf("zebra%dx%d", i, rand.IntN(1000))
		status, body := w.Do("POST", "/v1/chats/c/messages", fmt.Sprintf(`{"message":"remember %s"}`, word)).Text()
		require.Equal(t, 200, status, "%s", body)
		for _, url := range []string{first, second} {
			if i%5 == 4 && url == second {
				continue // it misses some, and some of them are trimmed before it looks again
			}
			w.URL = url
			require.Contains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "c", word)), word, "turn %d", i)
		}
	}
	w.URL = first
	status, _ := w.Do("DELETE", "/v1/chats/c", nil).Text()
	require.Equal(t, 200, status)
	for _, url := range []string{first, second} {
		w.URL = url
		require.Empty(t, webmemorytest.RecallChat(t, w, "c", "remember zebra").Hits)
	}
}

// Searches, turns and trims at the same time do not disturb one another.
func TestRecallWhileTheChatGoesOn(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"),
		func(c *webmemory.Config) { c.MaxHistory = 4; c.RecallBytes = 1 })
	var working sync.WaitGroup
	for chat, other := range map[string]string{"c": "d", "d": "c"} {
		working.Go(func() {
			for i := range 20 {
				status, body := w.Do("POST", "/v1/chats/"+chat+"/messages", fmt.Sprintf(`{"message":"word%d of %s"}`, i, chat)).Text()
				require.Equal(t, 200, status, "%s", body)
				require.Contains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, chat, fmt.Sprintf("word%d", i))),
					fmt.Sprintf("word%d of %s", i, chat))
			}
		})
		for range 2 {
			working.Go(func() {
				for range 30 {
					require.NotContains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, chat, "word1 word2 word3")),
						"of "+other)
				}
			})
		}
	}
	working.Wait()
}

// A damaged part of an archive is passed over; the rest is found.
func TestRecallOverADamagedArchive(t *testing.T) {
	t.Parallel()
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), func(c *webmemory.Config) { c.MaxHistory = 4 })
	status, body := w.Do("POST", "/v1/chats/c/import", webmemorytest.ExportLines(1000, 0)).Text()
	require.Equal(t, 201, status, "%s", body)
	require.NoError(t, w.Redis.HSet(t.Context(), "{chat_history:c}:archive", "0", "[{").Err())
	require.Contains(t, webmemorytest.HitTexts(webmemorytest.RecallChat(t, w, "c", "question 900")), "question 900")
}

// The agents of a run search the memory of its chat through the process that holds it, for as
// long as it does, and with its token alone: their own for a prompt without what their window
// shows, all of it when the master asks.
func TestAgentsSearch(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release), func(c *webmemory.Config) { c.ContextWindow = 4 })
	var b strings.Builder
	for i := range 40 {
		text := fmt.Sprintf("small talk number %d", i)
		switch i {
		case 2:
			text = "My name is Aliya."
		case 38:
			text = "My name is not Bob."
		}
		fmt.Fprintf(&b, `{"message":{"role":"user","content":%q,"timestamp":%d,"id":"m.%d"}}`+"\n", text, 1_700_000_000+i, i)
	}
	fmt.Fprintln(&b, `{"subagent":"analytic","message":{"role":"user","content":"Her name is Carla.","timestamp":5,"id":"s.1"}}`)
	status, body := w.Do("POST", "/v1/chats/a/import", b.String()).Text()
	require.Equal(t, 201, status, "%s", body)
	status, body = w.Do("POST", "/v1/chats/b/import", `{"message":{"role":"user","content":"My name is Dora."}}`).Text()
	require.Equal(t, 201, status, "%s", body)

	asked := w.RecordRuns()
	stream := w.Stream("POST", "/v1/chats/a/messages", map[string]any{"message": "What is my name?"}, "Accept",
		"text/event-stream")
	var run api.RunRequest
	require.NoError(t, json.Unmarshal(<-asked, &run))
	require.NotNil(t, run.Memory)
	search := func(r memory.RecallRequest) string {
		found, err := run.Memory.Recall(t.Context(), r)
		require.NoError(t, err)
		return webmemorytest.HitTexts(found)
	}
	const question = "What is my name?"
	const own, later, theirs = "My name is Aliya.", "My name is not Bob.", "Her name is Carla."
	found := search(memory.RecallRequest{Query: question, Automatic: true})
	require.Contains(t, found, own)
	require.NotContains(t, found, later, "it is in the window")
	require.NotContains(t, found, theirs, "it is a subagent's")
	require.NotContains(t, found, question, "it is of this run")
	require.Equal(t, found, search(memory.RecallRequest{Query: question, Automatic: true, Needed: true}))
	const told = "I was told a name today, isn't that nice!"
	require.Contains(t, search(memory.RecallRequest{Query: told, Automatic: true}), own)
	require.Empty(t, search(memory.RecallRequest{Query: told, Automatic: true, Needed: true}), "it needs none")
	found = search(memory.RecallRequest{Query: question})
	for _, text := range []string{own, later, theirs} {
		require.Contains(t, found, text)
	}
	require.NotContains(t, found, "Dora", "it is another chat's")
	require.Empty(t, search(memory.RecallRequest{Query: question, Automatic: true, Subagent: "analytic"}), "in its window")
	require.Equal(t, theirs, search(memory.RecallRequest{Query: question, Subagent: "analytic"}))
	require.Empty(t, search(memory.RecallRequest{Query: question, From: "2030-01-01"}))

	var refused *api.Problem
	for want, r := range map[string]memory.RecallRequest{
		"query is missing":   {},
		"from is a time":     {Query: "x", From: "yesterday"},
		"budget is a whole":  {Query: "x", Budget: -1},
		"A subagent's name ": {Query: "x", Subagent: "../b"},
	} {
		_, err := run.Memory.Recall(t.Context(), r)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 400, refused.Status)
		require.Contains(t, refused.Message, want)
	}
	forbidden := func(m api.MemoryAccess) {
		t.Helper()
		_, err := m.Recall(t.Context(), memory.RecallRequest{Query: question})
		require.ErrorAs(t, err, &refused)
		require.Equal(t, 403, refused.Status)
	}
	forbidden(api.MemoryAccess{URL: run.Memory.URL})
	forbidden(api.MemoryAccess{URL: run.Memory.URL, Token: "another"})
	forbidden(api.MemoryAccess{URL: strings.Replace(run.Memory.URL, run.RunID, "another", 1), Token: run.Memory.Token})
	close(release)
	stream.Until("run_finished")
	require.Eventually(t, func() bool {
		_, err := run.Memory.Recall(t.Context(), memory.RecallRequest{Query: question})
		return err != nil
	}, 30*time.Second, 5*time.Millisecond, "the run lends nothing once it is over")
	forbidden(*run.Memory)
}
