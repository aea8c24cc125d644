package chatwire_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

func errorsAs(err error, target any) bool { return errors.As(err, target) }
func errorsIs(err, target error) bool     { return errors.Is(err, target) }

var created = time.Unix(1700000000, 0)

// translator is what both answers are.
type translator interface {
	Event(dst, data []byte) ([]byte, error)
	Body(dst, body []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
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

func chatAnswer(a chatwire.AnswerOptions, now time.Time) translator {
	return fromMessages{chatwire.NewChatAnswer(a, now)}
}

// fromChat is an answer of chat completions for a client of messages.
type fromChat struct {
	chat *chatwire.MessagesAnswer
	to   *chatwire.SameAnswer
	out  []byte
	err  error
}

func messagesAnswer(a chatwire.AnswerOptions) translator {
	f := &fromChat{to: chatwire.NewSameAnswer(a)}
	f.chat = chatwire.NewMessagesAnswer(a, func(e *wire.Event) {
		if f.err == nil {
			f.out, f.err = f.to.Event(f.out, e)
		}
	})
	return f
}

func (f *fromChat) Event(dst, data []byte) ([]byte, error) {
	c, err := wire.ReadChunk(data)
	if err == nil {
		err = f.chat.Event(c)
	}
	return f.take(dst, err)
}

// take appends what was written since it was last called.
func (f *fromChat) take(dst []byte, err error) ([]byte, error) {
	dst, f.out = append(dst, f.out...), nil
	return dst, cmp.Or(err, f.err)
}

func (f *fromChat) Body(dst, body []byte) ([]byte, error) { return f.Event(dst, body) }

func (f *fromChat) End(dst []byte) ([]byte, error) {
	dst, err := f.take(dst, f.chat.End())
	if err != nil {
		return dst, err
	}
	return f.to.End(dst)
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

// datas are the payloads of a stream; each must be one line of JSON or [DONE].
func datas(t require.TestingT, stream string) []string {
	var out []string
	frames := wire.NewFrameReader(strings.NewReader(stream))
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		require.True(t, string(f.Data) == "[DONE]" || json.Valid(f.Data), "%s", f.Data)
		out = append(out, string(f.Data))
	}
}

func TestMessagesStreamToChat(t *testing.T) {
	events := []string{
		`{"type":"message_start","message":{"id":"msg_1","model":"vendor-model","usage":{"input_tokens":10,"cache_read_input_tokens":90,"output_tokens":1}}}`,
		`{"type":"ping"}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"SECRET"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"He"}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"y"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1.0}"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t2","name":"g","input":{}}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":7}}`,
		`{"type":"message_stop"}`,
	}
	stream := play(t, chatAnswer(chatwire.AnswerOptions{Model: "alias", Stream: true, IncludeUsage: true}, created),
		events)
	require.NotContains(t, stream, "SECRET")
	got := datas(t, stream)
	chunk := func(choice string) string {
		return `{"id":"msg_1","object":"chat.completion.chunk","created":1700000000,"model":"alias","choices":[` + choice +
			`]}`
	}
	want := []string{
		chunk(`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}`),
		chunk(`{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}`),
		chunk(`{"index":0,"delta":{"content":"He"},"finish_reason":null}`),
		chunk(`{"index":0,"delta":{"content":"y"},"finish_reason":null}`),
		chunk(
			`{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]},"finish_reason":null}`,
		),
		chunk(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]},"finish_reason":null}`),
		chunk(`{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1.0}"}}]},"finish_reason":null}`),
		chunk(
			`{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"g","arguments":""}}]},"finish_reason":null}`,
		),
		chunk(`{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]},"finish_reason":null}`),
		chunk(`{"index":0,"delta":{},"finish_reason":"tool_calls"}`),
		`{"id":"msg_1","object":"chat.completion.chunk","created":1700000000,"model":"alias","choices":[],
			"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":90}}}`,
	}
	require.Equal(t, "[DONE]", got[len(got)-1])
	require.Len(t, got, len(want)+1)
	for i, w := range want {
		require.JSONEq(t, w, got[i])
	}

	silent := play(t, chatAnswer(chatwire.AnswerOptions{Stream: true}, created), events)
	require.NotContains(t, silent, `"usage"`, "a usage chunk comes only when asked for")
	require.Contains(t, silent, "vendor-model")
}

