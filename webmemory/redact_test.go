package webmemory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// redact takes the text of a message away and gives the answer.
func (w *world) redact(path string) webapi.Redacted {
	w.t.Helper()
	got := w.do("DELETE", path, nil)
	require.Equal(w.t, 200, got.status, string(got.body))
	var out webapi.Redacted
	require.NoError(w.t, json.Unmarshal(got.body, &out))
	return out
}

// idsOf are the ids of a history's messages in Redis.
func (w *world) idsOf(key string) (ids []string) {
	w.t.Helper()
	var messages []memory.Message
	require.NoError(w.t, json.Unmarshal([]byte(w.look.Get(context.Background(), key).Val()), &messages))
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// Both messages of an exchange, and what a subagent was told and said in it, lose their text, and stand where they
// stood; nothing else does. A second time there is nothing to do.
func TestRedactionOfAnExchange(t *testing.T) {
	t.Parallel()
	contexts := make(chan string, 100)
	agent := answers("fine")
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		contexts <- fmt.Sprint(r.Context)
		agent(ctx, r, emit)
	})
	post := func(text string) answer {
		got := w.do("POST", "/v1/chats/1/messages", message{text}, "Idempotency-Key", text)
		require.Equal(t, 200, got.status, string(got.body))
		<-contexts
		return got
	}
	post("Good morning")
	run := post("the pin is 4711").header.Get("Mneme-Run-Id")
	post("Goodbye")
	before := w.idsOf("chat_history:1")
	require.Contains(t, string(w.do("GET", "/v1/chats/1/recall?query=pin", nil).body), "4711")

	got := w.redact("/v1/chats/1/messages/" + before[3])
	require.Equal(t, []webapi.MessageRef{{ID: before[2]}, {ID: before[3]}, {Subagent: "analytic", ID: run + ".2"},
		{Subagent: "analytic", ID: run + ".3"}}, got.Redacted)
	require.Equal(t, before, w.idsOf("chat_history:1"))
	const gone = memory.RedactedText
	require.Equal(t, []string{"user: Good morning", "assistant: fine", "user: " + gone, "assistant: " + gone,
		"user: Goodbye", "assistant: fine"}, w.stored("chat_history:1"))
	require.Equal(t, []string{"user: task: Good morning", "assistant: done", "user: " + gone, "assistant: " + gone,
		"user: task: Goodbye", "assistant: done"}, w.stored("subagent:analytic:1"))
	require.NotContains(t, string(w.do("GET", "/v1/chats/1/recall?query=pin", nil).body), "4711")
	require.Len(t, w.gateway.set(false), 1, "what was said to models")

	gone410 := w.do("POST", "/v1/chats/1/messages", message{"the pin is 4711"}, "Idempotency-Key", "the pin is 4711")
	require.Equal(t, 410, gone410.status, string(gone410.body))
	require.Equal(t, "events_gone", gone410.problem(t).Code)
	require.Equal(t, 410, w.do("GET", "/v1/chats/1/runs/"+run+"/events", nil).status)
	again := w.redact("/v1/chats/1/messages/" + before[3])
	require.Equal(t, got.Redacted, again.Redacted)

	got = w.redact("/v1/chats/1/subagents/analytic/messages/" + w.idsOf("subagent:analytic:1")[0] + "?scope=message")
	require.Len(t, got.Redacted, 1)
	require.Equal(t, "user: Good morning", w.stored("chat_history:1")[0])
	require.Equal(t, "user: "+gone, w.stored("subagent:analytic:1")[0])
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"and on"}).status)
	require.NotContains(t, <-contexts, "4711")
	require.Len(t, w.stored("chat_history:1"), 8)
}

