package interactionswire_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/interactionswire"
	"mneme/proxy/wire"
)

func sealed(step string) string {
	return `{"type":"thinking","thinking":"","signature":"` + wire.Seal([]byte(step)) + `"}`
}

// The whole of a request, member by member.
func TestRequests(t *testing.T) {
	const head = `{"model":"m","max_tokens":9,"messages":[`
	const call = `{"type":"tool_use","id":"c1","name":"look","input":{"q": 1.0}}`
	const result = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"four"}]}`
	const hi = `{"role":"user","content":"hi"}`
	thought := `{"type":"thought","summary":[{"type":"text","text":"Hm."}],"signature":"s1","odd":1e2}`
	for name, c := range map[string]struct{ in, want string }{
		"a thought, its call and what the call has beside": {
			head + hi + `,{"role":"assistant","content":[` + sealed(thought) + `,` + call + `,` +
				sealed(`{"type":"function_call","signature":"s2"}`) + `]},` + result + `]}`,
			`[{"type":"user_input","content":[{"type":"text","text":"hi"}]},` + thought +
				`,{"type":"function_call","id":"c1","name":"look","arguments":{"q":1.0},"signature":"s2"},` +
				`{"type":"function_result","name":"look","call_id":"c1","result":"four"}]`,
		},
		"another vendor's call since the user spoke": {
			head + hi + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"EqQ"},{"type":"text",` +
				`"text":"Let me."},` + call + `]},` + result + `]}`,
			`[{"type":"user_input","content":[{"type":"text","text":"hi"}]},` +
				`{"type":"model_output","content":[{"type":"text","text":"Let me."}]},` +
				`{"type":"user_input","content":[{"type":"text","text":"The tool look was called with {\"q\":1.0} and gave:"},` +
				`{"type":"text","text":"four"}]}]`,
		},
		"another vendor's call before": {
			head + hi + `,{"role":"assistant","content":[` + call + `]},` + result + `,{"role":"assistant","content":"4"},` + hi + `]}`,
			`[{"type":"user_input","content":[{"type":"text","text":"hi"}]},` +
				`{"type":"function_call","id":"c1","name":"look","arguments":{"q":1.0}},` +
				`{"type":"function_result","name":"look","call_id":"c1","result":"four"},` +
				`{"type":"model_output","content":[{"type":"text","text":"4"}]},` +
				`{"type":"user_input","content":[{"type":"text","text":"hi"}]}]`,
		},
		"results with images, errors and documents": {
			head + hi + `,{"role":"assistant","content":[` + call + `,` + sealed(`{"type":"function_call"}`) + `]},{"role":"user",` +
				`"content":[{"type":"text","text":"and?"},{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[` +
				`{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},` +
				`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"aGk="}}]}]}]}`,
			`[{"type":"user_input","content":[{"type":"text","text":"hi"}]},` +
				`{"type":"function_call","id":"c1","name":"look","arguments":{"q":1.0}},` +
				`{"type":"function_result","name":"look","call_id":"c1","is_error":true,"result":[{"type":"text","text":"a"},` +
				`{"type":"image","data":"aGk=","mime_type":"image/png"}]},` +
				`{"type":"user_input","content":[{"type":"text","text":"and?"},` +
				`{"type":"document","data":"aGk=","mime_type":"application/pdf"}]}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := interactionswire.InteractionsRequest([]byte(c.in))
			require.NoError(t, err)
			require.Equal(t, `{"model":"m","input":`, string(got.Body[:strings.Index(string(got.Body), `[`)]))
			require.JSONEq(t, c.want, gjson.GetBytes(got.Body, "input").Raw, string(got.Body))
			if strings.Contains(c.want, thought) {
				require.Contains(t, string(got.Body), thought, "as it came, but for white space")
			}
			require.Contains(t, string(got.Body), `"store":false`)
		})
	}
}

func TestParameters(t *testing.T) {
	got, err := interactionswire.InteractionsRequest([]byte(`{"model":"m","max_tokens":9,"temperature":1,"top_p":0.5,"top_k":3,
		"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"stop_sequences":["x"],"stream":true,
		"thinking":{"type":"adaptive"},"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object"}}},
		"metadata":{"user_id":"u"},"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
		"tool_choice":{"type":"any"},"messages":[{"role":"user","content":"hi"},{"role":"system","content":"s"}]}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"model":"m","store":false,"stream":true,"system_instruction":"a\n\nb","input":[
		{"type":"user_input","content":[{"type":"text","text":"hi"}]},{"type":"user_input","content":[{"type":"text","text":"s"}]}],
		"generation_config":{"max_output_tokens":9,"stop_sequences":["x"],"thinking_level":"low","thinking_summaries":"auto",
		"tool_choice":"any"},"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"}}],
		"response_format":{"type":"text","mime_type":"application/json","schema":{"type":"object"}}}`, string(got.Body))
	require.Equal(t, []string{"metadata.user_id", "temperature", "top_k", "top_p"}, got.Ignored)
}

func TestRefusedRequests(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[]}`: "at least one message",
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"web_search_20250305","name":"w"}]}`: "run by its vendor",
		`{"messages":[{"role":"user","content":"a"}],"mcp_servers":[{}]}`:                                  "MCP servers",
		`{"messages":[{"role":"user","content":"a"}],"output_format":{"type":"text"}}`:                     "json_schema",
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"name":"f"}],"tool_choice":{"type":"x"}}`:   "none of auto",
		`{"messages":[{"role":"tool","content":"a"}]}`:                                                     "its role",
	} {
		_, err := interactionswire.InteractionsRequest([]byte(body))
		require.ErrorContains(t, err, want, body)
		var f wire.Failure
		require.ErrorAs(t, err, &f)
		require.Equal(t, 400, f.Status)
	}
}