func TestChatStreamToMessages(t *testing.T) {
	events := []string{
		`{"id":"c1","model":"vendor","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"content":"Hi"}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"f","arguments":""}}]}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"g","arguments":"{"}}]}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"}"}}]}}]}`,
		`{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`,
		`{"id":"c1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":6}}}`,
		`[DONE]`,
	}
	got := datas(t, play(t, messagesAnswer(chatwire.AnswerOptions{Model: "alias", Stream: true}), events))
	want := []string{
		`{"type":"message_start","message":{"id":"c1","type":"message","role":"assistant","model":"alias","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}`,
		`{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`,
		`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":":1}"}}`,
		`{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t2","name":"g","input":{}}}`,
		`{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
		`{"type":"content_block_stop","index":3}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":4,"output_tokens":4,"cache_read_input_tokens":6}}`,
		`{"type":"message_stop"}`,
	}
	require.Len(t, got, len(want))
	for i, w := range want {
		require.JSONEq(t, w, got[i])
	}
}

func TestMessagesAnswerFromVendorsThatNumberCallsBadly(t *testing.T) {
	for name, events := range map[string][]string{
		"every call has index 0": {
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}]},"finish_reason":"stop"}]}`,
		},
		"no index, whole calls": {
			`{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","function":{"name":"g","arguments":"{\"y\":2}"}}]},"finish_reason":"stop"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := play(t, messagesAnswer(chatwire.AnswerOptions{}), events)
			var r wire.Response
			require.NoError(t, wire.Unmarshal([]byte(out), &r))
			require.Len(t, r.Content, 2)
			require.JSONEq(t, `{"x":1}`, string(r.Content[0].Input))
			require.JSONEq(t, `{"y":2}`, string(r.Content[1].Input))
			require.EqualValues(t, wire.StopToolUse, r.StopReason, "calls count more than the vendor's finish_reason")
		})
	}
}

func TestReasonsAreTranslated(t *testing.T) {
	for stop, finish := range map[string]string{
		"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
		"refusal": "content_filter", "model_context_window_exceeded": "length",
	} {
		a := chatAnswer(chatwire.AnswerOptions{}, created)
		out, err := a.Body(nil, fmt.Appendf(nil, `{"id":"x","content":[{"type":"text","text":"t"}],"stop_reason":%q}`, stop))
		require.NoError(t, err)
		out, err = a.End(out)
		require.NoError(t, err)
		require.Contains(t, string(out), fmt.Sprintf(`"finish_reason":%q`, finish))
	}
	for finish, stop := range map[string]string{
		"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use",
		"content_filter": "refusal", "eos": "end_turn", "model_length": "max_tokens", "sensitive": "refusal",
		"model_context_window_exceeded": "model_context_window_exceeded",
	} {
		out := play(t, messagesAnswer(chatwire.AnswerOptions{}), []string{
			fmt.Sprintf(`{"choices":[{"delta":{"content":"t"},"finish_reason":%q}]}`, finish)})
		require.Contains(t, out, fmt.Sprintf(`"stop_reason":%q`, stop))
	}
}

