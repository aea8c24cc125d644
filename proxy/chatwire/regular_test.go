package chatwire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/proxy/chatwire"
	"mneme/proxy/wire"
)

// said plays chunks through a Regular and returns the text, the reasoning and the indexes of the calls that come out.
func said(t *testing.T, r *chatwire.Regular, deltas ...string) (text, thoughts, indexes string) {
	t.Helper()
	for i, delta := range deltas {
		finish := "null"
		if i == len(deltas)-1 {
			finish = `"stop"`
		}
		data := `{"choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
		c, err := wire.ReadChunk([]byte(data))
		require.NoError(t, err)
		c, err = r.Chunk(c)
		require.NoError(t, err)
		out := gjson.GetBytes(c.Body, "choices.0.delta")
		text += out.Get("content").String()
		thoughts += out.Get("reasoning_content").String()
		for _, call := range out.Get("tool_calls").Array() {
			indexes += call.Get("index").Raw
		}
	}
	return text, thoughts, indexes
}

func TestIrregularChunks(t *testing.T) {
	t.Parallel()
	content := func(pieces ...string) (deltas []string) {
		for _, p := range pieces {
			deltas = append(deltas, `{"content":`+string(wire.Quote(p))+`}`)
		}
		return append(deltas, `{}`)
	}
	for name, c := range map[string]struct {
		deltas                  []string
		text, thoughts, indexes string
	}{
		"regular": {content("a", "b"), "ab", "", ""},
		"Mistral's parts": {[]string{`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hmm "}]}]}`,
			`{"content":[{"type":"thinking","thinking":"so"},{"type":"text","text":"An"}]}`, `{"content":"swer"}`},
			"Answer", "hmm so", ""},
		"MiniMax's details": {[]string{`{"reasoning_details":[{"index":0,"text":"hm"}]}`,
			`{"reasoning_details":[{"index":0,"text":"m"}],"content":"A"}`, `{}`}, "A", "hmm", ""},
		"MiniMax's details so far": {[]string{`{"reasoning_details":[{"index":0,"text":"hm"}]}`,
			`{"reasoning_details":[{"index":0,"text":"hmm"}]}`, `{"content":"A"}`}, "A", "hmm", ""},
		"MiniMax's details so far, repeated": {[]string{`{"reasoning_details":[{"index":0,"text":"hm"}]}`,
			`{"reasoning_details":[{"index":0,"text":"hmm"}]}`, `{"reasoning_details":[{"index":0,"text":"hmm"}],"content":"A"}`},
			"A", "hmm", ""},
		"details beside reasoning": {[]string{`{"reasoning":"","reasoning_details":[{"index":0,"text":"h"}]}`,
			`{"content":"A"}`}, "A", "", ""},
		"tags":                    {content("<think>\nhmm\n</think>\n\nAnswer"), "Answer", "hmm", ""},
		"tags in pieces":          {content("<th", "ink>h", "m</thi", "nk>", "A"), "A", "hm", ""},
		"tags that do not close":  {content("<think>", "hm</th"), "", "hm</th", ""},
		"a text that begins like": {content("<th", "is"), "<this", "", ""},
		"a text that is no tag":   {content("<t"), "<t", "", ""},
		"tags inside the text":    {content("a <think>b</think>"), "a <think>b</think>", "", ""},
		"calls with one index": {[]string{`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"{"}}]}`,
			`{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}`,
			`{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"{}"}}]}`}, "", "", "001"},
		"calls with their index": {[]string{`{"tool_calls":[{"index":0,"id":"a"},{"index":1,"id":"b"}]}`,
			`{"tool_calls":[{"index":0},{"index":1}]}`}, "", "", "0101"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, thoughts, indexes := said(t, new(chatwire.Regular), c.deltas...)
			require.Equal(t, c.text, text)
			require.Equal(t, c.thoughts, thoughts)
			require.Equal(t, c.indexes, indexes)
		})
	}
	text, _, _ := said(t, &chatwire.Regular{KeepTags: true}, content("<think>a</think>")...)
	require.Equal(t, "<think>a</think>", text)
}

// A client of chat completions gets OpenAI's reasons for an end. An unknown reason stays as it is.
func TestEndingsOfChatBackends(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{"stop": "stop", "STOP": "stop", "eos": "stop", "model_length": "length",
		"model_context_window_exceeded": "length", "sensitive": "content_filter", "tool_use": "tool_calls",
		"function_call": "function_call", "network_error": "network_error", "from_the_future": "from_the_future"} {
		for _, member := range []string{"delta", "message"} {
			c, err := wire.ReadChunk([]byte(`{"choices":[{"index":0,"` + member + `":{},"finish_reason":"` + reason + `"}]}`))
			require.NoError(t, err)
			c, err = (&chatwire.Regular{Endings: true}).Chunk(c)
			require.NoError(t, err)
			require.Equal(t, want, gjson.GetBytes(c.Body, "choices.0.finish_reason").Str, reason)
		}
	}
}

// Regular chunks keep their bytes.
func TestRegularChunksStay(t *testing.T) {
	t.Parallel()
	data := []byte(`{"choices": [{"index":0,"delta":{"content":"\u0041"},"finish_reason":null}]}`)
	c, err := wire.ReadChunk(data)
	require.NoError(t, err)
	same, err := new(chatwire.Regular).Chunk(c)
	require.NoError(t, err)
	require.Same(t, &data[0], &same.Body[0])
	require.True(t, strings.Contains(string(same.Body), `\u0041`))
}
