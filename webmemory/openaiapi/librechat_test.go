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
	"mneme/webmemory/openaiapi"
)

// libreChat sends what LibreChat does, of a conversation of its own, without or with the two headers that it can fill
// in. It names the user's message by {{LIBRECHAT_BODY_PARENTMESSAGEID}}, the parent of the answer that it is about to
// get, and that answer by {{LIBRECHAT_BODY_MESSAGEID}}.
type libreChat struct {
	*webmemorytest.World
	chat    string
	headers bool
	answers int
}

func (l *libreChat) send(body, message string) webmemorytest.Response {
	header := []string{"X-Conversation-Id", l.chat, "User-Agent", "OpenAI/JS 5.8.2"}
	if l.answers++; l.headers {
		header = append(header, "Mneme-Message-Id", message, "Mneme-Answer-Id", fmt.Sprint("r", l.answers))
	}
	return l.Do("POST", "/v1/chat/completions", body, header...)
}

// What a chat holds after each of the things that people do in LibreChat.
func TestOpenAILibreChat(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	w := openaiWorld(t, repeats())
	type step struct{ sent, id string }
	for _, c := range []struct {
		name   string
		before int // messages that were sent before
		steps  []step
		want   string // without the headers
		named  string // with them
		last   string // Mneme-Memory of the last step; empty for a 400
		aside  int    // messages that the last step set aside
	}{
		{"send", 3, []step{{"a b c d", "u4"}}, "a b c d", "a b c d", "chat", 0},
		{"regenerate the first", 3, []step{{"a", "u1"}}, "a", "a", "chat", 6},
		{"regenerate a later one", 3, []step{{"a b", "u2"}}, "a b", "a b", "chat", 4},
		{"edit the first", 3, []step{{"x", "u4"}}, "x", "x", "chat", 6},
		{"edit the first, and go on", 3, []step{{"x", "u4"}, {"x y", "u5"}}, "x y", "x y", "chat", 0},
		{"edit the first, twice", 3, []step{{"x", "u4"}, {"y", "u5"}}, "y", "y", "chat", 2},
		{"edit a later one", 3, []step{{"a x", "u4"}}, "a x", "a x", "chat", 4},
		{"edit an answer, or continue it", 3, []step{{"a b c …", "r3"}}, "a b c", "a b c", "", 0},
		{"go on in another branch", 3, []step{{"a x", "u4"}, {"a b c d", "u5"}}, "a x", "a x", "mismatch", 0},
		// Until a second message was sent nothing tells the client from one that sends its messages one by one.
		{"regenerate the only one", 1, []step{{"a", "u1"}}, "a a", "a", "chat", 0},
		{"edit the only one", 1, []step{{"x", "u2"}}, "a x", "a x", "chat", 0},
	} {
		for _, headers := range []bool{false, true} {
			name := fmt.Sprintf("%s, headers %t", c.name, headers)
			l := &libreChat{World: w, chat: strings.NewReplacer(" ", "-", ",", "").Replace(name), headers: headers}
			for i, words := range []string{"a", "a b", "a b c"}[:c.before] {
				require.Equal(t, 200, l.send(users(words), fmt.Sprint("u", i+1)).Status, name)
			}
			var got webmemorytest.Response
			var before []int
			for _, s := range c.steps {
				before = asideSizes(w, l.chat)
				body := users(s.sent)
				if rest, ok := strings.CutSuffix(s.sent, " …"); ok {
					var texts []string
					for _, word := range strings.Fields(rest) {
						texts = append(texts, word, "…")
					}
					body = transcriptOf(texts...)
				}
				got = l.send(body, s.id)
			}
			want, aside := c.want, 0
			if headers {
				want = c.named
			}
			for _, n := range asideSizes(w, l.chat) {
				aside += n
			}
			for _, n := range before {
				aside -= n
			}
			require.Equal(t, want, userWords(w, l.chat), "%s: %s", name, got.Body)
			if c.last == "" {
				require.Equal(t, 400, got.Status, name)
				continue
			}
			require.Equal(t, 200, got.Status, "%s: %s", name, got.Body)
			require.Equal(t, c.last, got.Header.Get("Mneme-Memory"), name)
			if c.name != "regenerate the only one" {
				require.Equal(t, c.aside, aside, name)
			}
		}
	}
	// LibreChat's parent of a first message is none.
	for _, parent := range []string{"", "00000000-0000-0000-0000-000000000000"} {
		chat := "root" + fmt.Sprint(len(parent))
		for _, id := range []string{"u1", "u2"} {
			got := postCompletion(w, chat, users(id), "Mneme-Message-Id", id, "Mneme-Parent-Id", parent)
			require.Equal(t, 200, got.Status, string(got.Body))
		}
		require.Equal(t, "u2", userWords(w, chat), "the first message was edited")
	}
}

// SDKs send a message again by themselves if it fails before an answer: it is stored once, in a chat of several
// messages and in one of a single one, and the attempts are no posts of their own. A chat with a history that cannot
// be read takes a message all the same.
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
	}, func(c *openaiapi.Config) { c.OnMismatch = openaiapi.Conflict })
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