// An unknown reason is a failure.
func TestUnknownReasonsAreFailures(t *testing.T) {
	var f wire.Failure
	for _, reason := range []string{"error", "network_error", "insufficient_system_resource", "abort", "something_new",
		"stopped"} {
		body := fmt.Appendf(nil, `{"id":"x","content":[],"stop_reason":%q}`, reason)
		_, err := chatAnswer(chatwire.AnswerOptions{}, created).Body(nil, body)
		if reason != "stopped" { // the end of a run of mneme's own
			require.ErrorAs(t, err, &f)
			require.Contains(t, f.Message, reason)
		}

		messages := messagesAnswer(chatwire.AnswerOptions{})
		_, err = messages.Event(nil,
			fmt.Appendf(nil, `{"choices":[{"delta":{"content":"t"},"finish_reason":%q}]}`, reason))
		require.NoError(t, err)
		_, err = messages.End(nil)
		require.ErrorAs(t, err, &f)
		require.Equal(t, 502, f.Status)
	}
}

func TestAnswersThatBreakOff(t *testing.T) {
	chat := chatAnswer(chatwire.AnswerOptions{Stream: true}, created)
	_, err := chat.Event(nil, []byte(`{"type":"message_start","message":{"id":"x"}}`))
	require.NoError(t, err)
	_, err = chat.End(nil)
	require.ErrorIs(t, err, chatwire.ErrCut)
	_, err = chat.Event(nil, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))
	require.Equal(t, wire.Failure{Status: 529, Type: "overloaded_error", Message: "Overloaded"}, err)

	messages := messagesAnswer(chatwire.AnswerOptions{Stream: true})
	_, err = messages.Event(nil, []byte(`{"choices":[{"delta":{"content":"t"}}]}`))
	require.NoError(t, err)
	_, err = messages.End(nil)
	require.ErrorIs(t, err, chatwire.ErrCut)
	_, err = messages.Event(nil, []byte(`{"error":{"message":"too many","code":"rate_limit_exceeded"}}`))
	var f wire.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, 429, f.Status)
	_, err = messages.Event(nil, []byte(`{broken`))
	require.ErrorIs(t, err, wire.ErrBadJSON)
}

// drawResponse makes an answer of the messages dialect with what both dialects
// can say: reasoning, then text, then calls.
func drawResponse(t *rapid.T) wire.Response {
	word := rapid.StringMatching(`[a-zя"\\<\n ]{1,20}`)
	r := wire.Response{
		ID: "msg_1", Type: "message", Role: "assistant", Model: "m", Content: wire.Content{},
		StopReason: wire.StopEndTurn,
		Usage: wire.Usage{InputTokens: rapid.Int64Range(0, 99).Draw(t, "in"),
			OutputTokens: rapid.Int64Range(0, 99).Draw(t, "out"), CacheRead: rapid.Int64Range(0, 9).Draw(t, "read")},
	}
	if rapid.Bool().Draw(t, "thinks") {
		r.Content = append(r.Content, wire.Block{Type: "thinking", Thinking: word.Draw(t, "thinking")})
	}
	if rapid.Bool().Draw(t, "speaks") {
		r.Content = append(r.Content, wire.Block{Type: "text", Text: word.Draw(t, "text")})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		input, err := json.Marshal(map[string]string{"q": word.Draw(t, "argument")})
		require.NoError(t, err)
		r.Content = append(r.Content, wire.Block{Type: "tool_use", ID: fmt.Sprintf("t%d", i), Name: "f", Input: input})
		r.StopReason = wire.StopToolUse
	}
	return r
}

// shred cuts the deltas of a response's events into pieces of any size.
func shred(t *rapid.T, r wire.Response) (events []string) {
	cut := func(s string) []string {
		runes := []rune(s)
		var parts []string
		for len(runes) > 0 {
			n := rapid.IntRange(1, len(runes)).Draw(t, "cut")
			parts = append(parts, string(runes[:n]))
			runes = runes[n:]
		}
		return parts
	}
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
		for _, part := range cut(d.Text + d.Thinking + d.PartialJSON) {
			piece := wire.Delta{Type: d.Type}
			switch d.Type {
			case wire.TextDelta:
				piece.Text = part
			case wire.ThinkingDelta:
				piece.Thinking = part
			case wire.InputDelta:
				piece.PartialJSON = part
			}
			add(wire.Event{Type: e.Type, Index: e.Index, Delta: piece})
		}
	}
	return events
}

