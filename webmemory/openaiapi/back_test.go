package openaiapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// repeats is a run that answers with a number that no other run has, and says the context that it
// was given by how many messages that is.
func repeats() webmemorytest.Agent {
	var n atomic.Int64
	return func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		completes(r, emit, fmt.Sprintf("%d: %s", n.Add(1), r.Message))
	}
}

// completes emits the events of a run with one answer.
func completes(r master.Request, emit func(event.Head, event.Payload), answer string) {
	emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
		Metadata: r.Metadata})
	emit(event.Head{}, &event.Assistant{Content: answer})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
}

// userWords returns the user's words in a chat's history.
func userWords(w *webmemorytest.World, chat string) string {
	w.T.Helper()
	var words []string
	for _, m := range w.History("chat_history:" + chat) {
		if text, ok := strings.CutPrefix(m, "user: "); ok {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

// asideSizes returns the sizes of the parts that are set aside.
func asideSizes(w *webmemorytest.World, chat string) (sizes []int) {
	w.T.Helper()
	var list webapi.SetAsides
	require.NoError(w.T, json.Unmarshal(w.Do("GET", "/v1/chats/"+chat+"/set-aside", nil).Body, &list))
	for _, s := range list.SetAside {
		sizes = append(sizes, s.Messages)
	}
	return sizes
}

// users is a transcript of the user's words, with answers of no worth.
func users(words string) string {
	var texts []string
	for i, word := range strings.Fields(words) {
		if i > 0 {
			texts = append(texts, "…")
		}
		texts = append(texts, word)
	}
	return transcriptOf(texts...)
}

// What a client calls its messages is stored with them, and says what a message follows.
func TestOpenAIByIDs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := openaiWorld(t, repeats())
	say := func(text, id, answer, parent string) webmemorytest.Response {
		return postCompletion(w, "c", users(text), "Mneme-Message-Id", id, "Mneme-Answer-Id", answer, "Mneme-Parent-Id",
			parent)
	}
	require.Equal(t, 200, say("a", "u1", "a1", "").Status)
	require.Equal(t, 200, say("a b", "u2", "a2", "a1").Status)
	require.Equal(t, 200, say("a b c", "u3", "a3", "a2").Status)
	require.Equal(t, "a b c", userWords(w, "c"))
	first := w.Do("GET", "/v1/chats/c/history?limit=1", nil)
	stored := gjson.GetBytes(first.Body, "messages.0.metadata")
	require.Equal(t, []string{"u1", "a1"}, []string{stored.Get("message_id").Str, stored.Get("answer_id").Str})
	// The words say nothing: the parent decides.
	got := say("x y", "u4", "a4", "a1")
	require.Equal(t, "a y", userWords(w, "c"), string(got.Body))
	require.Equal(t, []int{4}, asideSizes(w, "c"))
	require.Equal(t, 200, say("y", "u4", "a5", "a1").Status)
	require.Equal(t, "a y", userWords(w, "c"), "its answer again")
	require.Equal(t, 200, say("a", "u1", "a6", "").Status)
	require.Equal(t, "a", userWords(w, "c"), "the first one's, by its own id")
	require.Equal(t, 200, say("a z", "u7", "a7", "{{USER_MESSAGE_PARENT_ID}}").Status)
	require.Equal(t, "a z", userWords(w, "c"))
	// An empty parent is ignored.
	require.Equal(t, 200, say("b", "u8", "a8", "").Status)
	require.Equal(t, "a z b", userWords(w, "c"))
	// The messages of a client without ids are not set aside.
	require.Equal(t, 200, postCompletion(w, "c", users("d"), "User-Agent", "a bot").Status)
	require.Equal(t, 200, say("e", "u9", "a9", "a7").Status)
	require.Equal(t, "a z b d e", userWords(w, "c"))
}

// Ids of messages come beside the pairs that a client may say.
func TestOpenAIMetadataBesideIDs(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	pairs := map[string]string{}
	for i := range 16 {
		pairs[fmt.Sprint("name", i)] = "x"
	}
	body := func() string {
		raw, err := json.Marshal(map[string]any{"model": "mneme", "metadata": pairs,
			"messages": []map[string]string{{"role": "user", "content": "hi"}}})
		require.NoError(t, err)
		return string(raw)
	}
	ids := []string{"Mneme-Message-Id", "u1", "Mneme-Answer-Id", "a1"}
	got := postCompletion(w, "c", body(), ids...)
	require.Equal(t, 200, got.Status, string(got.Body))
	stored := gjson.GetBytes(w.Do("GET", "/v1/chats/c/history?limit=1", nil).Body, "messages.0.metadata").Map()
	require.Len(t, stored, 19)
	require.Equal(t, "a1", stored["answer_id"].Str)
	pairs["name16"] = "x"
	got = postCompletion(w, "c", body(), ids...)
	require.Equal(t, 400, got.Status)
	require.Contains(t, openaiError(t, got).Message, "metadata has 17 pairs, at most 16")
}

// Whichever other client speaks in the chat meanwhile, through whichever process, and whatever
// becomes of transcripts on their way: each message that was taken is in the history or set
// aside, with its answer.
func TestOpenAILosesNothing(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	urls := []string{w.URL, w.StartOpenAI()}
	var answered, refused atomic.Int64
	var clients sync.WaitGroup
	for i := range 40 {
		if i >= 4 { // one more at a time, until something was set aside
			if clients.Wait(); len(asideSizes(w, "c")) > 0 {
				break
			}
		}
		random, url := rand.New(rand.NewPCG(1, uint64(i))), urls[i%2]
		clients.Go(func() {
			var held []string
			for range 8 {
				switch random.IntN(3) {
				case 0: // an answer once more, or another word
					held = held[:random.IntN(len(held)+1)]
				case 1: // what the others have said
					if held = heldOf(t, url); len(held) > 0 {
						held = held[random.IntN(len(held)):]
					}
				}
				asked := append(slices.Clone(held), string(rune('a'+random.IntN(6))))
				req, err := http.NewRequest("POST", url+"/c/c/v1/chat/completions",
					strings.NewReader(mangled(random, asked)))
				if err != nil {
					t.Error(err)
					return
				}
				if got := w.Send(req); got.Status == http.StatusOK {
					answered.Add(1)
					held = asked
				} else if refused.Add(1); got.Status != http.StatusConflict {
					t.Errorf("%d: %s", got.Status, got.Body)
				}
			}
		})
	}
	clients.Wait()
	found := len(w.History("chat_history:c"))
	for _, n := range asideSizes(w, "c") {
		found += n
	}
	require.Equal(t, 2*answered.Load(), int64(found))
	require.Greater(t, 3*answered.Load(), refused.Load(), "too few are taken for this to show anything")
	require.NotEmpty(t, asideSizes(w, "c"))
}

// heldOf are the user's words in a chat's history; any goroutine may call it.
func heldOf(t *testing.T, url string) (words []string) {
	resp, err := http.Get(url + "/v1/chats/c/history?archive=true")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	var page webapi.HistoryPage
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		t.Error(err)
	}
	for _, m := range page.Messages {
		if gjson.GetBytes(m, "role").Str == "user" {
			words = append(words, gjson.GetBytes(m, "content").Str)
		}
	}
	return words
}
