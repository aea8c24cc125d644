package thinking

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// event lets an event pass as the gateway does: what cannot be read passes unchanged.
func event(o *Observer, data []byte) []byte {
	if o.dialect == wire.Chat {
		c, err := wire.ReadChunk(data)
		if err != nil {
			return data
		}
		return o.Chunk(c)
	}
	e, err := wire.ReadEvent(data)
	if err == nil {
		o.Event(&e)
	}
	return e.Data
}

// hear is event for an answer that came as one JSON body.
func hear(o *Observer, body []byte) []byte {
	if o.dialect == wire.Chat {
		return event(o, body)
	}
	read, err := wire.ReadMessage(body)
	if err != nil {
		return body
	}
	return o.Message(read)
}

// observe lets a stream's events pass and gives what passed.
func observe(o *Observer, events ...string) []string {
	var out []string
	for _, e := range events {
		out = append(out, string(event(o, []byte(e))))
	}
	return out
}

const (
	messageStart = `{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{}}}`
	messageStop  = `{"type":"message_stop"}`
	stopDelta    = `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}`
)

func opened(index int, b string) string {
	return fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, b)
}

func added(index int, kind, name, value string) string {
	return fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%s}}`, index, kind, name,
		quote(value))
}

func closed(index int) string { return fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index) }

func TestObserveMessagesStream(t *testing.T) {
	o := NewObserver(wire.Messages, false)
	events := []string{
		messageStart,
		opened(0, `{"type":"thinking","thinking":"","signature":"","odd":[1]}`),
		`{"type": "ping"}`,
		added(0, "thinking_delta", "thinking", "a \"b"),
		// Half of a surrogate pair, and its other half.
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\ud83d"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"\ude00"}}`,
		added(0, "signature_delta", "signature", "wrong"),
		added(0, "signature_delta", "signature", "sig/1=="),
		closed(0),
		opened(1, `{"type":"redacted_thinking","data":"opaque"}`), closed(1),
		opened(2, `{"type":"thinking","thinking":""}`), added(2, "signature_delta", "signature", "sig2"), closed(2),
		opened(3, `{"type":"text","text":"","citations":[{"a":1}]}`),
		added(3, "text_delta", "text", "hé"), added(3, "text_delta", "text", "llo"),
		`{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"b":2}}}`, closed(3),
		opened(4, `{"type":"server_thing","payload":{"type":"thinking"}}`), closed(4),
		opened(5, `{"type":"tool_use","id":"toolu_0123456789abcdefgh","name":"f","input":{}}`),
		added(5, "input_json_delta", "partial_json", `{"n": 1.`),
		added(5, "input_json_delta", "partial_json", `50, "s":"\"x"}`), closed(5),
		opened(6, `{"type":"tool_use","id":"toolu_0123456789abcdefgi","name":"g","input":{}}`), closed(6),
		stopDelta,
	}
	require.Equal(t, events, observe(o, events...), "nothing changes on the way")
	require.False(t, o.Complete())
	event(o, []byte(messageStop))
	require.True(t, o.Complete(), "before the client gets the last event")
	a, ok := o.Answer()
	require.True(t, ok)
	require.False(t, a.Cut)
	require.Equal(t, `[{"type":"thinking","thinking":"a \"b\ud83d\ude00","signature":"sig/1==","odd":[1]},`+
		`{"type":"redacted_thinking","data":"opaque"},{"type":"thinking","thinking":"","signature":"sig2"},`+
		`{"type":"text","text":"héllo","citations":[{"a":1},{"b":2}]},{"type":"server_thing","payload":{"type":"thinking"}},`+
		`{"type":"tool_use","id":"toolu_0123456789abcdefgh","name":"f","input":{"n": 1.50, "s":"\"x"}},`+
		`{"type":"tool_use","id":"toolu_0123456789abcdefgi","name":"g","input":{}}]`, string(a.Content))
	require.Equal(t, []ledger.ToolID{
		{Vendor: "toolu_0123456789abcdefgh", Client: "toolu_0123456789abcdefgh"},
		{Vendor: "toolu_0123456789abcdefgi", Client: "toolu_0123456789abcdefgi"},
	}, a.Tools)
}

