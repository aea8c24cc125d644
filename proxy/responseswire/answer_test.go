package responseswire_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/responsestest"
	"mneme/proxy/chatwire"
	"mneme/proxy/responseswire"
	"mneme/proxy/wire"
)

func clock() time.Time { return time.Unix(1700000000, 0) }

// translator is what both answers are.
type translator interface {
	Event(dst, data []byte) ([]byte, error)
	Body(dst, body []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
}

// play feeds the data of a stream's events and returns what came out.
func play(t require.TestingT, a translator, events []string) string {
	var out []byte
	var err error
	for _, e := range events {
		out, err = a.Event(out, []byte(e))
		require.NoError(t, err)
	}
	out, err = a.End(out)
	require.NoError(t, err)
	return string(out)
}

// once feeds an answer that came whole.
func once(t require.TestingT, a translator, body []byte) string {
	out, err := a.Body(nil, body)
	require.NoError(t, err)
	out, err = a.End(out)
	require.NoError(t, err)
	return string(out)
}

// datas are the payloads of a stream.
func datas(t require.TestingT, stream string) (out []string) {
	for frame := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		at := strings.Index(frame, "data: ")
		require.GreaterOrEqual(t, at, 0, frame)
		out = append(out, frame[at+len("data: "):])
	}
	return out
}

// askedAs is what a client asked that made this request.
func askedAs(t require.TestingT, request string) responseswire.AnswerOptions {
	translated, err := responseswire.MessagesRequest([]byte(request), chatwire.Options{})
	require.NoError(t, err)
	translated.Options.ID = "resp_x"
	return translated.Options
}

const plainRequest = `{"model":"m","input":"hi","stream":true,"tools":[{"type":"function","name":"f"},
	{"type":"namespace","name":"mcp__files","tools":[{"type":"function","name":"read","strict":true}]},
	{"type":"custom","name":"patch"}], "metadata": {"a":
	"b"}}`

func inJSON(a responseswire.AnswerOptions) responseswire.AnswerOptions {
	a.Stream = false
	return a
}

func answer(a responseswire.AnswerOptions) fromMessages {
	return fromMessages{responseswire.NewResponsesAnswer(a, clock)}
}

// fromMessages writes an answer of the messages dialect for a client.
type fromMessages struct {
	to interface {
		Event(dst []byte, e *wire.Event) ([]byte, error)
		End(dst []byte) ([]byte, error)
	}
}

func (f fromMessages) Event(dst, data []byte) ([]byte, error) {
	e, err := wire.ReadEvent(data)
	switch {
	case err != nil:
		return dst, err
	case e.Type == wire.ErrorEvent:
		return dst, wire.ReadFailure(0, data)
	}
	return f.to.Event(dst, &e)
}

func (f fromMessages) Body(dst, body []byte) ([]byte, error) {
	events, err := wire.ReadEvents(body)
	return f.all(dst, events, err)
}

func (f fromMessages) all(dst []byte, events []wire.Event, err error) ([]byte, error) {
	for i := range events {
		if err == nil {
			dst, err = f.to.Event(dst, &events[i])
		}
	}
	return dst, err
}

func (f fromMessages) End(dst []byte) ([]byte, error) { return f.to.End(dst) }

func (f fromMessages) Fail(dst []byte, e wire.Failure) []byte {
	return f.to.(*responseswire.ResponsesAnswer).Fail(dst, e)
}

// fromResponses is an answer of this dialect for a client of messages.
type fromResponses struct {
	*responseswire.MessagesAnswer
	to  *chatwire.SameAnswer
	out []byte
	err error
}

func messagesAnswer(a chatwire.AnswerOptions) *fromResponses {
	f := &fromResponses{MessagesAnswer: responseswire.NewMessagesAnswer(a), to: chatwire.NewSameAnswer(a)}
	f.SetSink(func(e *wire.Event) {
		if f.err == nil {
			f.out, f.err = f.to.Event(f.out, e)
		}
	})
	return f
}