// What recall finds is redacted by the id that it gave, in whichever history of the chat that is.
func TestRedactionByAnIDOfRecall(t *testing.T) {
	t.Parallel()
	const gone = memory.RedactedText
	w := newWorld(t, answers("fine"))
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"the pin is 4711"}).status)
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"Goodbye"}).status)
	main, analytic := w.idsOf("chat_history:1"), w.idsOf("subagent:analytic:1")
	require.NotContains(t, main, analytic[0])

	dry := w.redact("/v1/chats/1/messages/" + analytic[0] + "?scope=message&dry_run=true")
	require.Equal(t, []webapi.MessageRef{{Subagent: "analytic", ID: analytic[0]}}, dry.Redacted)
	require.Len(t, w.redact("/v1/chats/1/messages/"+analytic[0]+"?scope=message").Redacted, 1)
	require.Equal(t, "user: the pin is 4711", w.stored("chat_history:1")[0])
	require.Equal(t, "user: "+gone, w.stored("subagent:analytic:1")[0])

	require.Len(t, w.redact("/v1/chats/1/messages/"+analytic[1]).Redacted, 4, "the exchange in all histories")
	require.Equal(t, []string{"user: " + gone, "assistant: " + gone, "user: Goodbye", "assistant: fine"},
		w.stored("chat_history:1"))
	refused := w.do("DELETE", "/v1/chats/2/messages/"+analytic[2], nil)
	require.Equal(t, 404, refused.status)
	require.Contains(t, string(refused.body), "The chat's memory has no message with this id")
}

// What is asked for must be there and make sense; a refusal changes nothing and stops nothing.
func TestRedactionsThatAreRefused(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, waits(release))
	tr := w.open("POST", "/v1/chats/1/messages", message{"first"})
	tr.until("subagent_delegation")
	id := w.idsOf("chat_history:1")[0]
	for path, want := range map[string]string{
		"/v1/chats/1/messages/nothing":                            "unknown_message",
		"/v1/chats/2/messages/" + id:                              "unknown_message",
		"/v1/chats/1/subagents/analytic/messages/" + id:           "unknown_message",
		"/v1/chats/1/subagents/unknown/messages/" + id:            "unknown_message",
		"/v1/chats/1/subagents/No/messages/" + id:                 "bad_request",
		"/v1/chats/1/messages/" + id + "?scope=all":               "bad_request",
		"/v1/chats/1/messages/" + id + "?dry_run=maybe":           "bad_request",
		"/v1/chats/no%20chat/messages/" + id:                      "bad_request",
		"/v1/chats/1/messages/" + strings.Repeat("x", 5000) + "%": "",
	} {
		got := w.do("DELETE", "/v1/chats/1/messages/x", nil)
		if want != "" {
			got = w.do("DELETE", path, nil)
			require.Equal(t, want, got.problem(t).Code, "%s: %s", path, got.body)
		}
		require.GreaterOrEqual(t, got.status, 400)
	}
	require.Len(t, w.redact("/v1/chats/1/messages/"+id+"?dry_run=true").Redacted, 2)
	close(release)
	require.Contains(t, string(tr.until("run_finished")), "completed")
	require.Equal(t, []string{"user: first", "assistant: answer to first"}, w.stored("chat_history:1"))
	w.gateway.set(true)
	require.Equal(t, 503, w.do("DELETE", "/v1/chats/1/messages/"+id, nil).status, "the gateway is away")
	require.Equal(t, "user: first", w.stored("chat_history:1")[0])
}

