package app_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/apiserver/api/sse"
	"mneme/cmd/mneme/internal/app"
	"mneme/internal/redistest"
	"mneme/memory"
)

// This file is about a rolling step: for a while processes of the version before run
// beside those of today. The types here are what the version before knows of the wire
// between webmemory and the apiserver. They stay as they are.

type runRequestBefore struct {
	RunID            string                       `json:"run_id"`
	Message          string                       `json:"message"`
	ChatID           string                       `json:"chat_id"`
	Context          []messageBefore              `json:"context"`
	SubagentContexts map[string][]json.RawMessage `json:"subagent_contexts"`
	AgentVersion     string                       `json:"agent_version"`
	ConversationID   string                       `json:"conversation_id"`
}

type messageBefore struct {
	Role      string  `json:"role"`
	Content   string  `json:"content"`
	Timestamp float64 `json:"timestamp"`
}

// eventBefore holds the members of all events; the version before passes over others.
type eventBefore struct {
	Role     string  `json:"role"`
	RunID    string  `json:"run_id"`
	Seq      int64   `json:"seq"`
	TS       float64 `json:"ts"`
	Subagent string  `json:"subagent"`
	CallID   string  `json:"call_id"`

	ChatID       string   `json:"chat_id"`
	AgentVersion string   `json:"agent_version"`
	Subagents    []string `json:"subagents"`
	Message      string   `json:"message"`
	Text         string   `json:"text"`
	Task         string   `json:"task"`
	Calls        string   `json:"calls"`
	Content      string   `json:"content"`
	Response     string   `json:"response"`
	Status       string   `json:"status"`
	Code         string   `json:"code"`
	Retryable    bool     `json:"retryable"`
	Outcome      string   `json:"outcome"`
	Partial      bool     `json:"partial"`
	Usage        struct {
		InputTokens  int64 `json:"input_tokens"`
		OutputTokens int64 `json:"output_tokens"`
	} `json:"usage"`
}

// changes are the events that the version before knows to change a history, or to be
// of importance to a run's end; webmemory takes no run without them.
var changes = map[string]bool{
	"run_started": true, "subagent_delegation": true, "subagent_assistant_with_tools": true, "subagent_tool_result": true,
	"subagent_completion": true, "assistant": true, "error": true, "run_finished": true,
}

// eventsBefore are the events of the first run, as the apiserver before sent them and
// webmemory stored them.
func eventsBefore(t *testing.T) (lines []string) {
	t.Helper()
	for _, c := range commandsBefore(t) {
		if c[0] == "XADD" && c[1] == "events:harbour:"+firstRun {
			lines = append(lines, c[4])
		}
	}
	require.NotEmpty(t, lines)
	return lines
}

// requestsBefore are what webmemory posted: for a chat without histories and for one
// with some.
func requestsBefore(t *testing.T) (fresh, known []byte) {
	t.Helper()
	lines := bytes.Split(bytes.TrimSpace(readBefore(t, "run_requests.jsonl")), []byte("\n"))
	require.Len(t, lines, 2)
	return lines[0], lines[1]
}

// A webmemory of the version before is served by an apiserver of today: it may send
// null for a history that holds nothing, and understands what it gets.
func TestAWebmemoryOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	vendor, backend := scripted(t, "Still here.")
	gateway := serve(t, app.Proxy, append(backend, "MNEME_PROXY_LISTEN=127.0.0.1:0")...)
	apis := serve(t, app.Apiserver, "MNEME_APISERVER_LISTEN=127.0.0.1:0", "MNEME_APISERVER_PROXY=http://"+gateway.Proxy)
	fresh, known := requestsBefore(t)
	require.Contains(t, string(fresh), `"context":null`)
	for _, body := range [][]byte{fresh, known} {
		var sent runRequestBefore
		require.NoError(t, json.Unmarshal(body, &sent))
		resp, err := http.Post("http://"+apis.Apiserver+"/v1/runs", "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusAccepted, resp.StatusCode, string(raw))
		var accepted struct {
			RunID  string `json:"run_id"`
			Events string `json:"events"`
		}
		require.NoError(t, json.Unmarshal(raw, &accepted))
		require.Equal(t, sent.RunID, accepted.RunID)

		events := readEventsBefore(t, accepted.Events)
		require.Equal(t, "run_started", events[0].Role)
		require.Equal(t, sent.Message, events[0].Message)
		require.Equal(t, sent.ChatID, events[0].ChatID)
		last := events[len(events)-1]
		require.Equal(t, "run_finished", last.Role)
		require.Equal(t, "completed", last.Outcome)
		require.Positive(t, last.Usage.InputTokens)
		for i, e := range events {
			require.EqualValues(t, i+1, e.Seq, "without a gap")
			require.Equal(t, sent.RunID, e.RunID)
			if e.Role == "assistant" {
				require.Equal(t, "Still here.", e.Content)
			}
		}
		for _, m := range sent.Context {
			require.Contains(t, string(vendor.Last().Body), m.Content)
		}
	}
}