func (f *fromResponses) Event(dst, data []byte) ([]byte, error) {
	return f.take(dst, f.MessagesAnswer.Event(data))
}

func (f *fromResponses) Body(dst, body []byte) ([]byte, error) {
	return f.take(dst, f.MessagesAnswer.Body(body))
}

// take appends what was written since it was last called.
func (f *fromResponses) take(dst []byte, err error) ([]byte, error) {
	dst, f.out = append(dst, f.out...), nil
	return dst, cmp.Or(err, f.err)
}

func (f *fromResponses) End(dst []byte) ([]byte, error) {
	dst, err := f.take(dst, f.MessagesAnswer.End())
	if err != nil {
		return dst, err
	}
	return f.to.End(dst)
}

func TestMessagesStreamToResponses(t *testing.T) {
	events := []string{
		`{"type":"message_start","message":{"id":"msg_1","model":"vendor-model","usage":{"input_tokens":10,"cache_read_input_tokens":90,"output_tokens":1}}}`,
		`{"type":"ping"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"SECRET"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"SECRET"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"He\"y"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"\n"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"1.0}"}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t2","name":"mcp__files__read","input":{}}}`,
		`{"type":"content_block_stop","index":4}`,
		`{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"t3","name":"patch","input":{}}}`,
		`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"input\":\"*** \\\"x"}}`,
		`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"\\\"\"}"}}`,
		`{"type":"content_block_stop","index":5}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":7,"output_tokens_details":{"thinking_tokens":3}}}`,
		`{"type":"message_stop"}`,
	}
	asked := askedAs(t, plainRequest)
	asked.Model = "alias"
	stream := play(t, answer(asked), events)
	require.NotContains(t, stream, "SECRET")
	got := responsestest.Assemble(t, stream)
	require.Equal(t, "alias", got["model"])
	require.EqualValues(t, "completed", got["status"])
	output, err := json.Marshal(got["output"])
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"id":"rs_x_0","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},
		{"id":"msg_x_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"He\"y\n","annotations":[],"logprobs":[]}]},
		{"id":"fc_x_2","type":"function_call","status":"completed","call_id":"t1","name":"f","arguments":"{\"a\":1.0}"},
		{"id":"fc_x_3","type":"function_call","status":"completed","call_id":"t2","name":"read","namespace":"mcp__files","arguments":"{}"},
		{"id":"ctc_x_4","type":"custom_tool_call","status":"completed","call_id":"t3","name":"patch","input":"*** \"x\""}]`,
		string(output))
	usage, err := json.Marshal(got["usage"])
	require.NoError(t, err)
	require.JSONEq(t, `{"input_tokens":100,"input_tokens_details":{"cached_tokens":90},"output_tokens":7,
		"output_tokens_details":{"reasoning_tokens":3},"total_tokens":107}`, string(usage))
	require.Equal(t, responsestest.Object{"a": "b"}, got["metadata"])
	require.Len(t, got["tools"], 3)
}

func TestHowAResponseEnds(t *testing.T) {
	for stop, want := range map[string]struct{ status, reason string }{
		"end_turn": {"completed", ""}, "tool_use": {"completed", ""}, "max_tokens": {"incomplete", "max_output_tokens"},
		"model_context_window_exceeded": {"incomplete", "max_output_tokens"}, "refusal": {"incomplete", "content_filter"},
	} {
		body := fmt.Appendf(nil, `{"id":"x","model":"m","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"stop_reason":%q}`,
			stop)
		got := responsestest.Assemble(t, once(t, answer(askedAs(t, plainRequest)), body))
		require.Equal(t, want.status, got["status"], stop)
		items := got["output"].([]any)
		require.Equal(t, "completed", items[0].(responsestest.Object)["status"])
		require.Equal(t, want.status, items[1].(responsestest.Object)["status"], "only the last item was cut off")
		if want.reason != "" {
			require.Equal(t, responsestest.Object{"reason": want.reason}, got["incomplete_details"])
		}
		// And back.
		back := once(t, messagesAnswer(chatwire.AnswerOptions{}), []byte(once(t, answer(inJSON(askedAs(t,
			plainRequest))), body)))
		var r wire.Response
		require.NoError(t, wire.Unmarshal([]byte(back), &r))
		switch stop {
		case "tool_use": // without a call
			stop = "end_turn"
		case "model_context_window_exceeded":
			stop = "max_tokens"
		}
		require.EqualValues(t, stop, r.StopReason)
	}
}