func TestObserveCutMessages(t *testing.T) {
	whole := []string{messageStart, opened(0, `{"type":"thinking","thinking":""}`),
		added(0, "thinking_delta", "thinking", "t"),
		added(0, "signature_delta", "signature", "s"), closed(0), opened(1, `{"type":"text","text":""}`),
		added(1, "text_delta", "text", "half")}

	o := NewObserver(wire.Messages, false)
	observe(o, whole[:4]...)
	_, ok := o.Answer()
	require.False(t, ok, "a block that was only begun is nothing")

	observe(o, whole[4:]...)
	a, ok := o.Answer()
	require.True(t, ok)
	require.True(t, a.Cut)
	require.Equal(t, `[{"type":"thinking","thinking":"t","signature":"s"}]`, string(a.Content))

	observe(o, `{"type":"error","error":{"type":"overloaded_error"}}`)
	a, _ = o.Answer()
	require.True(t, a.Cut)
}

// A delta that is unknown leaves the block, and what follows it, out.
func TestObserveUnknownDelta(t *testing.T) {
	o := NewObserver(wire.Messages, false)
	observe(o, opened(0, signed), closed(0), opened(1, said1), added(1, "novel_delta", "text", "b"), closed(1),
		opened(2, said1), closed(2), messageStop)
	a, ok := o.Answer()
	require.True(t, ok)
	require.True(t, a.Cut)
	require.Equal(t, "["+signed+"]", string(a.Content))
}

func chunk(delta, finish string) string {
	return `{"id":"c","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

func TestObserveChatStream(t *testing.T) {
	o := NewObserver(wire.Chat, false)
	long := "call_0123456789abcdefghijklmn"
	events := []string{
		chunk(`{"role":"assistant","content":null,"tool_calls":null,"reasoning_details":[]}`, `null`),
		chunk(`{"role":"assistant","reasoning_content":"let \ud83d"}`, `null`),
		chunk(`{"reasoning_content":"\ude00 me"}`, `null`),
		chunk(`{"reasoning":"r1","reasoning_details":[{"type":"reasoning.text","text":"r","index":0,"format":"f"}]}`, `null`),
		chunk(
			`{"reasoning":"r2","reasoning_details":[{"type":"reasoning.text","text":"2","index":0},{"type":"reasoning.encrypted","data":"e","index":0}]}`, `null`,
		),
		chunk(`{"content":"he"}`, `null`), chunk(`{"content":"llo","refusal":null,"odd":{"a":1}}`, `null`),
		chunk(`{"reasoning_details":[{"type":"reasoning.text","text":"","signature":"late","index":0}]}`, `null`),
		chunk(`{"thinking_blocks":[{"type":"thinking","thinking":"x","signature":null}]}`, `null`),
		chunk(`{"thinking_blocks":[{"type":"thinking","thinking":"y","signature":"s1"}]}`, `null`),
		chunk(
			`{"thinking_blocks":[{"type":"thinking","thinking":"z","signature":"s2"},{"type":"redacted_thinking","data":"d"},{"type":"redacted_thinking","data":"d"}]}`, `null`,
		),
		chunk(`{"tool_calls":[{"index":0,"id":"`+long+`","type":"function","function":{"name":"f","arguments":""}}]}`,
			`null`),
		chunk(`{"tool_calls":[{"index":1,"id":"`+long+
			`2","type":"function","function":{"name":"g","arguments":"{}"},"extra_content":{"google":{"thought_signature":"ts"}}}]}`, `null`),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`, `null`),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`, `null`),
		chunk(`{}`, `"tool_calls"`),
		`{"id":"c","choices":[],"usage":{}}`,
	}
	require.Equal(t, events, observe(o, events...))
	require.False(t, o.Complete())
	event(o, []byte("[DONE]"))
	require.True(t, o.Complete())
	a, ok := o.Answer()
	require.True(t, ok)
	require.False(t, a.Cut)
	require.Equal(t, `{"role":"assistant","content":"hello","reasoning_content":"let \ud83d\ude00 me","reasoning":"r1r2",`+
		`"reasoning_details":[{"type":"reasoning.text","text":"r2","index":0,"format":"f","signature":"late"},{"type":"reasoning.encrypted","data":"e","index":0}],`+
		`"refusal":null,"odd":{"a":1},`+
		`"thinking_blocks":[{"type":"thinking","thinking":"xy","signature":"s1"},{"type":"thinking","thinking":"z","signature":"s2"},{"type":"redacted_thinking","data":"d"},{"type":"redacted_thinking","data":"d"}],`+
		`"tool_calls":[{"id":"`+long+`","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},`+
		`{"id":"`+long+
		`2","type":"function","function":{"name":"g","arguments":"{}"},"extra_content":{"google":{"thought_signature":"ts"}}}]}`, string(a.Content))
	require.Equal(t, []ledger.ToolID{{Vendor: long, Client: long}, {Vendor: long + "2", Client: long + "2"}}, a.Tools)
}