// readEventsBefore reads a run's events to the end, as the version before does.
func readEventsBefore(t *testing.T, url string) (events []eventBefore) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	for in := sse.NewReader(resp.Body, api.MaxEvent, 0, nil); ; {
		frame, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		var e eventBefore
		require.NoError(t, json.Unmarshal(frame.Data, &e), string(frame.Data))
		require.True(t, changes[e.Role] || strings.HasSuffix(e.Role, "_delta") || e.Role == "subagent_tool",
			"unknown to it: %s", frame.Data)
		events = append(events, e)
	}
	require.NotEmpty(t, events)
	return events
}

// An apiserver of the version before serves a webmemory of today: it understands what
// it is sent, and its events become the histories that they became before.
func TestAnApiserverOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []runRequestBefore // guarded by mu
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("POST /v1/runs", func(w http.ResponseWriter, r *http.Request) {
		var body runRequestBefore
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		asked = append(asked, body)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"run_id":%q,"events":"%s/v1/runs/%s/events"}`, body.RunID, server.URL, body.RunID)
	})
	lines := eventsBefore(t)
	mux.HandleFunc("GET /v1/runs/{run}/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, line := range lines {
			var e eventBefore
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				panic(err) // it was read before
			}
			fmt.Fprintf(w, "id: %d\ndata: %s\nevent: %s\n\n", i+1, strings.ReplaceAll(line, firstRun, r.PathValue("run")),
				e.Role)
		}
	})
	for _, route := range []string{"DELETE /v1/runs/{run}", "POST /v1/runs/{run}/stop"} {
		mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	}

	s := redistest.Start(t)
	w := serve(t, app.Webmemory, "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_WEBMEMORY_APISERVER="+server.URL,
		"MNEME_REDIS_URL="+s.URL())
	resp, err := http.Post("http://"+w.Webmemory+"/v1/chats/harbour/messages", "application/json",
		strings.NewReader(firstPost))
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(raw))
	require.Contains(t, string(raw), firstAnswer)

	mu.Lock()
	defer mu.Unlock()
	require.Len(t, asked, 1)
	require.Equal(t, "harbour", asked[0].ChatID)
	require.Contains(t, firstPost, asked[0].Message)
	require.Empty(t, asked[0].Context)
	require.Contains(t, asked[0].SubagentContexts, "analytic")
	require.NotEmpty(t, asked[0].ConversationID)

	for _, c := range commandsBefore(t) {
		if c[0] != "SET" || c[1] != harbour[0] && c[1] != harbour[1] {
			continue
		}
		var want, got []json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(c[2]), &want))
		raw, err := s.Client().Get(t.Context(), c[1]).Bytes()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &got))
		n := map[string]int{harbour[0]: 2, harbour[1]: 4}[c[1]] // what the first run wrote
		for i := range want[:n] {                               // it says of no message whose words it is: its kind does
			var m memory.Message
			require.NoError(t, json.Unmarshal(want[i], &m))
			m.Authority = map[string]memory.Authority{memory.RoleUser: memory.FromUser, memory.RoleAssistant: memory.FromAgent,
				memory.RoleTool: memory.FromOutside}[m.Role]
			if c[1] != harbour[0] && m.Role == memory.RoleUser {
				m.Authority = memory.FromAgent
			}
			want[i] = m.Encode()
		}
		requireSame(t, want[:n], got)
	}
}