func TestAStreamThatFails(t *testing.T) {
	a := answer(askedAs(t, plainRequest))
	out, err := a.Event(nil, []byte(`{"type":"message_start","message":{"id":"x","model":"m"}}`))
	require.NoError(t, err)
	out, err = a.Event(out, []byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}`))
	require.NoError(t, err)
	_, err = a.End(nil)
	require.ErrorIs(t, err, chatwire.ErrCut)
	_, err = a.Event(nil, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
	var f wire.Failure
	require.ErrorAs(t, err, &f)
	out = a.Fail(out, f)
	require.Contains(t, string(out), "event: error\n")
	got := responsestest.Assemble(t, string(out))
	require.Equal(t, "failed", got["status"])
	require.Equal(t, responsestest.Object{"code": "overloaded", "message": "Overloaded"}, got["error"])
	require.Empty(t, a.Fail(nil, f), "it fails once")

	for name, c := range map[string]struct {
		event  string
		status int
		says   string
	}{
		"an error as OpenAI has it":      {`{"type":"error","code":"rate_limit_exceeded","message":"slow","param":null}`, 429, "slow"},
		"an error as Open Responses has": {`{"type":"error","error":{"type":"server_error","message":"oh"}}`, 500, "oh"},
		"a response that failed":         {`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"oh"}}}`, 500, "oh"},
		"one without a reason":           {`{"type":"response.failed"}`, 502, ""},
	} {
		_, err := messagesAnswer(chatwire.AnswerOptions{Stream: true}).Event(nil, []byte(c.event))
		require.ErrorAs(t, err, &f, name)
		require.Equal(t, c.status, f.Status, name)
		require.ErrorContains(t, err, c.says, name)
	}
	m := messagesAnswer(chatwire.AnswerOptions{})
	_, err = m.Body(nil, []byte(`{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}`))
	require.ErrorAs(t, err, &f)
	require.Equal(t, 429, f.Status)
	_, err = m.Body(nil, []byte(`{"status":"in_progress","output":[]}`))
	require.ErrorIs(t, err, chatwire.ErrCut)
	_, err = m.Event(nil, []byte(`{"type":"response.output_text.delta","delta":"x"}`))
	require.NoError(t, err)
	_, err = m.End(nil)
	require.ErrorIs(t, err, chatwire.ErrCut)
}

// A stream as OpenAI sends it.
func TestResponsesStreamToMessages(t *testing.T) {
	events := []string{
		`{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","model":"gpt","output":[],"error":null,"incomplete_details":null,"usage":null}}`,
		`{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1","status":"in_progress","model":"gpt","output":[]}}`,
		`{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"content":null,"encrypted_content":"gAAAA1"}}`,
		`{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}`,
		`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"h"}`,
		`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"m"}`,
		`{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"hm"}`,
		`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":1,"delta":"so"}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAA2","summary":[{"type":"summary_text","text":"hm"},{"type":"summary_text","text":"so"}]}}`,
		`{"type":"response.output_item.added","output_index":1,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress","action":{"type":"search"}}}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"id":"ws_1","type":"web_search_call","status":"completed"}}`,
		`{"type":"response.output_item.added","output_index":2,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}`,
		`{"type":"response.content_part.added","output_index":2,"content_index":0,"part":{"type":"output_text","text":""}}`,
		`{"type":"response.output_text.delta","output_index":2,"content_index":0,"delta":"Hi","logprobs":[],"obfuscation":"abc"}`,
		`{"type":"response.output_text.done","output_index":2,"content_index":0,"text":"Hi"}`,
		`{"type":"response.output_item.done","output_index":2,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hi","annotations":[]},{"type":"refusal","refusal":"!"}]}}`,
		`{"type":"response.output_item.added","output_index":3,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_1","name":"f","arguments":""}}`,
		`{"type":"response.output_item.added","output_index":4,"item":{"id":"fc_2","type":"function_call","status":"in_progress","call_id":"call_2","name":"g","arguments":""}}`,
		`{"type":"response.function_call_arguments.delta","output_index":3,"delta":"{\"a\":"}`,
		`{"type":"response.function_call_arguments.delta","output_index":4,"delta":"{}"}`,
		`{"type":"response.output_item.done","output_index":4,"item":{"id":"fc_2","type":"function_call","status":"completed","call_id":"call_2","name":"g","arguments":"{}"}}`,
		`{"type":"response.function_call_arguments.delta","output_index":3,"delta":"1.0}"}`,
		`{"type":"response.output_item.done","output_index":3,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"f","arguments":"{\"a\":1.0}"}}`,
		`{"type":"response.completed","response":{"id":"resp_1","status":"completed","model":"gpt","output":[],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":6},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":19}}}`,
	}
	got := datas(t, play(t, messagesAnswer(chatwire.AnswerOptions{Model: "alias", Stream: true}), events))
	want := []string{
		`{"type":"message_start","message":{"id":"resp_1","type":"message","role":"assistant","model":"alias","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\n\n"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"!"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_1","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1.0}"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"call_2","name":"g","input":{}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":4,"output_tokens":9,"cache_read_input_tokens":6,"output_tokens_details":{"thinking_tokens":5}}}`,
		`{"type":"message_stop"}`,
	}
	require.Len(t, got, len(want))
	for i, w := range want {
		require.JSONEq(t, w, got[i])
	}
}

