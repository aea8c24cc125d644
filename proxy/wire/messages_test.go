package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/proxy/wire"
)

func TestContentReadsStringsAndBlocks(t *testing.T) {
	for body, want := range map[string]wire.Content{
		`"hi"`:                         {{Type: "text", Text: "hi"}},
		`""`:                           nil,
		`null`:                         nil,
		`[{"type":"text","text":"a"}]`: {{Type: "text", Text: "a"}},
		`[{"type":"tool_result","tool_use_id":"t","content":"x","is_error":true}]`: {
			{Type: "tool_result", ToolUseID: "t", Content: wire.Content{{Type: "text", Text: "x"}}, IsError: true}},
	} {
		var c wire.Content
		require.NoError(t, wire.Unmarshal([]byte(body), &c), body)
		require.Equal(t, want, c, body)
	}
	var c wire.Content
	require.ErrorIs(t, wire.Unmarshal([]byte(`7`), &c), wire.ErrBadJSON)
	deep := strings.Repeat(`[{"type":"tool_result","content":`, 4000) + `""` + strings.Repeat(`}]`, 4000)
	require.NoError(t, wire.Unmarshal([]byte(deep), &c), "nested content must not be scanned again at every level")
}

func TestBlocksKeepTheFieldsTheyMustHave(t *testing.T) {
	for want, b := range map[string]wire.Block{
		`{"type":"text","text":""}`:                          {Type: "text"},
		`{"type":"thinking","thinking":"","signature":""}`:   {Type: "thinking"},
		`{"type":"tool_use","id":"a","name":"f","input":{}}`: {Type: "tool_use", ID: "a", Name: "f"},
		`{"type":"tool_result","tool_use_id":"a"}`:           {Type: "tool_result", ToolUseID: "a"},
		`{"type":"redacted_thinking","data":"zz"}`:           {Type: "redacted_thinking", Data: "zz"},
		`{"type":"image","source":{"type":"url","url":"https://x/y"}}`: {
			Type: "image", Source: &wire.Source{Type: "url", URL: "https://x/y"},
		},
	} {
		got, err := wire.Marshal(b)
		require.NoError(t, err)
		require.JSONEq(t, want, string(got))
	}
}

func TestInputObject(t *testing.T) {
	for in, want := range map[string]string{
		"": "{}", " \n": "{}", `{"a":1}`: `{"a":1}`, `[1]`: `{"_arguments":"[1]"}`, `{"a":`: `{"_arguments":"{\"a\":"}`,
	} {
		require.Equal(t, want, string(wire.InputObject(in)), in)
	}
}

// What a response says does not depend on whether it was streamed.
func TestEventsAssembleToTheResponse(t *testing.T) {
	word := rapid.StringMatching(`[a-zя"\\ ]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		r := wire.Response{
			ID: word.Draw(t, "id"), Type: "message", Role: "assistant", Model: "m", Content: wire.Content{},
			StopReason: wire.NullString(word.Draw(t, "stop")), StopSequence: wire.NullString(word.Draw(t, "sequence")),
			Usage: wire.Usage{InputTokens: rapid.Int64Range(0, 9).Draw(t, "in"), OutputTokens: 3, CacheRead: 2},
		}
		for range rapid.IntRange(0, 4).Draw(t, "blocks") {
			r.Content = append(r.Content, rapid.SampledFrom([]wire.Block{
				{Type: "text", Text: word.Draw(t, "text")},
				{Type: "thinking", Thinking: word.Draw(t, "thinking"), Signature: word.Draw(t, "signature")},
				{Type: "redacted_thinking", Data: word.Draw(t, "data")},
				{Type: "tool_use", ID: word.Draw(t, "tool"), Name: "f", Input: jsontext.Value(`{"q":[1,2.50]}`)},
			}).Draw(t, "block"))
		}
		var a wire.Assembler
		for _, e := range r.Events() {
			b, err := wire.Marshal(e)
			require.NoError(t, err)
			require.True(t, json.Valid(b))
			read, err := wire.ReadEvent(b)
			require.NoError(t, err)
			require.NoError(t, a.Add(&read))
		}
		have, ok := a.JSON()
		require.True(t, ok)
		want, err := wire.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have))
	})
}

func TestAssemblerRefusesBlocksOutOfOrder(t *testing.T) {
	var a wire.Assembler
	require.Error(t, a.Add(&wire.Event{Type: wire.BlockDelta}))
	require.Error(t, a.Add(&wire.Event{Type: wire.BlockStart, Index: 3, Block: &wire.Block{}}))
	require.Error(t, a.Add(&wire.Event{Type: wire.MessageStart}))
	_, ok := a.JSON()
	require.False(t, ok)
}