// The chat answer is the same however the backend sent it and the client wants
// it: streamed in any pieces or whole.
func TestChatAnswerIsOneForAllWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResponse(t)
		body, err := wire.Marshal(r)
		require.NoError(t, err)
		whole := chatAnswer(chatwire.AnswerOptions{}, created)
		want, err := whole.Body(nil, body)
		require.NoError(t, err)
		want, err = whole.End(want)
		require.NoError(t, err)

		events := shred(t, r)
		require.JSONEq(t, string(want), play(t, chatAnswer(chatwire.AnswerOptions{}, created), events))
		asked := chatwire.AnswerOptions{Stream: true, IncludeUsage: true}
		require.JSONEq(t, string(want), assembleChat(t, play(t, chatAnswer(asked, created), events)))
		streamed := chatAnswer(asked, created)
		out, err := streamed.Body(nil, body)
		require.NoError(t, err)
		out, err = streamed.End(out)
		require.NoError(t, err)
		require.JSONEq(t, string(want), assembleChat(t, string(out)))
	})
}

// How a vendor writes its events makes no difference: most come in one form, which
// is passed in a quicker way.
func TestChatAnswerTakesAnyWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := shred(t, drawResponse(t))
		model := rapid.SampledFrom([]string{"", `m", "content":"-`}).Draw(t, "model")
		asked := chatwire.AnswerOptions{Model: model, Stream: true, IncludeUsage: true}
		spaced := make([]string, len(events))
		for i, e := range events {
			spaced[i] = strings.Replace(e, `{"type":`, `{ "type": `, 1)
		}
		require.Equal(t, play(t, chatAnswer(asked, created), spaced),
			play(t, chatAnswer(asked, created), events))
	})
}

// There and back: an answer that passes through the chat dialect is the same
// again, and its stream and its JSON agree.
func TestMessagesAnswerIsOneForAllWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawResponse(t)
		events := shred(t, r)
		want, err := wire.Marshal(r)
		require.NoError(t, err)

		completion := play(t, chatAnswer(chatwire.AnswerOptions{}, created), events)
		whole := messagesAnswer(chatwire.AnswerOptions{})
		out, err := whole.Body(nil, []byte(completion))
		require.NoError(t, err)
		out, err = whole.End(out)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(out))

		chunks := datas(t, play(t, chatAnswer(chatwire.AnswerOptions{Stream: true, IncludeUsage: true}, created), events))
		require.JSONEq(t, string(want), play(t, messagesAnswer(chatwire.AnswerOptions{}), chunks))

		var a wire.Assembler
		for _, data := range datas(t, play(t, messagesAnswer(chatwire.AnswerOptions{Stream: true}), chunks)) {
			var e wire.Event
			require.NoError(t, wire.Unmarshal([]byte(data), &e))
			require.NoError(t, a.Add(&e))
		}
		got, ok := a.JSON()
		require.True(t, ok)
		require.JSONEq(t, string(want), string(got))
	})
}

