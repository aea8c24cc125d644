package app_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// collector takes traces as strictly as OTLP over HTTP allows.
type collector struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	spans map[string]sentSpan // guarded by mu: by their ids
}

// sentSpan is a span as the collector has it.
type sentSpan struct {
	*tracepb.Span
	service string
	with    map[string]string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, spans: map[string]sentSpan{}}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.url = server.URL
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000") // ms: what comes is sent by the end alone
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	refuse := func(why string) {
		c.t.Error("the collector refuses: " + why)
		http.Error(w, why, http.StatusBadRequest)
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" ||
		r.Header.Get("Content-Type") != "application/x-protobuf" {
		refuse(r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type"))
		return
	}
	body, err := io.ReadAll(r.Body)
	var sent tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil || len(sent.ProtoReflect().GetUnknown()) > 0 {
		refuse(fmt.Sprint("no request: ", err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				id := hex.EncodeToString(s.SpanId)
				if len(s.TraceId) != 16 || len(s.SpanId) != 8 || s.Name == "" || s.StartTimeUnixNano == 0 ||
					s.EndTimeUnixNano < s.StartTimeUnixNano || c.spans[id].Span != nil {
					refuse("a span: " + s.String())
					return
				}
				c.spans[id] = sentSpan{s, labelled(of.Resource.Attributes)["service.name"], labelled(s.Attributes)}
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// labelled are attributes as text.
func labelled(all []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		out[a.Key] = strings.Trim(fmt.Sprint(protoValue(a.Value)), `"`)
	}
	return out
}

func protoValue(v *commonpb.AnyValue) any {
	switch v := v.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	}
	return v
}

// of are the spans of a trace, in the order in which they began.
func (c *collector) of(trace string) (all []sentSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b sentSpan) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return all
}

// tree draws spans below the one with an id, each with its service.
func tree(all []sentSpan, below string) (lines []string) {
	for _, s := range all {
		if hex.EncodeToString(s.ParentSpanId) != below {
			continue
		}
		lines = append(lines, strings.TrimPrefix(s.service, "mneme-")+": "+s.Name)
		for _, line := range tree(all, hex.EncodeToString(s.SpanId)) {
			lines = append(lines, "  "+line)
		}
	}
	return lines
}

// One message is one trace over the three services, whatever of it a process does for another.
func TestARunIsOneTrace(t *testing.T) {
	c := newCollector(t)
	s := startSeen(t)
	status, run, answer := s.post("/v1/chats/tg:777/messages", `{"message":"How much is 17 * 23?","user":"ana"}`)
	require.Equal(t, http.StatusOK, status, answer)
	s.stop() // which sends what is left

	traces := map[string]bool{}
	c.mu.Lock()
	for _, span := range c.spans {
		traces[hex.EncodeToString(span.TraceId)] = true
	}
	c.mu.Unlock()
	require.Len(t, traces, 1)
	trace := slices.Collect(maps.Keys(traces))[0]
	for _, line := range s.lines("apiserver") {
		if line["message"] == "run finished" {
			require.Equal(t, trace, line["trace_id"], "the log names the trace")
		}
	}
	all := c.of(trace)
	require.Equal(t, []string{
		"webmemory: invoke_workflow mneme",
		"  apiserver: invoke_agent master",
		"    webmemory: search_memory",
		"    proxy: chat master",
		"    apiserver: invoke_agent analytic",
		"      webmemory: search_memory",
		"      proxy: chat analytic",
		"      apiserver: execute_tool calculator",
		"      proxy: chat analytic",
		"    proxy: chat master",
		"  webmemory: create_memory",
		"  webmemory: create_memory",
		"  webmemory: create_memory",
		"  webmemory: create_memory",
		"  webmemory: create_memory",
		"  webmemory: create_memory",
	}, tree(all, ""))
	kinds := map[string]string{"chat": "LLM", "invoke_agent": "AGENT", "execute_tool": "TOOL", "invoke_workflow": "CHAIN",
		"create_memory": "CHAIN", "search_memory": "RETRIEVER"}
	for _, span := range all {
		require.Equal(t, "tg:777", span.with["gen_ai.conversation.id"])
		require.Equal(t, "tg:777", span.with["session.id"])
		require.Equal(t, run, span.with["mneme.run.id"])
		require.Equal(t, kinds[span.with["gen_ai.operation.name"]], span.with["openinference.span.kind"])
		require.NotEmpty(t, span.with["langfuse.observation.type"])
		require.Empty(t, span.with["error.type"])
		for key, value := range span.with {
			require.NotContains(t, value, "17 * 23", key)
			require.NotContains(t, value, "391", key)
		}
		if span.with["gen_ai.operation.name"] == "chat" {
			require.Contains(t, []string{"anthropic", "generic"}, span.with["gen_ai.provider.name"])
			require.Equal(t, "1", span.with["mneme.attempts"])
			for _, key := range []string{"gen_ai.response.model", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
				"gen_ai.usage.cache_read.input_tokens", "mneme.backend", "llm.token_count.total"} {
				require.NotEmpty(t, span.with[key], key)
			}
			require.Equal(t, tracepb.Span_SPAN_KIND_CLIENT, span.Kind)
		}
		if span.Name == "execute_tool calculator" {
			require.NotEmpty(t, span.with["gen_ai.tool.call.id"])
		}
	}
	require.Equal(t, "ana", all[0].with["user.id"])
	require.Equal(t, "completed", all[0].with["mneme.outcome"])
}

// A caller's trace goes on, and content is sent where it is asked for.
func TestACallersTraceGoesOnWithContent(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c := newCollector(t)
	t.Setenv("OTEL_SERVICE_NAME", "shop")
	s := startSeen(t, "MNEME_OTEL_CONTENT=true")
	status, _, answer := s.post("/v1/chats/1/messages", `{"message":"How much is 17 * 23?"}`, "traceparent",
		"00-"+trace+"-"+parent+"-01")
	require.Equal(t, http.StatusOK, status, answer)
	status, _, answer = s.post("/v1/chats/1/messages", `{"message":"Not recorded"}`, "traceparent",
		"00-"+strings.Repeat("a", 32)+"-"+parent+"-00")
	require.Equal(t, http.StatusOK, status, answer)
	s.stop()
	require.Empty(t, c.of(strings.Repeat("a", 32)), "its caller does not record it")
	all := c.of(trace)
	require.Len(t, tree(all, parent), len(all), "all stand below the caller's span")
	said := map[string]map[string]string{}
	for _, span := range all {
		require.Equal(t, "shop", span.service)
		said[span.Name] = span.with
	}
	require.Contains(t, said["invoke_workflow mneme"]["gen_ai.input.messages"], "How much is 17 * 23?")
	require.Contains(t, said["invoke_workflow mneme"]["output.value"], "391")
	require.Contains(t, said["invoke_agent analytic"]["gen_ai.output.messages"], "391")
	require.JSONEq(t, `{"expression":"17 * 23"}`, said["execute_tool calculator"]["gen_ai.tool.call.arguments"])
	require.Contains(t, said["execute_tool calculator"]["gen_ai.tool.call.result"], "391")
}

// A call that a vendor refuses, and the run that fails by it, are errors in the trace.
func TestAFailedRunIsSeenInItsTrace(t *testing.T) {
	c := newCollector(t)
	s := startSeen(t)
	s.claude.Fail(upstreamtest.Fault{Status: 401}, upstreamtest.Fault{Status: 401})
	status, run, _ := s.post("/v1/chats/9/messages", `{"message":"Hello"}`)
	require.Equal(t, http.StatusBadGateway, status)
	s.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := map[string]string{}
	for _, span := range c.spans {
		require.Equal(t, run, span.with["mneme.run.id"])
		if span.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			failed[span.Name] = span.with["error.type"]
		}
	}
	require.Equal(t, map[string]string{"chat master": "key_refused", "invoke_agent master": "model_unauthorized",
		"invoke_workflow mneme": "run_failed"}, failed)
}

// Chat completions are asked of the service by itself, and are a trace all the same.
func TestChatCompletionsAreATrace(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	c := newCollector(t)
	s := startSeen(t)
	const body = `{"model":"mneme","messages":[{"role":"user","content":"How much is 17 * 23?"}]}`
	status, _, answer := s.post("/c/5/v1/chat/completions", body)
	require.Equal(t, http.StatusOK, status, answer)
	status, _, answer = s.post("/c/6/v1/chat/completions", body, "traceparent", "00-"+trace+"-"+parent+"-01")
	require.Equal(t, http.StatusOK, status, answer)
	s.stop()
	c.mu.Lock()
	roots := 0
	for _, span := range c.spans {
		if len(span.ParentSpanId) == 0 {
			require.Equal(t, "invoke_workflow mneme", span.Name)
			roots++
		}
	}
	c.mu.Unlock()
	require.Equal(t, 1, roots)
	require.Equal(t, "webmemory: invoke_workflow mneme", tree(c.of(trace), parent)[0])
}

// A run that waited goes on in a trace of its own, which is linked to the one that waited.
func TestAWaitIsALink(t *testing.T) {
	c := newCollector(t)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	post := func(path, body string, want int) gjson.Result {
		status, answer := u.request(http.MethodPost, path, "application/json", body)
		require.Equal(t, want, status, answer)
		return gjson.Parse(answer)
	}
	waiting := post("/v1/chats/9/messages", `{"message":"use light {\"room\":\"hall\"}","tools":[{"name":"light",`+
		`"parameters":{"type":"object","properties":{"room":{"type":"string"}}}}]}`, http.StatusAccepted)
	post("/v1/chats/9/runs/"+waiting.Get("run_id").Str+"/resume", `{"answers":[{"id":"`+waiting.Get("waits.0.id").Str+
		`","decision":"approve","result":{"state":"it shines"}}]}`, http.StatusOK)
	u.stop()
	var roots []sentSpan
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		require.Equal(t, waiting.Get("run_id").Str, span.with["mneme.run.id"], span.Name)
		if span.Name == "invoke_workflow mneme" {
			roots = append(roots, span)
		}
	}
	require.Len(t, roots, 2)
	slices.SortFunc(roots, func(a, b sentSpan) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	require.Equal(t, "waiting", roots[0].with["mneme.outcome"])
	require.Equal(t, "completed", roots[1].with["mneme.outcome"])
	require.NotEqual(t, roots[0].TraceId, roots[1].TraceId)
	require.Empty(t, roots[1].ParentSpanId)
	require.Len(t, roots[1].Links, 1)
	require.Equal(t, roots[0].TraceId, roots[1].Links[0].TraceId)
	require.Equal(t, roots[0].SpanId, roots[1].Links[0].SpanId)
}

// A collector that hangs, refuses or is away costs a run nothing, and an end only bounded time.
func TestACollectorThatIsAwayCostsARunNothing(t *testing.T) {
	testtier.Slow(t)
	hang := make(chan struct{})
	for name, answer := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		},
		"refuses": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"is full": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "later", http.StatusServiceUnavailable) },
		"is away": nil,
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			if answer == nil {
				server.Close()
			}
			t.Cleanup(server.CloseClientConnections)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4") // what comes beyond is dropped
			t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
			s := startSeen(t)
			for range 3 {
				status, _, answer := s.post("/v1/chats/1/messages", `{"message":"How much is 17 * 23?"}`)
				require.Equal(t, http.StatusOK, status, answer)
				require.Contains(t, answer, "391")
			}
			s.stop()
			require.Contains(t, s.log.String(), `"run finished"`)
		})
	}
	close(hang)
}
