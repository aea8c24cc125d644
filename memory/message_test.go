package memory_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
)

func TestMessageIsStoredAs(t *testing.T) {
	for _, c := range []struct {
		name    string
		message memory.Message
		want    string
	}{
		{"user", memory.Message{Role: "user", Content: "Скажи <b>\"да\"</b> & 1 > 0", Timestamp: 1763711157.25},
			`{"role":"user","content":"Скажи <b>\"да\"</b> & 1 > 0","timestamp":1763711157.25}`},
		{"partial answer", memory.Message{Role: "assistant", Content: "a\nb", Timestamp: 1, Partial: true},
			`{"role":"assistant","content":"a\nb","timestamp":1,"partial":true}`},
		{"failure", memory.Failed("model_failed"),
			`{"role":"assistant","content":"(no answer: model_failed)","timestamp":0,"failure":"model_failed"}`},
		{"call", memory.Message{Role: "assistant", Timestamp: 2, ToolCalls: []memory.ToolCall{
			{ID: "c1", Type: "function", Function: memory.FunctionCall{Name: "f", Arguments: `{"x":"<1>"}`}},
		}},
			`{"role":"assistant","content":"","timestamp":2,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":\"<1>\"}"}}]}`},
		{"result", memory.Message{Role: "tool", Content: "12", Timestamp: 3, ToolCallID: "c1", Name: "f"},
			`{"role":"tool","content":"12","timestamp":3,"tool_call_id":"c1","name":"f"}`},
		{"metadata", memory.Message{Role: "user", Content: "hi", Timestamp: 1, Metadata: map[string]string{"b": "<1>", "a": ""},
			ID: "r.1"},
			`{"role":"user","content":"hi","timestamp":1,"metadata":{"a":"","b":"<1>"},"id":"r.1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, string(c.message.Encode()))
			var back memory.Message
			require.NoError(t, json.Unmarshal(c.message.Encode(), &back))
			require.Equal(t, c.message, back)
		})
	}
}

var anyMessage = rapid.Custom(func(t *rapid.T) memory.Message {
	m := memory.Message{
		Role:       rapid.SampledFrom([]string{"user", "assistant", "tool"}).Draw(t, "role"),
		Content:    rapid.String().Draw(t, "content"),
		Timestamp:  rapid.Float64().Draw(t, "timestamp"),
		ToolCallID: rapid.String().Draw(t, "tool call id"),
		Name:       rapid.String().Draw(t, "name"),
		Partial:    rapid.Bool().Draw(t, "partial"),
		Failure:    rapid.SampledFrom([]string{"", "model_failed"}).Draw(t, "failure"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "calls") {
		m.ToolCalls = append(m.ToolCalls, memory.ToolCall{
			ID: rapid.String().Draw(t, "id"), Type: "function",
			Function: memory.FunctionCall{Name: rapid.String().Draw(t, "function"),
				Arguments: rapid.String().Draw(t, "arguments")},
		})
	}
	return m
})

func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyMessage.Draw(t, "message")
		raw := m.Encode()
		require.NotContains(t, string(raw), "\n", "one line")
		require.Equal(t, raw, m.Encode(), "equal messages have equal bytes")
		back, err := memory.Decode([]json.RawMessage{raw})
		require.NoError(t, err)
		require.Equal(t, m, back[0])
	})
}

// What other programs store is read with as much of it as has a meaning here.
func TestForeignMessages(t *testing.T) {
	for _, c := range []struct {
		name, stored string
		want         memory.Message
	}{
		{"null content", `{"role":"assistant","content":null,"timestamp":1}`, memory.Message{
			Role: "assistant", Timestamp: 1,
		}},
		{"no content", `{"role":"user"}`, memory.Message{Role: "user"}},
		{
			"parts",
			`{"role":"user","content":[{"type":"text","text":"a ` +
				`"},{"type":"image_url","image_url":{}},{"type":"text","text":"b"}]}`, memory.Message{Role: "user", Content: "a b"},
		},
		{"no parts", `{"role":"user","content":[]}`, memory.Message{Role: "user"}},
		{"number as content", `{"role":"user","content":5}`, memory.Message{Role: "user", Content: "5"}},
		{"object as content", `{"role":"user","content":{"a":1}}`, memory.Message{Role: "user", Content: `{"a":1}`}},
		{"time as text", `{"role":"user","content":"a","timestamp":"2025-11-21T07:45:57"}`, memory.Message{
			Role: "user", Content: "a",
		}},
		{
			"null everywhere",
			`{"role":"user","content":"a","timestamp":null,"tool_calls":null,"tool_call_id":null,"name":null,"partial":null}`,
			memory.Message{Role: "user", Content: "a"},
		},
		{"calls that are no list", `{"role":"assistant","content":"a","tool_calls":"f()"}`, memory.Message{
			Role: "assistant", Content: "a",
		}},
		{"fields of others", `{"role":"user","content":"a","id":7,"metadata":{"x":[1]}}`, memory.Message{
			Role: "user", Content: "a",
		}},
		{"pasted", `{"role":"user","content":["ab"],"pasted":[[0,1]]}`, memory.Message{
			Role: "user", Content: "ab", Pasted: []memory.Span{{0, 1}},
		}},
		{"nothing pasted", `{"role":"user","content":["ab"],"pasted":[]}`, memory.Message{
			Role: "user", Content: "ab", Pasted: []memory.Span{},
		}},
		{"pasted that is no list of spans", `{"role":"user","content":["ab"],"pasted":[[0,1],"x"]}`, memory.Message{
			Role: "user", Content: "ab",
		}},
		{"python's spacing", `{"role": "user", "content": "\u0410", "timestamp": 1.5}`, memory.Message{
			Role: "user", Content: "А", Timestamp: 1.5,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := memory.Decode([]json.RawMessage{[]byte(c.stored)})
			require.NoError(t, err)
			require.Equal(t, []memory.Message{c.want}, got)
		})
	}
	for _, damaged := range []string{`{}`, `{"role":""}`, `{"role":5}`, `null`, `[]`, `"user"`, `{"role":"user"`} {
		_, err := memory.Decode([]json.RawMessage{[]byte(`{"role":"user"}`), []byte(damaged)})
		require.ErrorIs(t, err, memory.ErrDamaged, damaged)
		require.ErrorContains(t, err, "message 1")
	}
	_, err := memory.Decode([]json.RawMessage{[]byte(`{"content":"` + strings.Repeat("x", 1<<20) + `"}`)})
	require.Less(t, len(err.Error()), 400, "an error does not repeat a megabyte of history")
}

func TestOddForeignFieldsCostNothing(t *testing.T) {
	for stored, want := range map[string]memory.Message{
		`{"role":"tool","content":"x","tool_call_id":7}`: {
			Role: "tool", Content: "x", ToolCallID: "7",
		},
		`{"role":"user","content":["a",{"type":"text","text":"b"},{"type":"image"}],"timestamp":"today","partial":"no"}`: {
			Role: "user", Content: "ab",
		},
		`{"role":"assistant","tool_calls":[{"id":1,"function":{"name":"f","arguments":{"a":1}}}]}`: {Role: "assistant",
			ToolCalls: []memory.ToolCall{
				{ID: "1", Type: "function", Function: memory.FunctionCall{Name: "f", Arguments: `{"a":1}`}}}},
		`{"role":"assistant","content":"x","tool_calls":"none"}`: {Role: "assistant", Content: "x"},
	} {
		var m memory.Message
		require.NoError(t, json.Unmarshal([]byte(stored), &m), stored)
		require.Equal(t, want, m, stored)
	}
}

// What is read of a message's beginning is what decoding all of it says.
func TestHeadOf(t *testing.T) {
	whole := func(m memory.Message) string { return string(m.Encode()) }
	for _, raw := range []string{
		whole(memory.Message{Role: memory.RoleUser, Content: `a "quoted\" end\\`, Timestamp: 1760000000.123, ID: "R.1"}),
		whole(memory.Message{Role: memory.RoleAssistant, Content: `","timestamp":7,"x":"`, Timestamp: 5}),
		whole(memory.Message{Role: memory.RoleTool, Content: "", Name: "n"}),
		`{"role":"user","content":"x","timestamp":1e3}`,
		`{"role":"user","content":"x","timestamp":"soon"}`,
		`{"role":"user","content":["x"],"timestamp":3}`,
		`{"role":"user","content":null,"timestamp":3}`,
		`{"timestamp":4,"role":"assistant"}`,
		`{ "role" : "user", "content":"x", "timestamp": 9 }`,
		`{"role":"system","content":"x","timestamp":2}`,
		`{"role":"user","content":"`, `{"role":"user","content":"x"`, `{"role":"user","content":"x\`, `[]`, ``,
	} {
		var m struct {
			Role      string
			Timestamp float64
		}
		_ = json.Unmarshal([]byte(raw), &m)
		role, ts := memory.HeadOf(json.RawMessage(raw))
		if role != m.Role || ts != m.Timestamp {
			t.Errorf("%s: %q %v, not %q %v", raw, role, ts, m.Role, m.Timestamp)
		}
	}
}

// The elements of an array that is proven are those that reading it finds.
func TestElements(t *testing.T) {
	var raw []json.RawMessage
	for i, content := range []string{`"`, `\`, `\\"`, `}],{"role":"`, "", strings.Repeat(`\"`, 100)} {
		m := memory.Message{Role: memory.RoleUser, Content: content, Metadata: map[string]string{"a": `{"`}, ID: memory.MessageID("R", int64(i+1))}
		raw = append(raw, m.Encode())
	}
	got, err := memory.Elements(memory.Array(raw))
	if err != nil || string(memory.Array(got)) != string(memory.Array(raw)) || len(got) != len(raw) {
		t.Fatalf("%q, %v", got, err)
	}
	for _, text := range []string{"", "[", `[{"role":"u`, `[{"role":"user","content":"\`, `{}`, `[{}`, `[{}]x`} {
		if _, err := memory.Elements([]byte(text)); err == nil {
			t.Errorf("%s is no array", text)
		}
	}
}
