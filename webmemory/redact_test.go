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
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/erasures"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// redactMessage redacts the message at a path.
func redactMessage(w *webmemorytest.World, path string) webapi.Redacted {
	w.T.Helper()
	got := w.Do("DELETE", path, nil)
	require.Equal(w.T, 200, got.Status, string(got.Body))
	var out webapi.Redacted
	require.NoError(w.T, json.Unmarshal(got.Body, &out))
	return out
}

// storedIDs returns the ids of the messages of a history in Redis.
func storedIDs(w *webmemorytest.World, key string) (ids []string) {
	w.T.Helper()
	var messages []memory.Message
	require.NoError(w.T, json.Unmarshal([]byte(w.Redis.Get(context.Background(), key).Val()), &messages))
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
	agent := webmemorytest.Answers("fine")
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		contexts <- fmt.Sprint(r.Context)
		agent(ctx, r, emit)
	})
	post := func(text string) webmemorytest.Response {
		got := w.Post("1", text, "Idempotency-Key", text)
		require.Equal(t, 200, got.Status, string(got.Body))
		<-contexts
		return got
	}
	post("Good morning")
	run := post("the pin is 4711").RunID()
	post("Goodbye")
	before := storedIDs(w, "chat_history:1")
	require.Contains(t, string(w.Do("GET", "/v1/chats/1/recall?query=pin", nil).Body), "4711")

	got := redactMessage(w, "/v1/chats/1/messages/"+before[3])
	require.Equal(t, []webapi.MessageRef{{ID: before[2]}, {ID: before[3]}, {Subagent: "analytic", ID: run + ".2"},
		{Subagent: "analytic", ID: run + ".3"}}, got.Redacted)
	require.Equal(t, before, storedIDs(w, "chat_history:1"))
	const gone = memory.RedactedText
	require.Equal(t, []string{"user: Good morning", "assistant: fine", "user: " + gone, "assistant: " + gone,
		"user: Goodbye", "assistant: fine"}, w.History("chat_history:1"))
	require.Equal(t, []string{"user: task: Good morning", "assistant: done", "user: " + gone, "assistant: " + gone,
		"user: task: Goodbye", "assistant: done"}, w.History("subagent:analytic:1"))
	require.NotContains(t, string(w.Do("GET", "/v1/chats/1/recall?query=pin", nil).Body), "4711")
	require.Len(t, w.Gateway.Erased(), 1, "what was said to models")

	gone410 := w.Post("1", "the pin is 4711", "Idempotency-Key", "the pin is 4711")
	require.Equal(t, 410, gone410.Status, string(gone410.Body))
	require.Equal(t, "events_gone", gone410.Problem(t).Code)
	require.Equal(t, 410, w.Do("GET", "/v1/chats/1/runs/"+run+"/events", nil).Status)
	again := redactMessage(w, "/v1/chats/1/messages/"+before[3])
	require.Equal(t, got.Redacted, again.Redacted)

	got = redactMessage(w, "/v1/chats/1/subagents/analytic/messages/"+
		storedIDs(w, "subagent:analytic:1")[0]+"?scope=message")
	require.Len(t, got.Redacted, 1)
	require.Equal(t, "user: Good morning", w.History("chat_history:1")[0])
	require.Equal(t, "user: "+gone, w.History("subagent:analytic:1")[0])
	require.Equal(t, 200, w.Post("1", "and on").Status)
	require.NotContains(t, <-contexts, "4711")
	require.Len(t, w.History("chat_history:1"), 8)
}

// What recall finds is redacted by the id that it gave, in whichever history of the chat that is.
func TestRedactionByAnIDOfRecall(t *testing.T) {
	t.Parallel()
	const gone = memory.RedactedText
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("fine"))
	require.Equal(t, 200, w.Post("1", "the pin is 4711").Status)
	require.Equal(t, 200, w.Post("1", "Goodbye").Status)
	main, analytic := storedIDs(w, "chat_history:1"), storedIDs(w, "subagent:analytic:1")
	require.NotContains(t, main, analytic[0])

	dry := redactMessage(w, "/v1/chats/1/messages/"+analytic[0]+"?scope=message&dry_run=true")
	require.Equal(t, []webapi.MessageRef{{Subagent: "analytic", ID: analytic[0]}}, dry.Redacted)
	require.Len(t, redactMessage(w, "/v1/chats/1/messages/"+analytic[0]+"?scope=message").Redacted, 1)
	require.Equal(t, "user: the pin is 4711", w.History("chat_history:1")[0])
	require.Equal(t, "user: "+gone, w.History("subagent:analytic:1")[0])

	require.Len(t, redactMessage(w, "/v1/chats/1/messages/"+analytic[1]).Redacted, 4, "the exchange in all histories")
	require.Equal(t, []string{"user: " + gone, "assistant: " + gone, "user: Goodbye", "assistant: fine"},
		w.History("chat_history:1"))
	refused := w.Do("DELETE", "/v1/chats/2/messages/"+analytic[2], nil)
	require.Equal(t, 404, refused.Status)
	require.Contains(t, string(refused.Body), "The chat's memory has no message with this id")
}

