package event_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
	"mneme/memory/event"
)

func TestEventsOnTheWire(t *testing.T) {
	head := event.Head{RunID: "r", Seq: 2, TS: 1763711157.25}
	own := event.Head{RunID: "r", Seq: 3, TS: 1, Subagent: "analytic", CallID: "c"}
	const headJSON, ownJSON = `"run_id":"r","seq":2,"ts":1763711157.25`,
		`"run_id":"r","seq":3,"ts":1,"subagent":"analytic","call_id":"c"`
	for _, c := range []struct {
		event event.Event
		want  string
	}{
		{event.New(head, &event.RunStarted{ChatID: memory.MustChat("-100"), AgentVersion: "master", Subagents: []memory.Agent{
			"analytic",
		}, Message: "<a> & \"б\""}),
			`{"role":"run_started",` + headJSON +
				`,"chat_id":"-100","agent_version":"master","subagents":["analytic"],"message":"<a> & \"б\""}`},
		{event.New(own, &event.Recalled{Messages: []event.RecalledMessage{{ID: "r.1", TS: 2.5, Score: 0.5}}, Partial: true}),
			`{"role":"recalled",` + ownJSON + `,"recalled":[{"id":"r.1","ts":2.5,"score":0.5}],"partial":true}`},
		{event.New(head, &event.Recalled{Messages: []event.RecalledMessage{}, Failed: event.MemoryUnreachable}),
			`{"role":"recalled",` + headJSON + `,"recalled":[],"failed":"memory_unreachable"}`},
		{event.New(head, &event.AssistantDelta{Text: "a\nb"}), `{"role":"assistant_delta",` + headJSON + `,"text":"a\nb"}`},
		{event.New(own, &event.Delegation{Task: "t", Calls: event.Serial}), `{"role":"subagent_delegation",` + ownJSON +
			`,"task":"t","calls":"serial"}`},
		{event.New(own, &event.SubagentDelta{Text: "x"}), `{"role":"subagent_delta",` + ownJSON + `,"text":"x"}`},
		{event.New(own, &event.AssistantWithTools{
			ToolCalls: []memory.ToolCall{{ID: "1", Type: "function", Function: memory.FunctionCall{Name: "f", Arguments: "{}"}}},
		}),
			`{"role":"subagent_assistant_with_tools",` + ownJSON +
				`,"content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`},
		{event.New(own, &event.ToolProgress{Tool: "f", Status: "running"}), `{"role":"subagent_tool",` + ownJSON +
			`,"tool":"f","status":"running"}`},
		{event.New(own, &event.ToolResult{ToolCallID: "1", Name: "f", Content: "12", Origin: memory.Origin{
			Authority: memory.FromOutside, Source: "crm/f",
		}}), `{"role":"subagent_tool_result",` + ownJSON +
			`,"tool_call_id":"1","name":"f","content":"12","from":"outside","source":"crm/f"}`},
		{event.New(head, &event.RunWaiting{Pending: []event.Wait{{
			ID: "w", Kind: event.Approval, ToolCallID: "1", Tool: "f", Arguments: json.RawMessage(`{"a":"x"}`), Reason: "why",
			ExpiresAt: 2,
			Origins:   []event.ArgumentOrigin{{"a", "x", memory.Origin{Authority: memory.FromDocument, Source: "d p. 3"}}},
		}}}), `{"role":"run_waiting",` + headJSON + `,"waits":[{"id":"w","kind":"approval","tool_call_id":"1","tool":"f",` +
			`"arguments":{"a":"x"},"reason":"why","expires_at":2,` +
			`"origins":[{"argument":"a","value":"x","from":"document","source":"d p. 3"}]}]}`},
		{event.New(own, &event.Completion{Response: "r", Status: event.Completed, Citations: []event.Citation{
			{N: 1, DocID: "d"},
		}, Usage: event.Usage{InputTokens: 3}}),
			`{"role":"subagent_completion",` + ownJSON +
				`,"response":"r","status":"completed","citations":[{"n":1,"doc_id":"d"}],"usage":{"input_tokens":3,"output_tokens":0}}`},
		{event.New(own, &event.Completion{Response: "r [1]", Status: event.Completed, Answer: &event.Answer{
			Status: event.Partial, Answer: "r [1]", Citations: []event.Citation{
				{N: 1, DocID: "d", Quote: "q", Start: 7, End: 8},
			}, Missing: []string{"m"},
			Flags: []event.Flag{{Kind: "unverified", Text: "3"}}, InjectionSignals: 2,
		}}), `{"role":"subagent_completion",` + ownJSON +
			`,"response":"r [1]","status":"completed","answer":{"status":"partial","answer":"r [1]",` +
			`"citations":[{"n":1,"doc_id":"d","quote":"q","start":7,"end":8}],"missing":["m"],"flags":[{"kind":"unverified","text":"3"}],"injection_signals":2},` +
			`"usage":{"input_tokens":0,"output_tokens":0}}`},
		{event.New(head, &event.Assistant{Content: "c", Partial: true}), `{"role":"assistant",` + headJSON +
			`,"content":"c","partial":true}`},
		{event.New(own, &event.Error{Code: "x", Message: "m", Retryable: true}), `{"role":"error",` + ownJSON +
			`,"code":"x","message":"m","retryable":true}`},
		{event.New(head, &event.RunFinished{Outcome: event.Stopped}), `{"role":"run_finished",` + headJSON +
			`,"outcome":"stopped","usage":{"input_tokens":0,"output_tokens":0}}`},
	} {
		t.Run(c.event.Role(), func(t *testing.T) {
			require.Equal(t, c.want, string(c.event.Line()))
			back, err := event.Decode([]byte(c.want))
			require.NoError(t, err)
			require.Equal(t, c.event, back)
		})
	}
}