func TestObserveEndOfChat(t *testing.T) {
	o := NewObserver(wire.Chat, false)
	observe(o, chunk(`{"content":"a"}`, `null`), "[DONE]")
	a, ok := o.Answer()
	require.True(t, ok)
	require.True(t, a.Cut, "it never said why it stopped")

	o = NewObserver(wire.Chat, false)
	observe(o, chunk(`{"content":"a"}`, `"stop"`))
	require.False(t, o.Complete())
	o.End()
	require.True(t, o.Complete(), "a vendor without [DONE]")

	o = NewObserver(wire.Chat, false)
	observe(o, `{"error":{"message":"no"}}`)
	_, ok = o.Answer()
	require.False(t, ok)
}

const minted = `^call_[A-Za-z0-9]{24}$`

// Ids that the vendor can give again never reach the client, wherever they stand.
func TestObserverRenamesRecurringIDs(t *testing.T) {
	for name, c := range map[string]struct {
		vendor    string
		recurring bool
		renamed   bool
	}{
		"colon":   {"functions.lookup:0 and long", false, true},
		"short":   {"call_1", false, true},
		"empty":   {"", false, true},
		"random":  {"toolu_01A09q90qw90lq917835lq9", false, false},
		"profile": {"toolu_01A09q90qw90lq917835lq9", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(in, out, path string, tools []ledger.ToolID) {
				t.Helper()
				shown := gjson.Get(out, path).Str
				if c.renamed {
					require.Regexp(t, minted, shown)
				} else {
					require.Equal(t, in, out)
				}
				require.Equal(t, in, strings.Replace(out, quote(shown), quote(c.vendor), 1), "byte-exact elsewhere")
				require.Equal(t, []ledger.ToolID{{Vendor: c.vendor, Client: shown}}, tools)
			}
			result := func(o *Observer) []ledger.ToolID {
				o.End()
				a, ok := o.Answer()
				require.True(t, ok)
				require.Contains(t, string(a.Content), quote(c.vendor), "the vendor's own is kept")
				return a.Tools
			}

			o := NewObserver(wire.Messages, c.recurring)
			in := opened(0, `{"x":"`+`é","type":"tool_use","id": `+quote(c.vendor)+
				` ,"name":"f","input":{"id":"call_1","type":"tool_use"}}`)
			out := string(event(o, []byte(in)))
			observe(o, closed(0), messageStop)
			check(in, out, "content_block.id", result(o))

			o = NewObserver(wire.Messages, c.recurring)
			in = `{"id":"msg","content":[{"type":"text","text":"x"}, {"type":"tool_use","id":` + quote(c.vendor) +
				`,"input":{"id":"call_1"}}],"usage":{}}`
			check(in, string(hear(o, []byte(in))), "content.1.id", result(o))

			o = NewObserver(wire.Chat, c.recurring)
			in = chunk(`{"tool_calls":[{"index":0, "id":`+quote(c.vendor)+
				`,"function":{"name":"f","arguments":"{\"id\":\"call_1\"}"}}]}`, `"tool_calls"`)
			out = string(event(o, []byte(in)))
			check(in, out, "choices.0.delta.tool_calls.0.id", result(o))

			o = NewObserver(wire.Chat, c.recurring)
			in = `{"id":"x","choices":[{"message":{"tool_calls":[{"id":` + quote(c.vendor) +
				`,"function":{}}]},"finish_reason":"tool_calls"}]}`
			check(in, string(hear(o, []byte(in))), "choices.0.message.tool_calls.0.id", result(o))
		})
	}
}

