package openaiapi_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
)

// LibreChat as docs/clients.md configures it names the user's message by {{LIBRECHAT_BODY_PARENTMESSAGEID}}, the parent of
// the answer that it is about to get, and that answer by {{LIBRECHAT_BODY_MESSAGEID}}. Titles, labels and summaries come
// with the ids of the newest message.
func TestOpenAILibreChat(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := openaiWorld(t, repeats())
	answers := 0
	send := func(chat, body, id string) webmemorytest.Response {
		answers++
		return w.Do("POST", "/v1/chat/completions", body, "X-Conversation-Id", chat, "User-Agent", "OpenAI/JS 7.59.0",
			"Mneme-Message-Id", id, "Mneme-Answer-Id", fmt.Sprint("r", answers))
	}
	for _, c := range []struct {
		name, sent, id, want, memory string
		aside                        []int
	}{
		{"send", "a b c d", "u4", "a b c d", "chat", nil},
		{"regenerate the newest", "a b c", "u3", "a b c", "chat", []int{2}},
		{"regenerate the first", "a", "u1", "a", "chat", []int{6}},
		{"regenerate a later one", "a b", "u2", "a b", "chat", []int{4}},
		{"edit the newest", "a b x", "u4", "a b x", "chat", []int{2}},
		{"edit an older one", "a x", "u4", "a b c x", "chat", nil},
		{"edit the first", "x", "u4", "a b c x", "chat", nil},
		{"a title in any words", "Name-this-talk", "u3", "a b c", "none", nil},
		{"another branch", "a x y", "u5", "a b c y", "chat", nil},
	} {
		chat := strings.ReplaceAll(c.name, " ", "-")
		for i, words := range []string{"a", "a b", "a b c"} {
			require.Equal(t, 200, send(chat, users(words), fmt.Sprint("u", i+1)).Status, c.name)
		}
		got := send(chat, users(c.sent), c.id)
		require.Equal(t, 200, got.Status, "%s: %s", c.name, got.Body)
		require.Equal(t, c.want, userWords(w, chat), c.name)
		require.Equal(t, c.memory, got.Header.Get("Mneme-Memory"), c.name)
		require.Equal(t, c.aside, asideSizes(w, chat), c.name)
	}
	require.Equal(t, 400, send("send", transcriptOf("a", "…"), "r1").Status, "an answer that is edited or continued")
}

// SDKs retry a message that fails before its answer: it is stored once. A chat with an unreadable history takes a message
// nevertheless.
func TestOpenAIRetriesAreStoredOnce(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	var fails atomic.Int64
	w := openaiWorld(t, func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		if fails.Add(-1) >= 0 {
			emit(event.Head{}, event.Fail(event.VendorRate, "", 0))
			emit(event.Head{}, &event.RunFinished{Outcome: event.Failed})
			return
		}
		emit(event.Head{}, &event.Assistant{Content: "re " + r.Message})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	})
	for _, stream := range []string{"false", "true"} {
		chat := "c-" + stream
		say := func(text string) (tries int) {
			fails.Store(2)
			for status := 429; status == 429; tries++ {
				status = postCompletion(w, chat, `{"model":"mneme","stream":`+stream+`,"messages":[`+userSaid(text)+`]}`).Status
			}
			return tries
		}
		require.Equal(t, 3, say("hi"))
		require.Equal(t, []string{"user: hi", "assistant: re hi"}, w.History("chat_history:"+chat))
		require.Equal(t, 3, say("ho"))
		require.Equal(t, 3, say("ho"), "the same words after an answer are another message")
		require.Equal(t, "hi ho ho", userWords(w, chat))
	}
	key := "chat_history:broken"
	require.NoError(t, w.Redis.Set(t.Context(), key, "no history", 0).Err())
	fails.Store(0)
	got := postCompletion(w, "broken", users("hi"))
	require.Equal(t, 200, got.Status, string(got.Body))
}