// answer is the message that an answer becomes, with what its signatures seal in their places.
func answer(t *testing.T, feed func(*interactionswire.MessagesAnswer) error) (string, error) {
	t.Helper()
	var all wire.Assembler
	a := interactionswire.NewMessagesAnswer()
	a.SetSink(func(e *wire.Event) { require.NoError(t, all.Add(e)) })
	if err := feed(a); err != nil {
		return "", err
	}
	if err := a.End(); err != nil {
		return "", err
	}
	body, _ := all.JSON()
	text := string(body)
	for _, b := range gjson.Get(text, "content").Array() {
		if coded, ok := strings.CutPrefix(b.Get("signature").Str, "rsp1_"); ok {
			v, err := base64.RawStdEncoding.DecodeString(coded)
			require.NoError(t, err)
			text = strings.Replace(text, `"`+b.Get("signature").Str+`"`, string(v), 1)
		}
	}
	return text, nil
}

func stream(events ...string) func(*interactionswire.MessagesAnswer) error {
	return func(a *interactionswire.MessagesAnswer) error {
		for _, e := range events {
			if err := a.Event([]byte(e)); err != nil {
				return err
			}
		}
		return nil
	}
}

const (
	usage = `"usage":{"total_input_tokens":11,"total_cached_tokens":4,"total_output_tokens":90,"total_thought_tokens":245,` +
		`"total_tokens":346}`
	created = `{"interaction":{"id":"v1_x","status":"in_progress","model":"m"},"event_type":"interaction.created"}`
	done    = `{"interaction":{"id":"v1_x","status":"completed","model":"m",` + usage + `},"event_type":"interaction.completed"}`
)