// assembleChat puts chunks together as a client does, without the package's own
// code.
func assembleChat(t require.TestingT, stream string) string {
	type call struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	type message struct {
		Role      string  `json:"role"`
		Content   *string `json:"content"`
		Reasoning string  `json:"reasoning_content,omitempty"`
		ToolCalls []call  `json:"tool_calls,omitempty"`
	}
	type choice struct {
		Index        int     `json:"index"`
		Message      message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	}
	var full struct {
		ID      string          `json:"id"`
		Object  string          `json:"object"`
		Created int64           `json:"created"`
		Model   string          `json:"model"`
		Choices []choice        `json:"choices"`
		Usage   json.RawMessage `json:"usage"`
	}
	full.Choices = make([]choice, 1)
	m := &full.Choices[0].Message
	text := ""
	for _, data := range datas(t, stream) {
		if data == "[DONE]" {
			break
		}
		var c struct {
			ID      string `json:"id"`
			Created int64  `json:"created"`
			Model   string `json:"model"`
			Choices []struct {
				Delta struct {
					Role      string `json:"role"`
					Content   string `json:"content"`
					Reasoning string `json:"reasoning_content"`
					ToolCalls []struct {
						Index int `json:"index"`
						call
					} `json:"tool_calls"`
				} `json:"delta"`
				FinishReason *string `json:"finish_reason"`
			} `json:"choices"`
			Usage json.RawMessage `json:"usage"`
		}
		require.NoError(t, json.Unmarshal([]byte(data), &c))
		full.ID, full.Object, full.Created, full.Model = c.ID, "chat.completion", c.Created, c.Model
		if c.Usage != nil {
			full.Usage = c.Usage
		}
		for _, ch := range c.Choices {
			m.Role += ch.Delta.Role
			text += ch.Delta.Content
			m.Reasoning += ch.Delta.Reasoning
			for _, tc := range ch.Delta.ToolCalls {
				if tc.Index == len(m.ToolCalls) {
					m.ToolCalls = append(m.ToolCalls, call{ID: tc.ID, Type: tc.Type})
					m.ToolCalls[tc.Index].Function.Name = tc.Function.Name
				}
				m.ToolCalls[tc.Index].Function.Arguments += tc.Function.Arguments
			}
			if ch.FinishReason != nil {
				full.Choices[0].FinishReason = *ch.FinishReason
			}
		}
	}
	if text != "" || len(m.ToolCalls) == 0 {
		m.Content = &text
	}
	b, err := json.Marshal(full)
	require.NoError(t, err)
	return string(b)
}

// fuzzAnswer: a translator never panics, and all that leaves is events of JSON,
// or one JSON body.
func fuzzAnswer(t *testing.T, make func(chatwire.AnswerOptions) translator, input []byte) {
	for _, asked := range []chatwire.AnswerOptions{{Stream: true, IncludeUsage: true}, {Model: "m"}} {
		a := make(asked)
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
		if asked.Stream {
			datas(t, string(out))
		} else if err == nil {
			require.True(t, json.Valid(out), "%s", out)
		}
		b := make(asked)
		if out, err = b.Body(nil, input); err == nil {
			if out, err = b.End(out); err == nil && !asked.Stream {
				require.True(t, json.Valid(out), "%s", out)
			}
		}
	}
}

func FuzzChatAnswer(f *testing.F) {
	f.Add([]byte(`{"type":"message_start","message":{"id":"a"}}` + "\n" +
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}` +
		"\n" +
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use"}}` + "\n" +
		`{"type":"content_block_stop","index":0}` + "\n" + `{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`))
	f.Add([]byte(`{"id":"x","content":[{"type":"text","text":"\ud800"}],"stop_reason":"end_turn"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		fuzzAnswer(t, func(a chatwire.AnswerOptions) translator { return chatAnswer(a, created) }, in)
	})
}

func FuzzMessagesAnswer(f *testing.F) {
	f.Add([]byte(`{"choices":[{"delta":{"content":"x","tool_calls":[{"index":5,"function":{"arguments":"{"}},{"id":"b","function":{"name":"g"}}]},"finish_reason":"length"}]}` + "\n" +
		`{"choices":[{"delta":{"content":"late","reasoning":"r"}}],"usage":{"prompt_tokens":1}}`))
	f.Add(
		[]byte(
			`{"choices":[{"message":{"content":"x","tool_calls":[{"function":{"name":"f","arguments":"{oops"}}]},"finish_reason":"stop"}]}`,
		),
	)
	f.Fuzz(func(t *testing.T, in []byte) {
		fuzzAnswer(t, func(a chatwire.AnswerOptions) translator { return messagesAnswer(a) }, in)
	})
}
