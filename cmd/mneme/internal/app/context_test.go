package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/proxy/usage"
)

// small is a vendor with models that read no more than limit tokens, and says so in its
// own way.
type small struct {
	kind    string // of the backend
	limit   int
	refuse  func(limit, sent int) *upstreamtest.Fault // nil: as Anthropic does
	forgets bool                                      // the limit is no window: it is met again

	refused atomic.Int64
	vendor  *upstreamtest.Server
}

func (s *small) start(t *testing.T) (environ []string) {
	c := upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
		a := upstreamtest.Reply(upstreamtest.Say("Understood."))
		return &a
	}}
	path := "/v1"
	if s.refuse == nil {
		c.Vendor, c.Thinking.Window, path = upstreamtest.Anthropic, s.limit, ""
	}
	c.Fault = func(r *upstreamtest.Request) *upstreamtest.Fault {
		sent := int(usage.EstimateInput(r.Body))
		if (r.Endpoint != upstreamtest.EndpointChat && r.Endpoint != upstreamtest.EndpointMessages) || sent <= s.limit {
			return nil
		}
		s.refused.Add(1)
		if s.refuse == nil {
			return nil
		}
		return s.refuse(s.limit, sent)
	}
	s.vendor = upstreamtest.New(c)
	h := httptest.NewServer(s.vendor)
	t.Cleanup(h.Close)
	return []string{"MNEME_DATA_DIR=" + t.TempDir(), backend("v", s.kind, h.URL+path)}
}

func openAIs(limit, sent int) *upstreamtest.Fault {
	f := upstreamtest.Canned(400,
		fmt.Sprintf(`{"error":{"message":"This model's maximum context length is %d tokens. However, your messages `+
			`resulted in %d tokens. Please reduce the length of the `+
			`messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, limit, sent))
	return &f
}

func deepSeeks(limit, sent int) *upstreamtest.Fault {
	f := upstreamtest.Canned(400,
		fmt.Sprintf(`{"error":{"message":"This model's maximum context length is %d tokens. However, you requested %d `+
			`tokens (%d in the messages, 0 in the completion). Please reduce the length of the messages or `+
			`completion.","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, limit, sent, sent))
	return &f
}

func llamas(limit, sent int) *upstreamtest.Fault {
	f := upstreamtest.Canned(500,
		fmt.Sprintf(`{"error":{"code":500,"message":"the request exceeds the available context size. try increasing the `+
			`context size or enable context shift","type":"exceed_context_size_error","n_prompt_tokens":%d,"n_ctx":%d}}`, sent,
			limit))
	return &f
}

func groqs(int, int) *upstreamtest.Fault {
	f := upstreamtest.Canned(400,
		`{"error":{"message":"Please reduce the length of the messages or `+
			`completion.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`)
	return &f
}

func perMinute(limit, sent int) *upstreamtest.Fault {
	f := upstreamtest.Canned(429,
		fmt.Sprintf(`{"error":{"message":"Request too large for gpt-4.1 in organization org-1 on tokens per min (TPM): `+
			`Limit %d, Requested %d. The input or output tokens must be reduced in order to run `+
			`successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, limit, sent))
	return &f
}

// An agent with a model that is configured to be small keeps to it from the start, and so
// does a subagent.
func TestConfiguredContextTokens(t *testing.T) {
	t.Parallel()
	s := &small{kind: "openai", limit: 6_000, refuse: openAIs}
	environ := append(s.start(t), "MNEME_AGENTS_MASTER_CONTEXT_TOKENS=6000",
		"MNEME_AGENTS_SUBAGENTS=[{name: analytic, context_tokens: 6000}, {name: knowledge}]")
	u := start(t, environ...)
	long := strings.Repeat("The ferry leaves at noon. ", 4000)
	require.Equal(t, "Understood.", u.say("1", long))
	body, err := json.Marshal(map[string]string{"message": long, "agent_version": "analytic"})
	require.NoError(t, err)
	status, answer := u.request(http.MethodPost, "/v1/chats/1/messages", "application/json", string(body))
	require.Equal(t, http.StatusOK, status, answer)
	require.Zero(t, s.refused.Load())
}

// A model that refuses any length ends the run with a code and a sentence of ours.
func TestALengthThatNothingCures(t *testing.T) {
	t.Parallel()
	s := &small{kind: "openai", limit: 1, refuse: openAIs}
	u := start(t, s.start(t)...)
	events := u.stream("1", "Hello")
	failure := failureOf(t, events)
	require.Equal(t, "context_length_exceeded", failure.Code)
	require.Equal(t, "The request is longer than the model can read.", failure.Message)
	require.False(t, failure.Retryable)
}

// failureOf is a run's error.
func failureOf(t *testing.T, events []event.Event) *event.Error {
	t.Helper()
	for _, e := range events {
		if p, ok := e.Payload.(*event.Error); ok && e.Subagent == memory.Agent("") {
			return p
		}
	}
	t.Fatal("the run did not fail")
	return nil
}