func TestObserverParallelCallsInPieces(t *testing.T) {
	o := NewObserver(wire.Chat, false)
	out := observe(o,
		chunk(`{"tool_calls":[{"index":0,"id":"f:0","function":{"name":"f","arguments":""}}]}`, `null`),
		chunk(`{"tool_calls":[{"index":1,"id":"f:0","function":{"name":"f","arguments":"{}"}}]}`, `null`),
		chunk(`{"tool_calls":[{"index":0,"id":"f:0","function":{"arguments":"{}"}}]}`, `null`), // names it again
		chunk(`{"tool_calls":[{"index":1,"id":"","function":{"arguments":""}}]}`, `null`),
		chunk(`{"tool_calls":[{"index":1,"function":{"arguments":""}}]}`, `"tool_calls"`), "[DONE]")
	id := func(i int) string { return gjson.Get(out[i], "choices.0.delta.tool_calls.0.id").Str }
	require.Regexp(t, minted, id(0))
	require.Regexp(t, minted, id(1))
	require.NotEqual(t, id(0), id(1), "two calls, though the vendor gave them one id")
	require.Equal(t, id(0), id(2))
	require.Empty(t, id(3))
	a, _ := o.Answer()
	require.Equal(t, []ledger.ToolID{{Vendor: "f:0", Client: id(0)}, {Vendor: "f:0", Client: id(1)}}, a.Tools)
}

func TestObserverWithoutIndex(t *testing.T) {
	o := NewObserver(wire.Chat, false)
	out := observe(o,
		chunk(
			`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{"}}]}`, `null`,
		),
		chunk(`{"tool_calls":[{"function":{"arguments":"}"}}]}`, `"tool_calls"`), "[DONE]")
	a, ok := o.Answer()
	require.True(t, ok)
	require.Equal(t,
		`[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]`,
		gjson.GetBytes(a.Content, "tool_calls").Raw)
	require.Equal(t, gjson.Get(out[0], "choices.0.delta.tool_calls.1.id").Str, a.Tools[1].Client)
}

func TestObserverOfSeveralChoices(t *testing.T) {
	o := NewObserver(wire.Chat, false)
	out := observe(o,
		`{"choices":[{"index":1,"delta":{"content":"no","tool_calls":[{"index":0,"id":"x"}]},"finish_reason":"stop"},{"index":0,"delta":{"content":"yes"},"finish_reason":null}]}`)
	require.Regexp(t, minted, gjson.Get(out[0], "choices.0.delta.tool_calls.0.id").Str)
	observe(o, "[DONE]")
	require.False(t, o.Complete(), "the first choice goes on")
	a, _ := o.Answer()
	require.Equal(t, `{"content":"yes"}`, string(a.Content))
	require.Empty(t, a.Tools)
}

func TestObserverPassesWhatItCannotRead(t *testing.T) {
	for _, d := range []wire.Dialect{wire.Messages, wire.Chat} {
		for _, data := range []string{"", "{", "nonsense", "[DONE]", `[]`, `7`, `{"type":"content_block_start","index":0}`,
			`{"choices":7}`, `{"choices":[7,{"delta":{"tool_calls":[5,{"id":7}]}}]}`, `{"content":"x"}`,
			`{"choices":[{"message":"x"}]}`,
			`{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"x"}}`, `{"content":[],"content":[]}`} {
			in := []byte(data)
			o := NewObserver(d, true)
			require.Equal(t, data, string(event(o, in)))
			require.Equal(t, data, string(hear(NewObserver(d, true), in)))
			if len(in) > 0 {
				require.Same(t, &in[0], &event(o, in)[0])
			}
			a, _ := o.Answer()
			require.True(t, a.Content == nil || a.Content.IsValid(), "%s", a.Content)
		}
	}
}