var (
	agents   = rapid.SampledFrom([]memory.Agent{"analytic", "knowledge", "a_b-9"})
	outcomes = rapid.SampledFrom([]string{event.Completed, event.Stopped, event.Failed, event.MaxSteps})
	usages   = rapid.Custom(func(t *rapid.T) event.Usage {
		return event.Usage{InputTokens: rapid.Int64Min(0).Draw(t, "input"), OutputTokens: rapid.Int64Min(0).Draw(t, "output"),
			Estimated:    rapid.Bool().Draw(t, "estimated"),
			CachedTokens: rapid.Int64Min(0).Draw(t, "cached"), ReasoningTokens: rapid.Int64Min(0).Draw(t, "reasoning")}
	})
	toolCalls = rapid.Custom(func(t *rapid.T) memory.ToolCall {
		return memory.ToolCall{ID: rapid.String().Draw(t, "id"), Type: "function", Function: memory.FunctionCall{
			Name: rapid.String().Draw(t, "name"), Arguments: rapid.String().Draw(t, "arguments"),
		}}
	})
	citations = rapid.Custom(func(t *rapid.T) event.Citation {
		return event.Citation{N: rapid.IntRange(1, 99).Draw(t, "n"), PassageID: rapid.String().Draw(t, "passage"),
			DocID: rapid.String().Draw(t, "doc"),
			Title: rapid.String().Draw(t, "title"), Source: rapid.String().Draw(t, "source"),
			Quote: rapid.String().Draw(t, "quote"),
			Start: rapid.IntMin(0).Draw(t, "start"), End: rapid.IntMin(0).Draw(t, "end")}
	})
	answers = rapid.Custom(func(t *rapid.T) *event.Answer {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &event.Answer{
			Status: rapid.String().Draw(t, "status"), Answer: rapid.String().Draw(t, "answer"),
			Citations: rapid.SliceOfN(citations, 0, 3).Draw(t, "citations"),
			Missing:   rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "missing"),
			Flags:     some(t, flags, "flags"), InjectionSignals: rapid.IntMin(0).Draw(t, "signals"),
		}
	})
	recalled = rapid.Custom(func(t *rapid.T) event.RecalledMessage {
		return event.RecalledMessage{ID: rapid.String().Draw(t, "id"), TS: rapid.Float64().Draw(t, "ts"),
			Score: rapid.Float64().Draw(t, "score")}
	})
	modelCalls = rapid.Custom(func(t *rapid.T) event.ModelCall {
		return event.ModelCall{
			Subagent: agents.Draw(t, "subagent"), CallID: rapid.String().Draw(t, "call"),
			Started: rapid.Float64().Draw(t, "started"), Seconds: rapid.Float64().Draw(t, "seconds"),
			Model: rapid.String().Draw(t, "model"), Backend: rapid.String().Draw(t, "backend"),
			Attempts: rapid.Int().Draw(t, "attempts"), Mended: some(t, rapid.String(), "mended"),
			Usage: usages.Draw(t, "usage"), Error: rapid.String().Draw(t, "error"),
		}
	})
	flags = rapid.Custom(func(t *rapid.T) event.Flag {
		return event.Flag{Kind: rapid.String().Draw(t, "kind"), Text: rapid.String().Draw(t, "text")}
	})
)