// What is asked for must be there and make sense; a refusal changes nothing and stops nothing.
func TestRedactionsThatAreRefused(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
	tr := w.PostStream("1", "first")
	tr.Until("subagent_delegation")
	id := storedIDs(w, "chat_history:1")[0]
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
		got := w.Do("DELETE", "/v1/chats/1/messages/x", nil)
		if want != "" {
			got = w.Do("DELETE", path, nil)
			require.Equal(t, want, got.Problem(t).Code, "%s: %s", path, got.Body)
		}
		require.GreaterOrEqual(t, got.Status, 400)
	}
	require.Len(t, redactMessage(w, "/v1/chats/1/messages/"+id+"?dry_run=true").Redacted, 2)
	close(release)
	require.Contains(t, string(tr.Until("run_finished")), "completed")
	require.Equal(t, []string{"user: first", "assistant: answer to first"}, w.History("chat_history:1"))
	w.Gateway.Down.Store(true)
	require.Equal(t, 503, w.Do("DELETE", "/v1/chats/1/messages/"+id, nil).Status, "the gateway is away")
	require.Equal(t, "user: first", w.History("chat_history:1")[0])
}

// gossip says a secret in every history, and again in later turns.
func gossip(secret string) webmemorytest.Agent {
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

// placesOfText returns the places in Redis and below folders that contain text.
func placesOfText(w *webmemorytest.World, text string, folders ...string) (places []string) {
	return placesOf(w, []string{text}, folders...)
}

// redactAll redacts an exchange of chat 1, and then each other message that contains text.
func redactAll(w *webmemorytest.World, id, text string) (messages int) {
	w.T.Helper()
	messages = len(redactMessage(w, "/v1/chats/1/messages/"+id).Redacted)
	chat := memory.MustChat("1")
	for _, key := range []memory.Key{memory.ChatKey(chat), memory.SubagentKey("analytic", chat),
		memory.SubagentKey("knowledge", chat)} {
		got := w.Do("GET", webapi.HistoryPath(key)+"?archive=true&limit=1000", nil)
		require.Equal(w.T, 200, got.Status, string(got.Body))
		for _, m := range gjson.GetBytes(got.Body, "messages").Array() {
			if strings.Contains(m.Raw, text) {
				messages += len(redactMessage(w, webapi.MessagePath(key, m.Get("id").Str)+"?scope=message").Redacted)
			}
		}
	}
	return messages
}

// startReplicas starts n replicas, each with its own disk.
func startReplicas(w *webmemorytest.World, n int) (urls, data []string) {
	for range n {
		dir := w.T.TempDir()
		file, err := erasures.Open(filepath.Join(dir, "erasures.ndjson"))
		require.NoError(w.T, err)
		urls = append(urls, w.StartReplica(func(c *webmemory.Config) {
			c.EndStoreDir, c.SessionLogs, c.Erasures = filepath.Join(dir, "ends"), filepath.Join(dir, "logs"), file
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
	w := webmemorytest.NewDurableWorld(t, gossip(secret))
	ctx := context.Background()
	urls, data := startReplicas(w, 2)
	turn := func(url, text string) {
		w.Target(url, func() {
			got := w.Post("1", text, "Idempotency-Key", text)
			require.Equal(t, 200, got.Status, string(got.Body))
		})
	}
	turn(urls[0], "Hello there.")
	turn(urls[1], "Remember "+secret+" please")
	turn(urls[0], "Is it late?")
	turn(urls[1], "Then good night.")
	require.NotEmpty(t, placesOfText(w, secret, data...))
	w.Target(urls[0], func() {
		require.Greater(t, redactAll(w, storedIDs(w, "chat_history:1")[2], secret), 20)
	})
	require.Empty(t, placesOfText(w, secret, data...))
	require.NoError(t, w.Redis.BgRewriteAOF(ctx).Err())
	webmemorytest.Eventually(t, "the file is rewritten", func() bool {
		return strings.Contains(w.Redis.Info(ctx, "persistence").Val(), "aof_rewrite_in_progress:0") &&
			strings.Contains(w.Redis.Info(ctx, "persistence").Val(), "aof_last_bgrewrite_status:ok") &&
			len(placesOfText(w, secret, w.RedisServer.Dir)) == 0
	})
	require.Contains(t, strings.Join(w.History("chat_history:1"), " "), "Hello there.")

	// All is lost, and comes back from copies: of the text nothing does.
	require.NoError(t, w.Redis.FlushAll(ctx).Err())
	webmemorytest.Eventually(t, "it is back", func() bool { return len(w.History("chat_history:1")) == 8 })
	turn(urls[1], "and on")
	require.Empty(t, placesOfText(w, secret, data...))
}

// Over the embedded store no file holds redacted text when the answer comes.
func TestRedactionInTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	const secret = "QX-4711-ZZ"
	s := newSmall(t, t.TempDir(), gossip(secret))
	for _, text := range []string{"hello", "it is " + secret, "bye"} {
		require.Equal(t, 200, s.Post("1", text).Status)
	}
	require.NotEmpty(t, placesOfText(s.World, secret, s.dir))
	require.Greater(t, redactAll(s.World, storedIDs(s.World, "chat_history:1")[2], secret), 10)
	require.Empty(t, placesOfText(s.World, secret, s.dir))
	require.Equal(t, 200, s.Post("1", "and on").Status)
	require.Len(t, s.History("chat_history:1"), 8)
}