// The caller reads the next event into the same memory.
func TestObserverKeepsCopies(t *testing.T) {
	buffer := make([]byte, 0, 1<<10)
	event := func(o *Observer, data string) {
		buffer = append(buffer[:0], data...)
		event(o, buffer)
		for i := range buffer {
			buffer[i] = '#'
		}
	}
	o := NewObserver(wire.Messages, false)
	for _, e := range []string{opened(0, signed), added(0, "thinking_delta", "thinking", "!"), closed(0), messageStop} {
		event(o, e)
	}
	a, _ := o.Answer()
	require.Equal(t, `[{"type":"thinking","thinking":"hm!","signature":"sig1"}]`, string(a.Content))

	o = NewObserver(wire.Chat, false)
	for _, e := range []string{chunk(`{"odd":[1],"content":"a"}`, `null`),
		chunk(`{"tool_calls":[{"index":0,"id":"0123456789abcdefx"}]}`, `"stop"`)} {
		event(o, e)
	}
	a, _ = o.Answer()
	require.Equal(t, `{"odd":[1],"content":"a","tool_calls":[{"id":"0123456789abcdefx"}]}`, string(a.Content))

	body := []byte(`{"content":[` + signed + `]}`)
	o = NewObserver(wire.Messages, false)
	hear(o, body)
	copy(body, bytes.Repeat([]byte{'#'}, len(body)))
	a, _ = o.Answer()
	require.Equal(t, `[`+signed+`]`, string(a.Content))
}

func TestObserverIsBounded(t *testing.T) {
	testtier.Slow(t)
	for _, d := range []wire.Dialect{wire.Messages, wire.Chat} {
		o := NewObserver(d, true)
		piece := strings.Repeat("x", 1<<20)
		observe(o, opened(0, said1))
		for range 9 {
			observe(o, added(0, "text_delta", "text", piece), chunk(`{"content":"`+piece+`"}`, `null`))
		}
		renamed := observe(o, opened(1, calls1), chunk(`{"tool_calls":[{"index":0,"id":"toolu_01"}]}`, `"stop"`))
		require.NotContains(t, renamed[map[wire.Dialect]int{wire.Messages: 0, wire.Chat: 1}[d]], "toolu_01",
			"ids are still renamed")
		observe(o, messageStop, "[DONE]")
		_, ok := o.Answer()
		require.False(t, ok)

		o = NewObserver(d, false)
		long := `"` + strings.Repeat(piece, 9) + `"`
		hear(o, []byte(`{"choices":[{"message":{"content":`+long+`}}],"content":[{"type":"text","text":`+long+`}]}`))
		_, ok = o.Answer()
		require.False(t, ok)
	}
}

// drawText is text with what makes streams hard: quotes, escapes, wide characters.
func drawText(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune("ab \"\\\n{é😀")), 0, 12, -1).Draw(t, label)
}

// cut is s in pieces, which need not end between characters of its JSON form, as
// long as no escape is torn.
func cut(t *rapid.T, s string) []string {
	var pieces []string
	raw := []rune(s)
	for len(raw) > 0 {
		n := rapid.IntRange(1, len(raw)).Draw(t, "piece")
		pieces = append(pieces, string(raw[:n]))
		raw = raw[n:]
	}
	return pieces
}