// some is a list that is nil when it is empty, as it is after decoding where
// empty lists are left out.
func some[T any](t *rapid.T, what *rapid.Generator[T], label string) []T {
	list := rapid.SliceOfN(what, 0, 3).Draw(t, label)
	if len(list) == 0 {
		return nil
	}
	return list
}

var (
	origins = rapid.Custom(func(t *rapid.T) memory.Origin {
		return memory.Origin{Authority: rapid.SampledFrom([]memory.Authority{"", memory.FromUser,
			memory.FromDocument}).Draw(t, "from"), Source: rapid.String().Draw(t, "source")}
	})
	argumentOrigins = rapid.Custom(func(t *rapid.T) event.ArgumentOrigin {
		return event.ArgumentOrigin{Argument: rapid.String().Draw(t, "argument"), Value: rapid.String().Draw(t, "value"),
			Origin: origins.Draw(t, "origin")}
	})
	values = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"a":"<b>","n":1.50}`), json.RawMessage(`"x"`)})
	waits  = rapid.Custom(func(t *rapid.T) event.Wait {
		return event.Wait{ID: rapid.String().Draw(t, "id"), Kind: rapid.SampledFrom([]string{event.Approval, event.Question,
			event.ClientResult}).Draw(t, "kind"), Subagent: agents.Draw(t, "subagent"), CallID: rapid.String().Draw(t, "call"),
			ToolCallID: rapid.String().Draw(t, "tool call"), Tool: rapid.String().Draw(t, "tool"),
			Arguments: json.RawMessage(`{"a":[1,"<"]}`), Reason: rapid.String().Draw(t, "reason"),
			Origins:   some(t, argumentOrigins, "origins"),
			ExpiresAt: rapid.Float64().Draw(t, "expires"), Schema: values.Draw(t, "schema")}
	})
	waitAnswers = rapid.Custom(func(t *rapid.T) event.WaitAnswer {
		return event.WaitAnswer{ID: rapid.String().Draw(t, "id"), Decision: rapid.SampledFrom([]string{event.Approve,
			event.Deny, event.Edit}).Draw(t, "decision"), Arguments: values.Draw(t, "arguments"),
			Result: values.Draw(t, "result"), Reason: rapid.String().Draw(t, "reason")}
	})
)

// payloads has one generator for every kind of event but Unknown.
func payloads(t *rapid.T) event.Payload {
	text := func(label string) string { return rapid.String().Draw(t, label) }
	switch rapid.IntRange(0, 15).Draw(t, "kind") {
	case 0:
		chat := memory.MustChat(rapid.StringMatching(`[A-Za-z0-9._:@+=-]{1,128}`).Draw(t, "chat"))
		return &event.RunStarted{ChatID: chat, AgentVersion: text("version"), Subagents: some(t, agents, "subagents"),
			Message: text("message"),
			RetryOf: rapid.SampledFrom([]string{"", "FAILED"}).Draw(t, "retry of")}
	case 1:
		return &event.AssistantDelta{Text: text("text")}
	case 2:
		return &event.Delegation{Task: text("task"), Calls: rapid.SampledFrom([]string{event.Serial, event.Isolated}).Draw(t,
			"calls"), Origin: origins.Draw(t, "origin")}
	case 3:
		return &event.SubagentDelta{Text: text("text")}
	case 4:
		return &event.AssistantWithTools{Content: text("content"), ToolCalls: some(t, toolCalls, "calls"),
			Origin: origins.Draw(t, "origin")}
	case 5:
		return &event.ToolProgress{Tool: text("tool"), Status: text("status"), Detail: text("detail")}
	case 6:
		return &event.ToolResult{ToolCallID: text("id"), Name: text("name"), Content: text("content"),
			Origin: origins.Draw(t, "origin")}
	case 7:
		return &event.Completion{Response: text("response"), Status: outcomes.Draw(t, "status"),
			Citations: some(t, citations, "citations"),
			Answer:    answers.Draw(t, "answer"), Usage: usages.Draw(t, "usage"), Failure: text("failure"),
			Origin: origins.Draw(t, "origin")}
	case 8:
		return &event.Assistant{Content: text("content"), Citations: some(t, citations, "citations"),
			Partial: rapid.Bool().Draw(t, "partial"), Failure: text("failure"), Origin: origins.Draw(t, "origin")}
	case 9:
		return &event.MemoryReset{}
	case 10:
		return &event.Recalled{Messages: rapid.SliceOfN(recalled, 0, 3).Draw(t, "recalled"),
			Partial: rapid.Bool().Draw(t, "partial"), Failed: text("failed")}
	case 11:
		return &event.Error{Code: text("code"), Message: text("message"), Retryable: rapid.Bool().Draw(t, "retryable")}
	case 12:
		return &event.MasterTool{Tool: text("tool"), Status: text("status"), Detail: text("detail")}
	case 13:
		return &event.RunWaiting{Pending: some(t, waits, "waits"), State: values.Draw(t, "state"),
			Usage: usages.Draw(t, "usage")}
	case 14:
		return &event.RunResumed{Answers: some(t, waitAnswers, "answers"), Usage: usages.Draw(t, "usage")}
	}
	return &event.RunFinished{Outcome: outcomes.Draw(t, "outcome"), Usage: usages.Draw(t, "usage"),
		Calls: some(t, modelCalls, "calls")}
}

func TestEventsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		head := event.Head{
			RunID: rapid.StringN(1, 30, -1).Draw(t, "run"), Seq: rapid.Int64Min(1).Draw(t, "seq"),
			TS: rapid.Float64().Draw(t, "ts"),
		}
		if rapid.Bool().Draw(t, "of a subagent") {
			head.Subagent, head.CallID = agents.Draw(t, "subagent"), rapid.String().Draw(t, "call id")
		}
		e := event.New(head, payloads(t))
		line := e.Line()
		require.True(t, json.Valid(line))
		require.NotContains(t, string(line), "\n", "one line")
		back, err := event.Decode(line)
		require.NoError(t, err)
		require.Equal(t, e, back)
		require.Equal(t, string(line), string(back.Line()))
		require.Equal(t, e.Terminal(), e.Role() == "run_finished")
		require.Equal(t, e.Blocking(), e.Role() == "run_waiting")
		require.Equal(t, e.Ephemeral(), strings.HasSuffix(e.Role(), "_delta") || strings.HasSuffix(e.Role(), "tool"))
	})
}

func TestEventsOfNewerVersionsPassUnchanged(t *testing.T) {
	for _, line := range []string{
		`{"role":"subagent_thinking","run_id":"r","seq":3,"ts":1.50,"text":"<a>&\u003cb\u003e","n":1e3}`,
		`{ "seq" : 3, "run_id":"r", "new":{"a":[1, 2]}, "role":"x" }`,
		`{"role":"Assistant","run_id":"r","seq":9007199254740993}`,
	} {
		sent := []byte(line)
		e, err := event.Decode(sent)
		require.NoError(t, err)
		clear(sent) // a reader's buffer is used again
		require.Equal(t, line, string(e.Line()))
		require.Equal(t, "r", e.RunID)
		require.False(t, e.Terminal())
		require.False(t, e.Ephemeral())
		require.IsType(t, &event.Unknown{}, e.Payload)
	}
}

// What a newer version adds to an event of today, at whatever depth, passes
// through this one to the byte.
func TestFieldsOfNewerVersionsPass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := event.Event{Payload: payloads(t), Head: event.Head{RunID: "r", Seq: 1, TS: 1}}
		newer := e.Line()
		for i := range rapid.IntRange(1, 3).Draw(t, "extra") {
			name := fmt.Sprintf("x_%d", i)
			value := rapid.SampledFrom([]string{`null`, `"<a>\u003c"`, `{"a":[1, 2.50]}`, `[]`, `1e3`}).Draw(t, "value")
			newer = append(newer[:len(newer)-1], fmt.Sprintf(`,%q:%s}`, name, value)...)
		}
		newer = bytes.Replace(newer, []byte(`"usage":{`), []byte(`"usage":{"cached_tokens":7,`), 1)
		want := string(newer)
		got, err := event.Decode(newer)
		require.NoError(t, err)
		clear(newer) // a reader's buffer is used again
		require.Equal(t, want, string(got.Line()))
		again, err := event.Decode(got.Line())
		require.NoError(t, err)
		require.Equal(t, want, string(again.Line()), "also on the next leg")
	})
}

// An event is one line wherever it goes, however it came.
func TestAnEventInSeveralLinesIsPutIntoOne(t *testing.T) {
	e, err := event.Decode([]byte("{\"role\":\"later\",\r\n \"run_id\":\"r\",\n\"seq\":1,\"text\":\"a\\n<b>\"}\n"))
	require.NoError(t, err)
	require.Equal(t, `{"role":"later","run_id":"r","seq":1,"text":"a\n<b>"}`, string(e.Line()))
}

// A log of a version before this one has, in an event of today, a field that is none
// any more.
func TestEventsOfVersionsBeforeAreRead(t *testing.T) {
	line :=
		`{"role":"run_started","run_id":"r","seq":1,"ts":1,"chat_id":"1","agent_version":"master","subagents":null,"message":"hi","memory":"reset"}`
	e, err := event.Decode([]byte(line))
	require.NoError(t, err)
	require.Equal(t, "hi", e.Payload.(*event.RunStarted).Message)
	require.Equal(t, line, string(e.Line()))
}

func TestDecodeRefuses(t *testing.T) {
	for _, line := range []string{
		``, `null`, `[]`, `"x"`, `{}`, `{"role":"assistant"`,
		`{"run_id":"r","seq":1}`,
		`{"role":"assistant","seq":1}`,
		`{"role":"assistant","run_id":"r"}`,
		`{"role":"assistant","run_id":"r","seq":0}`,
		`{"role":"assistant","run_id":"r","seq":-1}`,
		`{"role":"assistant","run_id":"r","seq":1.5}`,
		`{"role":"assistant","run_id":"r","seq":"1"}`,
		`{"role":"assistant","run_id":5,"seq":1}`,
		`{"role":"assistant","run_id":"r","seq":1,"content":5}`,
		`{"role":"assistant","run_id":"r","seq":1} {}`,
		`{"role":"run_started","run_id":"r","seq":1,"chat_id":"a b"}`,
		`{"role":"run_started","run_id":"r","seq":1,"chat_id":1.5}`,
		`{"role":"subagent_assistant_with_tools","run_id":"r","seq":1,"tool_calls":{}}`,
	} {
		_, err := event.Decode([]byte(line))
		require.ErrorContains(t, err, "reading a", line)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"role":"assistant","run_id":"r","seq":1,"content":"a"}`))
	f.Add([]byte(`{"role":"later","run_id":"r","seq":1}`))
	f.Add([]byte(`{"role":"run_started","run_id":"r","seq":1,"chat_id":12,"subagents":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := event.Decode(line)
		if err != nil {
			return
		}
		again, err := event.Decode(e.Line())
		if s, ok := e.Payload.(*event.RunStarted); ok && s.ChatID.IsZero() {
			return // no webmemory sends one, and it is refused on the way back
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(e.Line(), again.Line()))
	})
}

func TestSeconds(t *testing.T) {
	require.Equal(t, 1763711157.25, event.Seconds(time.UnixMilli(1763711157250)))
	require.Equal(t, 1763711157.123, event.Seconds(time.Unix(1763711157, 123999999)))
}

// A shortened text is a beginning of the text, and takes no more than the limit in the JSON of an event.
func TestShortenKeepsTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "text")) + rapid.String().Draw(t, "more")
		limit := rapid.IntRange(0, 80).Draw(t, "limit")
		short := event.Shorten(text, limit)
		require.True(t, strings.HasPrefix(text, short))
		require.LessOrEqual(t, event.JSONSize(short), limit)
		if short != text {
			_, width := utf8.DecodeRuneInString(text[len(short):])
			require.Greater(t, event.JSONSize(text[:len(short)+width]), limit, "more would fit")
		}
		line := event.New(event.Head{}, &event.AssistantDelta{Text: text}).Line()
		empty := event.New(event.Head{}, &event.AssistantDelta{}).Line()
		require.Equal(t, len(line)-len(empty), event.JSONSize(text))
	})
}