func TestResponsesStreamsThatLackEvents(t *testing.T) {
	done := `{"type":"response.completed","response":{"id":"r","status":"completed","model":"m","output":[
		{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]},
		{"type":"function_call","call_id":"c","name":"f","arguments":""}]}}`
	want := `{"id":"r","type":"message","role":"assistant","model":"m","content":[{"type":"thinking","thinking":"hm","signature":""},
		{"type":"text","text":"Hi"},{"type":"tool_use","id":"c","name":"f","input":{}}],"stop_reason":"tool_use","stop_sequence":null,
		"usage":{"input_tokens":0,"output_tokens":0}}`
	created := `{"type":"response.created","response":{"id":"r","model":"m"}}`
	for name, events := range map[string][]string{
		"only the last": {done},
		"no end of items, raw reasoning and a summary of it": {
			created,
			`{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"h"}`,
			`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"short"}`,
			`{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"m"}`,
			done,
		},
		"a call announced, nothing more": {
			created, `{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"c","name":"f"}}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","content":[{"type":"output_text","text":"Hi"}]}}`,
			`{"type":"response.completed","response":{"id":"r","status":"completed","model":"m","output":[]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := play(t, messagesAnswer(chatwire.AnswerOptions{}), events)
			if name == "a call announced, nothing more" { // the call was there first
				var r wire.Response
				require.NoError(t, wire.Unmarshal([]byte(got), &r))
				require.Len(t, r.Content, 3)
				return
			}
			require.JSONEq(t, want, got)
		})
	}
}

// drawResponse makes an answer of the messages dialect with what both dialects can say.
func drawResponse(t *rapid.T) wire.Response {
	word := rapid.StringMatching(`[a-zя"\\<\n ]{1,20}`)
	r := wire.Response{
		ID: "resp_x", Type: "message", Role: "assistant", Model: "m", Content: wire.Content{}, StopReason: wire.StopEndTurn,
		Usage: wire.Usage{InputTokens: rapid.Int64Range(0, 99).Draw(t, "in"),
			OutputTokens: rapid.Int64Range(9, 99).Draw(t, "out"), CacheRead: rapid.Int64Range(0, 9).Draw(t, "read"),
			OutputDetails: wire.OutputDetails{ThinkingTokens: rapid.Int64Range(0, 9).Draw(t, "thought")}},
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "blocks") {
		switch rapid.SampledFrom([]string{"thinking", "text", "tool_use"}).Draw(t, "block") {
		case "thinking":
			r.Content = append(r.Content, wire.Block{Type: "thinking", Thinking: word.Draw(t, "thinking")})
		case "text":
			r.Content = append(r.Content, wire.Block{Type: "text", Text: word.Draw(t, "text")})
		default:
			input, err := json.Marshal(map[string]string{"input": word.Draw(t, "argument")})
			require.NoError(t, err)
			r.StopReason = wire.StopToolUse
			r.Content = append(r.Content, wire.Block{Type: "tool_use", ID: fmt.Sprintf("t%d", i), Input: input,
				Name: rapid.SampledFrom([]string{"f", "g"}).Draw(t, "tool")})
		}
	}
	return r
}

// cut cuts a text into pieces of any size.
func cut(t *rapid.T, s string) (parts []string) {
	for runes := []rune(s); len(runes) > 0; {
		n := rapid.IntRange(1, len(runes)).Draw(t, "cut")
		parts = append(parts, string(runes[:n]))
		runes = runes[n:]
	}
	return parts
}

// shred cuts the deltas of a response's events into pieces of any size.
func shred(t *rapid.T, r wire.Response) (events []string) {
	add := func(e wire.Event) {
		b, err := wire.Marshal(e)
		require.NoError(t, err)
		events = append(events, string(b))
	}
	for _, e := range r.Events() {
		d := e.Delta
		if e.Type != wire.BlockDelta {
			add(e)
			continue
		}
		for _, p := range cut(t, d.Text+d.Thinking+d.PartialJSON) {
			piece := wire.Delta{Type: d.Type}
			switch d.Type {
			case wire.TextDelta:
				piece.Text = p
			case wire.ThinkingDelta:
				piece.Thinking = p
			case wire.InputDelta:
				piece.PartialJSON = p
			}
			add(wire.Event{Type: e.Type, Index: e.Index, Delta: piece})
		}
	}
	return events
}

// shredResponses cuts the deltas of a stream of this dialect into pieces of any size.
func shredResponses(t *rapid.T, events []string) (out []string) {
	for _, data := range events {
		var e responsestest.Object
		if json.Unmarshal([]byte(data), &e) != nil || e["delta"] == nil {
			out = append(out, data)
			continue
		}
		for _, p := range cut(t, e["delta"].(string)) {
			e["delta"] = p
			b, err := json.Marshal(e)
			require.NoError(t, err)
			out = append(out, string(b))
		}
	}
	return out
}

// The answer is the same however the backend sent it and the client wants it: streamed in any pieces or whole.
func TestResponsesAnswerIsOneForAllWays(t *testing.T) {
	asked := askedAs(t, `{"model":"m","input":"hi","stream":true,"tools":[{"type":"custom","name":"g"},{"type":"function","name":"f"}]}`)
	rapid.Check(t, func(t *rapid.T) {
		r := drawResponse(t)
		body, err := wire.Marshal(r)
		require.NoError(t, err)
		want := once(t, answer(inJSON(asked)), body)
		var whole responsestest.Object
		require.NoError(t, json.Unmarshal([]byte(want), &whole))
		responsestest.Response(t, whole)

		events := shred(t, r)
		require.JSONEq(t, want, play(t, answer(inJSON(asked)), events))
		require.Equal(t, whole, responsestest.Assemble(t, play(t, answer(asked), events)))
		require.Equal(t, whole, responsestest.Assemble(t, once(t, answer(asked), body)))

		// Most events come in one form, which is passed in a quicker way.
		spaced := make([]string, len(events))
		for i, e := range events {
			spaced[i] = strings.Replace(e, `{"type":`, `{ "type": `, 1)
		}
		require.Equal(t, play(t, answer(asked), events), play(t, answer(asked), spaced))
	})
}

// There and back: an answer that passes through this dialect is the same again, and its stream and its JSON agree.
func TestMessagesAnswerIsOneForAllWays(t *testing.T) {
	asked := askedAs(t, `{"model":"m","input":"hi","stream":true}`)
	rapid.Check(t, func(t *rapid.T) {
		r := drawResponse(t)
		want, err := wire.Marshal(r)
		require.NoError(t, err)
		require.JSONEq(t, string(want), once(t, messagesAnswer(chatwire.AnswerOptions{}),
			[]byte(once(t, answer(inJSON(asked)), want))))
		events := shredResponses(t, datas(t, play(t, answer(asked), shred(t, r))))
		require.JSONEq(t, string(want), play(t, messagesAnswer(chatwire.AnswerOptions{}), events))

		var a wire.Assembler
		for _, data := range datas(t, play(t, messagesAnswer(chatwire.AnswerOptions{Stream: true}), events)) {
			var e wire.Event
			require.NoError(t, wire.Unmarshal([]byte(data), &e))
			require.NoError(t, a.Add(&e))
		}
		got, ok := a.JSON()
		require.True(t, ok)
		require.JSONEq(t, string(want), string(got))
	})
}

// fuzzAnswer: a translator never panics, and all that leaves is events of JSON, or one JSON body.
func fuzzAnswer(t *testing.T, make func(stream bool) translator, input []byte) {
	for _, stream := range []bool{true, false} {
		a := make(stream)
		var out []byte
		var err error
		for line := range strings.SplitSeq(string(input), "\n") {
			if out, err = a.Event(out, []byte(line)); err != nil {
				break
			}
		}
		if err == nil {
			out, err = a.End(out)
		}
		if client, ok := a.(fromMessages); ok && stream && err != nil {
			out = client.Fail(out, wire.Failure{Status: 502, Message: "x"})
			responsestest.Assemble(t, string(out))
		}
		if stream && len(out) > 0 {
			for _, data := range datas(t, string(out)) {
				require.True(t, data == "[DONE]" || json.Valid([]byte(data)), "%s", data)
			}
		} else if err == nil {
			require.True(t, json.Valid(out), "%s", out)
		}
		b := make(stream)
		if out, err = b.Body(nil, input); err == nil {
			if out, err = b.End(out); err == nil && !stream {
				require.True(t, json.Valid(out), "%s", out)
			}
		}
	}
}

func FuzzResponsesAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"message_start","message":{"id":"a"}}` + "\n" +
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"patch","input":{"a":1}}}` +
		"\n" + `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"mcp__files__read"}}` + "\n" +
		`{"type":"content_block_delta","index":9,"delta":{"partial_json":"{\"a"}}` + "\n" +
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}` + "\n" +
		`{"type":"content_block_stop","index":0}` + "\n" + `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`))
	f.Add([]byte(`{"id":"x","content":[{"type":"text","text":"\ud800"}],"stop_reason":"end_turn"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		asked := askedAs(t, plainRequest)
		fuzzAnswer(t, func(stream bool) translator {
			asked.Stream = stream
			return answer(asked)
		}, in)
	})
}

func FuzzMessagesAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","name":"f"}}` + "\n" +
		`{"type":"response.output_text.delta","output_index":1,"delta":"x"}` + "\n" +
		`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","content":[{"type":"output_text","text":"x"}]}}` +
		"\n" + `{"type":"response.function_call_arguments.delta","output_index":0,"delta":"x"}` + "\n" +
		`{"type":"response.incomplete","response":{"output":[{"type":"reasoning"},{"type":"function_call"}]}}`))
	f.Add([]byte(`{"status":"completed","output":[{"type":"function_call","arguments":{"a":1}},{"type":"message","content":7}]}`))
	f.Add([]byte(`{"type":"response.output_item.done","output_index":-1,"item":{"type":"message","content":"x"}}` + "\n" +
		`{"type":"response.completed"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		fuzzAnswer(t, func(stream bool) translator {
			return messagesAnswer(chatwire.AnswerOptions{Stream: stream})
		}, in)
	})
}