// gossip says a secret in every history, and again in later turns.
func gossip(secret string) agent {
	return func(_ context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		said := r.Message
		if strings.Contains(fmt.Sprint(r.Context), secret) {
			said += ", by the way " + secret
		}
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		for i, name := range []memory.Agent{"analytic", "knowledge"} {
			of := event.Head{Subagent: name, CallID: fmt.Sprint("c", i)}
			call := memory.ToolCall{ID: "t1", Type: "function", Function: memory.FunctionCall{Name: "calculator",
				Arguments: fmt.Sprintf("{%q:1}", said)}}
			emit(of, &event.Delegation{Task: "task " + said, Calls: event.Serial})
			emit(of, &event.AssistantWithTools{ToolCalls: []memory.ToolCall{call}})
			emit(of, &event.ToolResult{ToolCallID: "t1", Name: "calculator", Content: "found " + said})
			emit(of, &event.Completion{Response: "result " + said, Status: event.Completed})
		}
		emit(event.Head{}, &event.AssistantDelta{Text: "answer " + said})
		emit(event.Head{}, &event.Assistant{Content: "answer " + said})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// bytesIn are the files below folders in which a text stands, and the keys of Redis.
func (w *world) bytesIn(text string, folders ...string) (places []string) {
	return w.tracesOf([]string{text}, folders...)
}

// redactAll redacts an exchange of chat 1, and then each other message that contains a text.
func (w *world) redactAll(id, text string) (messages int) {
	w.t.Helper()
	messages = len(w.redact("/v1/chats/1/messages/" + id).Redacted)
	chat := memory.MustChat("1")
	for _, key := range []memory.Key{memory.ChatKey(chat), memory.SubagentKey("analytic", chat),
		memory.SubagentKey("knowledge", chat)} {
		got := w.do("GET", webapi.HistoryPath(key)+"?archive=true&limit=1000", nil)
		require.Equal(w.t, 200, got.status, string(got.body))
		for _, m := range gjson.GetBytes(got.body, "messages").Array() {
			if strings.Contains(m.Raw, text) {
				messages += len(w.redact(webapi.MessagePath(key, m.Get("id").Str) + "?scope=message").Redacted)
			}
		}
	}
	return messages
}

// replicas starts n more webmemories here, each with a disk of its own.
func (w *world) replicas(n int) (urls, data []string) {
	for range n {
		dir := w.t.TempDir()
		file, err := erasures.Open(filepath.Join(dir, "erasures.ndjson"))
		require.NoError(w.t, err)
		urls = append(urls, w.process(func(c *webmemory.Config) {
			c.Ends, c.SessionLogs, c.Erasures = filepath.Join(dir, "ends"), filepath.Join(dir, "logs"), file
		}))
		data = append(data, dir)
	}
	return urls, data
}

// A model repeats a secret in every history and in later turns, most of which are archived by then. If all messages with
// the secret are redacted, no byte of it remains in Redis, its files and the disks of two processes.
func TestARedactionLeavesNoByte(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const secret = "QX-4711-ZZ"
	w := newWorldOver(t, gossip(secret), []string{"--appendonly", "yes", "--appendfsync", "always"})
	ctx := context.Background()
	urls, data := w.replicas(2)
	turn := func(url, text string) {
		w.on(url, func() {
			got := w.do("POST", "/v1/chats/1/messages", message{text}, "Idempotency-Key", text)
			require.Equal(t, 200, got.status, string(got.body))
		})
	}
	turn(urls[0], "Hello there.")
	turn(urls[1], "Remember "+secret+" please")
	turn(urls[0], "Is it late?")
	turn(urls[1], "Then good night.")
	require.NotEmpty(t, w.bytesIn(secret, data...))
	w.on(urls[0], func() {
		require.Greater(t, w.redactAll(w.idsOf("chat_history:1")[2], secret), 20)
	})
	require.Empty(t, w.bytesIn(secret, data...))
	require.NoError(t, w.look.BgRewriteAOF(ctx).Err())
	eventually(t, "the file is rewritten", func() bool {
		return strings.Contains(w.look.Info(ctx, "persistence").Val(), "aof_rewrite_in_progress:0") &&
			strings.Contains(w.look.Info(ctx, "persistence").Val(), "aof_last_bgrewrite_status:ok") &&
			len(w.bytesIn(secret, w.redis.Dir)) == 0
	})
	require.Contains(t, strings.Join(w.stored("chat_history:1"), " "), "Hello there.")

	// All is lost, and comes back from copies: of the text nothing does.
	require.NoError(t, w.look.FlushAll(ctx).Err())
	eventually(t, "it is back", func() bool { return len(w.stored("chat_history:1")) == 8 })
	turn(urls[1], "and on")
	require.Empty(t, w.bytesIn(secret, data...))
}

// Over the embedded store no file holds redacted text when the answer comes.
func TestRedactionInTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	const secret = "QX-4711-ZZ"
	s := newSmall(t, t.TempDir(), gossip(secret))
	for _, text := range []string{"hello", "it is " + secret, "bye"} {
		require.Equal(t, 200, s.do("POST", "/v1/chats/1/messages", message{text}).status)
	}
	require.NotEmpty(t, s.bytesIn(secret, s.dir))
	require.Greater(t, s.redactAll(s.idsOf("chat_history:1")[2], secret), 10)
	require.Empty(t, s.bytesIn(secret, s.dir))
	require.Equal(t, 200, s.do("POST", "/v1/chats/1/messages", message{"and on"}).status)
	require.Len(t, s.stored("chat_history:1"), 8)
}