// drawBlocks is any answer of the messages dialect, as JSON and as events.
func drawBlocks(t *rapid.T) (content jsontext.Value, events []string) {
	var list []string
	events = []string{messageStart}
	for i := range rapid.IntRange(1, 5).Draw(t, "blocks") {
		grow := func(kind, name, value string) {
			for _, p := range cut(t, value) {
				events = append(events, added(i, kind, name, p))
				if rapid.Bool().Draw(t, "ping") {
					events = append(events, `{"type":"ping"}`)
				}
			}
		}
		id := fmt.Sprintf("toolu_%020d", i)
		text := drawText(t, "text")
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			list = append(list, `{"type":"thinking","thinking":`+quote(text)+`,"signature":"sig`+id+`"}`)
			events = append(events, opened(i, `{"type":"thinking","thinking":"","signature":""}`))
			grow("thinking_delta", "thinking", text)
			events = append(events, added(i, "signature_delta", "signature", "sig"+id))
		case 1:
			list = append(list, `{"type":"redacted_thinking","data":`+quote(text)+`}`)
			events = append(events, opened(i, list[i]))
		case 2:
			list = append(list, `{"type":"text","text":`+quote(text)+`}`)
			events = append(events, opened(i, `{"type":"text","text":""}`))
			grow("text_delta", "text", text)
		case 3:
			input := `{"q": ` + quote(text) + `, "n":1.0}`
			list = append(list, `{"type":"tool_use","id":"`+id+`","name":"f","input":`+input+`}`)
			events = append(events, opened(i, `{"type":"tool_use","id":"`+id+`","name":"f","input":{}}`))
			grow("input_json_delta", "partial_json", input)
		case 4:
			list = append(list, `{"type":"novel","payload":[`+quote(text)+`]}`)
			events = append(events, opened(i, list[i]))
		}
		events = append(events, closed(i))
	}
	return jsontext.Value("[" + strings.Join(list, ",") + "]"), append(events, stopDelta, messageStop)
}

