package uistream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/tidwall/gjson"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/internal/redistest"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/webmemory/openaiapi"
)

// newWorld returns a world with a replica that serves useChat.
func newWorld(t *testing.T, a webmemorytest.Agent, change ...func(*openaiapi.Config)) *webmemorytest.World {
	w := webmemorytest.NewWorld(t, a)
	w.URL = w.StartOpenAI(change...)
	return w
}

// filesWorld returns a world with documents, which have a Redis of their own.
func filesWorld(t *testing.T) *webmemorytest.World {
	w := webmemorytest.NewWorld(t, nil)
	library := rag.NewLibrary(docstore.New(redistest.Start(t).Client(), 0), rag.Options{Log: zerolog.Nop()})
	hello := webmemorytest.Answers("hello")
	runs := apiserver.New(apiserver.Config{Documents: library}, hello, nil, webmemorytest.Logger())
	t.Cleanup(func() { _ = runs.Close() })
	w.SetApiserver(runs.Handler())
	w.URL = w.StartOpenAI()
	return w
}

// numberedAnswers returns an agent that answers "N: MESSAGE" to the Nth message.
func numberedAnswers() webmemorytest.Agent {
	var n atomic.Int64
	return func(_ context.Context, r master.Request, emit webmemorytest.Emit) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
			Metadata: r.Metadata})
		emit(event.Head{}, &event.Assistant{Content: fmt.Sprintf("%d: %s", n.Add(1), r.Message)})
		emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
	}
}

// callTool is a run that calls the client's tool and answers with its result.
func callTool(_ context.Context, r api.RunRequest, emit func(event.Head, event.Payload)) {
	if r.Resume == nil {
		emit(event.Head{}, &event.RunStarted{ChatID: r.ChatID, AgentVersion: r.AgentVersion, Message: r.Message})
		emit(event.Head{}, &event.RunWaiting{State: json.RawMessage(`{"step":1}`), Pending: []event.Wait{{ID: "W0",
			Kind: event.ClientResult, ToolCallID: "t0", Tool: r.Tools[0].Name, Arguments: json.RawMessage(`{"n":1}`),
			Reason: "The client is to run it.", ExpiresAt: event.Seconds(time.Now().Add(time.Hour))}}})
		return
	}
	answer := r.Resume.Answers[0]
	emit(event.Head{}, &event.RunResumed{Answers: r.Resume.Answers})
	emit(event.Head{}, &event.Assistant{Content: answer.Decision + " " + string(answer.Result)})
	emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
}

// userTexts returns the user's messages in a chat's history.
func userTexts(w *webmemorytest.World, chat string) string {
	w.T.Helper()
	var texts []string
	for _, m := range w.History("chat_history:" + chat) {
		if text, ok := strings.CutPrefix(m, "user: "); ok {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " ")
}

// documentCount returns the number of a chat's documents.
func documentCount(w *webmemorytest.World, chat string) int64 {
	w.T.Helper()
	return gjson.GetBytes(w.Do("GET", "/v1/chats/"+chat+"/documents", nil).Body, "documents.#").Int()
}
