package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"mneme/apiserver"
	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/tracing"
)

// traced runs an agent that publishes events, as those of delegations under their calls, and gives the spans, each as
// its parent, its name and its error.
func traced(t *testing.T, say func(at func(call string, p event.Payload))) (spans []string) {
	t.Helper()
	var mu sync.Mutex
	var all []*tracepb.Span
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var sent tracepb.TracesData
		body, err := io.ReadAll(r.Body)
		if err != nil || proto.Unmarshal(body, &sent) != nil {
			t.Error("no traces")
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range sent.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				all = append(all, scope.Spans...)
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	e, err := tracing.Open("", false, func(err error) { t.Error(err) })
	require.NoError(t, err)
	s := start(t, apiserver.Config{Traces: e.Tracer("apiserver")}, publishing(func(publish func(event.Event) error) {
		seq := int64(0)
		say(func(call string, p event.Payload) {
			seq++
			head := event.Head{RunID: "R1", Seq: seq, TS: 1763711157, CallID: call}
			if call != "" {
				head.Subagent = memory.Agent("agent-" + call)
			}
			require.NoError(t, publish(event.New(head, p)))
		})
	}))
	_, err = s.PostRun(t.Context(), api.RunRequest{RunID: "R1", ChatID: chatOf(t, "1"), AgentVersion: master.Version,
		Message: "Hello"})
	require.NoError(t, err)
	require.NoError(t, s.Server.Close())
	require.NoError(t, e.Close())
	mu.Lock()
	defer mu.Unlock()
	names := map[string]string{}
	for _, span := range all {
		require.Empty(t, names[string(span.SpanId)], "each span has its own id")
		names[string(span.SpanId)] = span.Name
	}
	for _, span := range all {
		line := names[string(span.ParentSpanId)] + " > " + span.Name
		if span.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			line += ": " + span.Status.Message
		}
		spans = append(spans, line)
	}
	slices.Sort(spans)
	return spans
}

// publishing is an Agent that publishes by itself.
type publishing func(publish func(event.Event) error)

func (p publishing) Run(_ context.Context, _ master.Request, publish func(event.Event) error) {
	p(publish)
}

func chatOf(t *testing.T, id string) memory.Chat {
	t.Helper()
	chat, err := memory.ParseChat(id)
	require.NoError(t, err)
	return chat
}

func calls(names ...string) *event.AssistantWithTools {
	p := new(event.AssistantWithTools)
	for i, name := range names {
		p.ToolCalls = append(p.ToolCalls, memory.ToolCall{ID: fmt.Sprint(name, i), Type: "function",
			Function: memory.FunctionCall{Name: name, Arguments: "{}"}})
	}
	return p
}

// Two delegations at once, calls of one tool at once, one of which fails, a call
// that never begins, a search of documents, a tool of the master's, a subagent's step that is no call of a tool.
func TestSpansOfARunsEvents(t *testing.T) {
	progress := func(tool, status string) *event.ToolProgress { return &event.ToolProgress{Tool: tool, Status: status} }
	own := func(status string) *event.MasterTool { return &event.MasterTool{Tool: "date", Status: status} }
	result := func(id string) *event.ToolResult { return &event.ToolResult{ToolCallID: id, Content: "x"} }
	require.Equal(t, []string{
		" > invoke_agent master",
		"invoke_agent agent-a > execute_tool pay",
		"invoke_agent agent-a > execute_tool pay: tool_failed",
		"invoke_agent agent-b > retrieval documents",
		"invoke_agent master > execute_tool date",
		"invoke_agent master > execute_tool date: tool_failed",
		"invoke_agent master > invoke_agent agent-a",
		"invoke_agent master > invoke_agent agent-b: max_steps",
	}, traced(t, func(at func(call string, p event.Payload)) {
		at("", &event.RunStarted{AgentVersion: master.Version, Message: "Hello"})
		at("", own("running"))
		at("", own("running"))
		at("", own("done"))
		at("", own("running"))
		at("", own("failed"))
		at("a", &event.Delegation{Task: "one", Calls: event.Serial})
		at("b", &event.Delegation{Task: "two", Calls: event.Serial})
		at("a", calls("pay", "pay", "never"))
		at("b", calls("search_documents"))
		at("a", progress("pay", "running"))
		at("b", progress("search_documents", "running"))
		at("a", progress("pay", "running"))
		at("a", progress("pay", "failed"))
		at("a", progress("round 1", "running"))
		at("a", result("pay0"))
		at("a", progress("pay", "done"))
		at("b", progress("search_documents", "done"))
		at("b", result("search_documents0"))
		at("a", result("pay1"))
		at("a", result("unknown"))
		at("b", &event.Completion{Response: "y", Status: event.Failed, Failure: "max_steps"})
		at("a", &event.Completion{Response: "z", Status: event.Completed})
		at("", &event.Assistant{Content: "z"})
		at("", &event.RunFinished{Outcome: event.Completed})
	}))
}

// What has not ended with a run that fails, or that forgets its end, ends with it.
func TestSpansOfARunThatBreaksOff(t *testing.T) {
	require.Equal(t, []string{
		" > invoke_agent master: run_timeout",
		"invoke_agent agent-a > execute_tool pay: run_timeout",
		"invoke_agent master > invoke_agent agent-a: run_timeout",
	}, traced(t, func(at func(call string, p event.Payload)) {
		at("", &event.RunStarted{AgentVersion: master.Version, Message: "Hello"})
		at("a", &event.Delegation{Task: "one", Calls: event.Serial})
		at("a", calls("pay"))
		at("a", &event.ToolProgress{Tool: "pay", Status: "running"})
		at("", &event.Error{Code: "run_timeout", Message: "Too long."})
	}))
}