// drawChat is any answer of the chat dialect, as JSON and as events.
func drawChat(t *rapid.T) (message jsontext.Value, events []string) {
	members := []string{`"role":"assistant"`}
	events = []string{chunk(`{"role":"assistant"}`, `null`)}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"reasoning_content", "reasoning", "content"}),
		0, 3, rapid.ID).Draw(t, "fields") {
		text := drawText(t, name) + "."
		members = append(members, quote(name)+":"+quote(text))
		for _, p := range cut(t, text) {
			events = append(events, chunk(`{`+quote(name)+`:`+quote(p)+`}`, `null`))
		}
	}
	var details, calls []string
	for i := range rapid.IntRange(0, 3).Draw(t, "details") {
		text := drawText(t, "detail") + "."
		details = append(details, fmt.Sprintf(`{"type":"reasoning.text","index":%d,"text":%s,"signature":"s"}`, i,
			quote(text)))
		for _, p := range cut(t, text) {
			events = append(events, chunk(fmt.Sprintf(`{"reasoning_details":[{"type":"reasoning.text","index":%d,"text":%s}]}`,
				i, quote(p)), `null`))
		}
		events = append(events,
			chunk(fmt.Sprintf(`{"reasoning_details":[{"type":"reasoning.text","index":%d,"signature":"s"}]}`, i), `null`))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
		arguments := `{"q":` + quote(drawText(t, "argument")) + `}`
		head := fmt.Sprintf(`"id":"call_%020d","type":"function"`, i)
		calls = append(calls, `{`+head+`,"function":{"name":"f","arguments":`+quote(arguments)+`}}`)
		events = append(events, chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,%s,"function":{"name":"f","arguments":""}}]}`,
			i, head), `null`))
		for _, p := range cut(t, arguments) {
			events = append(events, chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quote(p)),
				`null`))
		}
	}
	if details != nil {
		members = append(members, `"reasoning_details":[`+strings.Join(details, ",")+`]`)
	}
	if calls != nil {
		members = append(members, `"tool_calls":[`+strings.Join(calls, ",")+`]`)
	}
	return jsontext.Value("{" + strings.Join(members, ",") + "}"), append(events, chunk(`{}`, `"stop"`), "[DONE]")
}

// A streamed answer is kept as the same answer is that comes as JSON; one that was
// cut is its beginning.
func TestObserverStreamEqualsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, content, body := wire.Messages, jsontext.Value(nil), ""
		var events []string
		if rapid.Bool().Draw(t, "chat") {
			d = wire.Chat
			content, events = drawChat(t)
			body = `{"id":"x","choices":[ {"index":0,"message":` + string(content) + `,"finish_reason":"stop"}]}`
		} else {
			content, events = drawBlocks(t)
			body = `{"id":"x","type":"message", "content": ` + string(content) + `}`
		}
		plain := NewObserver(d, false)
		in := []byte(body)
		require.Same(t, &in[0], &hear(plain, in)[0])
		want, ok := plain.Answer()
		require.True(t, ok)
		require.Equal(t, string(content), string(want.Content))
		require.False(t, want.Cut)

		at := rapid.IntRange(0, len(events)).Draw(t, "cut at")
		stream := NewObserver(d, false)
		require.Equal(t, events[:at:at], append([]string{}, observe(stream, events[:at]...)...))
		begun, ok := stream.Answer()
		require.Equal(t, at == len(events), stream.Complete())
		if ok {
			require.True(t, begun.Content.IsValid())
			require.Equal(t, at < len(events), begun.Cut)
			if d == wire.Messages {
				for i, b := range gjson.ParseBytes(begun.Content).Array() {
					require.Equal(t, gjson.GetBytes(content, fmt.Sprint(i)).Raw, b.Raw)
				}
			}
		}
		observe(stream, events[at:]...)
		got, ok := stream.Answer()
		require.True(t, ok)
		require.Equal(t, want.Tools, got.Tools)
		require.Equal(t, canonical(t, want.Content), canonical(t, got.Content))
	})
}

// canonical is v with its strings escaped in one way.
func canonical(t require.TestingT, v jsontext.Value) string {
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, v))
	c := jsontext.Value(compact.Bytes())
	require.NoError(t, c.Canonicalize())
	return string(c)
}

func FuzzObserver(f *testing.F) {
	for _, data := range []string{opened(0, signed), added(0, "text_delta", "text", "x"),
		chunk(`{"tool_calls":[{"index":0,"id":"a"}]}`, `"stop"`),
		`{"content":[{"type":"tool_use","id":"x"}]}`, `{"choices":[{"message":{"tool_calls":[{"id":"x"}]}}]}`} {
		f.Add([]byte(data), []byte(closed(0)))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		for _, d := range []wire.Dialect{wire.Messages, wire.Chat} {
			stream := NewObserver(d, true)
			for _, data := range [][]byte{one, two, one} {
				if out := event(stream, bytes.Clone(data)); gjson.ValidBytes(data) {
					require.True(t, gjson.ValidBytes(out), "%s", out)
				} else {
					require.Equal(t, data, out)
				}
			}
			observe(stream, messageStop, "[DONE]")
			whole := NewObserver(d, true)
			if out := hear(whole, bytes.Clone(one)); gjson.ValidBytes(one) {
				require.True(t, gjson.ValidBytes(out), "%s", out)
			}
			for _, o := range []*Observer{stream, whole} {
				if a, ok := o.Answer(); ok {
					require.True(t, gjson.ValidBytes(a.Content), "%s", a.Content)
				}
			}
		}
	})
}

// How a vendor writes its events makes no difference: most come in one form, which
// is read in a quicker way.
func TestObserverTakesAnyWriting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, events := drawBlocks(t)
		plain, spaced := NewObserver(wire.Messages, false), NewObserver(wire.Messages, false)
		for _, e := range events {
			event(plain, []byte(e))
			event(spaced, []byte(strings.Replace(e, `{"type":`, `{ "type": `, 1)))
		}
		want, ok := spaced.Answer()
		got, found := plain.Answer()
		require.Equal(t, ok, found)
		require.Equal(t, string(want.Content), string(got.Content))
		require.Equal(t, want.Cut, got.Cut)
	})
}