// A stream and a JSON answer say the same, to what has to go back.
func TestStreamsEqualBodies(t *testing.T) {
	want := `{"id":"v1_x","type":"message","role":"assistant","model":"m","content":[
		{"type":"thinking","thinking":"Hm. So.","signature":{"type":"thought","signature":"s1","summary":[{"type":"text","text":"Hm. So."}]}},
		{"type":"text","text":"Let me look."},
		{"type":"tool_use","id":"c1","name":"f","input":{"q":"é"}},
		{"type":"thinking","thinking":"","signature":{"type":"function_call","signature":"s1"}},
		{"type":"tool_use","id":"c2","name":"g","input":{}},
		{"type":"thinking","thinking":"","signature":{"type":"function_call"}}],
		"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":335,"cache_read_input_tokens":4,
		"output_tokens_details":{"thinking_tokens":245}}}`
	got, err := answer(t, func(a *interactionswire.MessagesAnswer) error {
		return a.Body([]byte(`{"id":"v1_x","status":"requires_action","model":"m","steps":[
			{"type":"thought","signature":"s1","summary":[{"type":"text","text":"Hm. So."}]},
			{"type":"google_search_call","id":"x","arguments":{"queries":[]}},
			{"type":"model_output","content":[{"type":"text","text":"Let me look."}]},
			{"type":"function_call","id":"c1","name":"f","arguments":{"q":"é"},"signature":"s1"},
			{"type":"function_call","id":"c2","name":"g","arguments":{}}],` + usage + `}`))
	})
	require.NoError(t, err)
	require.JSONEq(t, want, got)
	got, err = answer(t, stream(created,
		`{"interaction_id":"v1_x","status":"in_progress","event_type":"interaction.status_update"}`,
		`{"index":0,"step":{"type":"thought","signature":"","summary":[{"type":"text","text":"Hm."}]},"event_type":"step.start"}`,
		`{"index":0,"delta":{"type":"thought_summary","content":{"type":"text","text":" So."}},"event_type":"step.delta"}`,
		`{"index":0,"delta":{"type":"thought_signature","signature":"s1"},"event_type":"step.delta"}`,
		`{"index":0,"event_type":"step.stop"}`,
		`{"index":1,"step":{"type":"model_output","content":[{"type":"text","text":"Let"}]},"event_type":"step.start"}`,
		`{"index":1,"delta":{"type":"text","text":" me look."},"event_type":"step.delta"}`,
		// Calls that grow side by side come one after the other.
		`{"index":2,"step":{"type":"function_call","id":"c1","name":"f","arguments":{},"signature":"s1"},"event_type":"step.start"}`,
		`{"index":3,"step":{"type":"function_call","id":"c2","name":"g","arguments":{}},"event_type":"step.start"}`,
		`{"index":1,"event_type":"step.stop"}`,
		`{"index":2,"delta":{"type":"arguments_delta","arguments":"{\"q\":"},"event_type":"step.delta"}`,
		`{"index":3,"event_type":"step.stop"}`,
		`{"index":2,"delta":{"type":"arguments_delta","arguments":"\"é\"}"},"event_type":"step.delta"}`,
		`{"index":2,"event_type":"step.stop"}`,
		done, `[DONE]`))
	require.NoError(t, err)
	require.JSONEq(t, want, got)
}

// Signatures are kept as they came, whatever else a thought has.
func TestAThoughtKeepsItsBytes(t *testing.T) {
	thought := `{"signature" : "s\u0031", "type":"thought","odd":[1e2]}`
	got, err := answer(t, func(a *interactionswire.MessagesAnswer) error {
		return a.Body([]byte(`{"id":"v1_x","status":"completed","steps":[` + thought + `,
			{"type":"model_output","content":[{"type":"text","text":"a"}]}]}`))
	})
	require.NoError(t, err)
	require.Contains(t, got, thought)
}

func TestHowAnswersEnd(t *testing.T) {
	text := `{"index":0,"step":{"type":"model_output","content":[{"type":"text","text":"a"}]},"event_type":"step.start"}`
	for name, c := range map[string]struct {
		last, stop string
		status     int
		cut        bool
	}{
		"at its limit": {last: strings.Replace(done, "completed", "incomplete", 1), stop: "max_tokens"},
		"spent":        {last: strings.Replace(done, "completed", "budget_exceeded", 1), stop: "max_tokens"},
		"well":         {last: done, stop: "end_turn"},
		"not at all":   {last: `{"index":0,"event_type":"step.stop"}`, cut: true},
		"unfinished":   {last: strings.Replace(done, "completed", "in_progress", 1), cut: true},
		"failed":       {last: strings.Replace(done, `"completed","model"`, `"failed","model"`, 1), status: 502},
		"overdue":      {last: `{"error":{"message":"Deadline expired.","code":"gateway_timeout"},"event_type":"error"}`, status: 504},
		"blocked":      {last: `{"error":{"message":"Blocked.","code":"safety"},"event_type":"error"}`, status: 400},
		"an output that failed": {last: `{"index":1,"step":{"type":"model_output","error":{"code":429,"message":"Slow down."}},` +
			`"event_type":"step.start"}`, status: 429},
		"garbage": {last: `{"index":`, status: -1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := answer(t, stream(created, text, c.last))
			var f wire.Failure
			switch {
			case c.cut:
				require.ErrorIs(t, err, chatwire.ErrCut)
			case c.status < 0:
				require.ErrorIs(t, err, wire.ErrBadJSON)
			case c.status > 0:
				require.ErrorAs(t, err, &f)
				require.Equal(t, c.status, f.Status, f.Message)
			default:
				require.NoError(t, err)
				require.Equal(t, c.stop, gjson.Get(got, "stop_reason").Str)
			}
		})
	}
}
