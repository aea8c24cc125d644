package usage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// hear takes the data of an event as the gateway does: what cannot be read is not counted.
func hear(r *usage.Reader, d wire.Dialect, data []byte) {
	if d == wire.Chat {
		if c, err := wire.ReadChunk(data); err == nil {
			r.Chunk(c)
		}
	} else if e, err := wire.ReadEvent(data); err == nil {
		r.Event(&e)
	}
}

func hearBody(r *usage.Reader, d wire.Dialect, body []byte) {
	if d == wire.Chat {
		hear(r, d, body)
	} else if o, err := wire.ReadMessage(body); err == nil {
		r.Message(o)
	}
}

func TestReader(t *testing.T) {
	start :=
		`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"cache_creation_input_tokens":7,"cache_read_input_tokens":3,"output_tokens":1}}}`
	hello := `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, wörld, you ` +
		`\"there\"\n"}}`
	end := `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`
	chunk := `{"id":"c","choices":[{"index":0,"delta":{"content":"Hello, wörld"}}],"usage":null}`
	request := []byte(`{"model":"m","messages":[{"role":"user","content":"12345678"}]}`)
	asked := usage.EstimateInput(request)

	for name, c := range map[string]struct {
		dialect   wire.Dialect
		events    []string
		body      string
		want      wire.Usage
		estimated bool
	}{
		"messages, stream": {wire.Messages, []string{start, hello, end}, "", wire.Usage{
			InputTokens: 25, CacheRead: 3, CacheCreation: 7, OutputTokens: 15,
		}, false},
		"messages, JSON": {
			wire.Messages, nil, `{"content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":25,"output_tokens":15}}`,
			wire.Usage{InputTokens: 25, OutputTokens: 15}, false,
		},
		"messages, all of it in the end": {
			wire.Messages,
			[]string{`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`,
				`{"type":"message_delta","usage":{"input_tokens":9,"output_tokens":4,"cache_read_input_tokens":2}}`},
			"", wire.Usage{InputTokens: 9, CacheRead: 2, OutputTokens: 4}, false,
		},
		"messages, zeros in the end take nothing back": {
			wire.Messages, []string{start, `{"type":"message_delta","usage":{"input_tokens":0,"output_tokens":4}}`},
			"", wire.Usage{InputTokens: 25, CacheRead: 3, CacheCreation: 7, OutputTokens: 4}, false,
		},
		"messages, counted again in each delta": {
			wire.Messages, []string{start, `{"type":"message_delta","usage":{"output_tokens":4}}`, end},
			"", wire.Usage{InputTokens: 25, CacheRead: 3, CacheCreation: 7, OutputTokens: 15}, false,
		},
		"messages, a tool's input that looks like usage": {
			wire.Messages, []string{
				start,
				`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\"usage\":{\"output_tokens\":999}}"}}`, end,
			},
			"", wire.Usage{InputTokens: 25, CacheRead: 3, CacheCreation: 7, OutputTokens: 15}, false,
		},
		"messages, cut off": {wire.Messages, []string{start, hello}, "", wire.Usage{
			InputTokens: 25, CacheRead: 3, CacheCreation: 7, OutputTokens: 8,
		}, true},
		"messages, only head": {wire.Messages, []string{start}, "", wire.Usage{InputTokens: 25, CacheRead: 3, CacheCreation: 7,
			OutputTokens: 1}, false},
		"messages, an error": {
			wire.Messages, []string{`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}, "",
			wire.Usage{}, false,
		},
		"messages, untold": {wire.Messages, []string{hello}, "", wire.Usage{InputTokens: asked, OutputTokens: 8}, true},
		"chat, stream": {
			wire.Chat, []string{
				chunk,
				`{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":12,"total_tokens":42,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`, "[DONE]",
			},
			"", wire.Usage{InputTokens: 20, CacheRead: 10, OutputTokens: 12, OutputDetails: wire.OutputDetails{ThinkingTokens: 5}}, false,
		},
		"chat, JSON": {
			wire.Chat, nil, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":30,"completion_tokens":12}}`,
			wire.Usage{InputTokens: 30, OutputTokens: 12}, false,
		},
		"chat, counted in each": {
			wire.Chat, []string{`{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":1}}`,
				`{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":2}}`}, "", wire.Usage{InputTokens: 30, OutputTokens: 2}, false,
		},
		"chat, inside the choice": {
			wire.Chat, []string{
				chunk,
				`{"choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":8,"completion_tokens":3,"cached_tokens":8}}]}`,
			}, "", wire.Usage{CacheRead: 8, OutputTokens: 3}, false,
		},
		"chat, DeepSeek's cache": {
			wire.Chat, nil,
			`{"usage":{"prompt_tokens":30,"completion_tokens":12,"prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10}}`,
			wire.Usage{InputTokens: 10, CacheRead: 20, OutputTokens: 12}, false,
		},
		"chat, thinking beside the completion": {
			wire.Chat, nil, `{"usage":{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,
				"prompt_tokens_details":{"cached_tokens":6},"completion_tokens_details":{"reasoning_tokens":94}}}`,
			wire.Usage{InputTokens: 26, CacheRead: 6, OutputTokens: 103,
				OutputDetails: wire.OutputDetails{ThinkingTokens: 94}}, false,
		},
		"chat, thinking in the total alone": {
			wire.Chat, nil, `{"usage":{"prompt_tokens":20,"completion_tokens":198,"total_tokens":623}}`,
			wire.Usage{InputTokens: 20, OutputTokens: 603, OutputDetails: wire.OutputDetails{ThinkingTokens: 405}}, false,
		},
		"messages, thinking": {
			wire.Messages, []string{start, `{"type":"message_delta","usage":{"output_tokens":15,"output_tokens_details":` +
				`{"thinking_tokens":9}}}`},
			"", wire.Usage{InputTokens: 25, CacheRead: 3, CacheCreation: 7, OutputTokens: 15, OutputDetails: wire.OutputDetails{ThinkingTokens: 9}}, false,
		},
		"chat, not asked for": {wire.Chat, []string{chunk, chunk, "[DONE]"}, "", wire.Usage{InputTokens: asked, OutputTokens: 7},
			true},
		"chat, arguments, untold": {
			wire.Chat, []string{`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments": "{\"a\":1}"}}]}}]}`}, "",
			wire.Usage{InputTokens: asked, OutputTokens: 2}, true,
		},
		"chat, zeros for everything": {
			wire.Chat, []string{chunk, `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}`}, "", wire.Usage{
				InputTokens: asked, OutputTokens: 4,
			}, true,
		},
		"embeddings": {wire.Chat, nil, `{"data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}`,
			wire.Usage{InputTokens: 8}, false},
		"counts that are none": {
			wire.Chat, nil, `{"usage":{"prompt_tokens":-5,"completion_tokens":"many","prompt_tokens_details":[]}}`,
			wire.Usage{}, false,
		},
		"a count beyond belief": {wire.Messages, nil, `{"usage":{"input_tokens":1e300,"output_tokens":3}}`, wire.Usage{
			InputTokens: asked, OutputTokens: 3,
		}, true},
		"no answer": {wire.Chat, nil, `not JSON`, wire.Usage{}, false},
		"nothing":   {wire.Messages, nil, "", wire.Usage{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r usage.Reader
			for _, e := range c.events {
				hear(&r, c.dialect, []byte(e))
			}
			if c.body != "" {
				hearBody(&r, c.dialect, []byte(c.body))
			}
			got, estimated := r.Tokens(request)
			require.Equal(t, c.want, got)
			require.Equal(t, c.estimated, estimated)
		})
	}
}

// Whatever a vendor sends, no count is negative and nothing panics.
func TestReaderTakesAnything(t *testing.T) {
	parts := rapid.SampledFrom([]string{
		`"usage"`, `:`, `{`, `}`, `"text":`, `"`, `\`, `\u12`, `"content": "`, "ж", "\xff", `"prompt_tokens":`, `-1`, `1e99`,
		`"output_tokens":7`, `,`, `[`, `"choices":[`, `"data":"`, ` `,
	})
	rapid.Check(t, func(t *rapid.T) {
		var r usage.Reader
		dialect := rapid.SampledFrom([]wire.Dialect{wire.Messages, wire.Chat}).Draw(t, "dialect")
		for range 3 {
			hear(&r, dialect, []byte(strings.Join(rapid.SliceOf(parts).Draw(t, "event"), "")))
		}
		hearBody(&r, dialect, []byte(strings.Join(rapid.SliceOf(parts).Draw(t, "body"), "")))
		tokens, _ := r.Tokens([]byte(strings.Join(rapid.SliceOf(parts).Draw(t, "request"), "")))
		for _, n := range []int64{tokens.InputTokens, tokens.CacheRead, tokens.CacheCreation, tokens.OutputTokens,
			tokens.OutputDetails.ThinkingTokens} {
			require.GreaterOrEqual(t, n, int64(0))
		}
		require.LessOrEqual(t, tokens.OutputDetails.ThinkingTokens, tokens.OutputTokens)
	})
}

func TestEstimateInput(t *testing.T) {
	message := func(content string) []byte { return []byte(`{"messages":[{"role":"user","content":` + content + `}]}`) }
	empty, long := usage.EstimateInput(message(`""`)), strings.Repeat("A", 1e5)
	for content, more := range map[string]int64{
		`"` + strings.Repeat("word", 100) + `"`:        100,
		`"` + strings.Repeat("да", 100) + `"`:          100,
		`"` + strings.Repeat(`\u0434`, 200) + `"`:      100,
		`"` + strings.Repeat(`\"\n`, 200) + `"`:        100,
		`[1,22,` + strings.Repeat("1234,", 100) + `5]`: 101,
		// What is an image or a document counts as one, whatever its dialect.
		`[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + long + `"}}]`:                        1600 + 10,
		`[{"type":"input_image","image_url":"data:image/png;base64,` + long + `"}]`:                              1600 + 8,
		`[{"type":"image","source":{"type":"base64","data":"` + long + `"}}]`:                                    1600 + 7,
		`[{"type":"document","source":{"type":"base64","data":"` + long + `"}}]`:                                 1600 + 5000 + 8,
		`[{"type":"file","file":{"file_data":"data:application/pdf;base64,` + long + `"}}]`:                      1600 + 5000 + 6,
		`[{"type":"input_file","file_data":"data:application/pdf;base64,` + long + `"}]`:                         1600 + 5000 + 6,
		`[{"type":"input_audio","input_audio":{"data":"` + long + `"}}]`:                                         1600 + 5000 + 8,
		`[{"type":"tool_result","content":[{"type":"image","source":{"type":"base64","data":"` + long + `"}}]}]`: 1600 + 15,
		`[{"type":"image","source":{"type":"url","url":"https://a.example/1.png"}}]`:                             1600 + 14,
		`[{"type":"image_url","image_url":{"url":"https://a.example/1.png"}}]`:                                   1600 + 13,
		`[{"type":"input_file","file_id":"file_1"}]`:                                                             1600 + 7,
		`[{"type":"thinking","thinking":"","signature":"` + long + `"}]`:                                         7,
		// What only looks like it is text.
		`"data:` + long + `"`:                                                                                           25001,
		`"data:image/png;base64,` + long + `"`:                                                                          25006,
		`[{"type":"text","text":"data:image/png;base64,` + long + `"}]`:                                                 25009,
		`[{"type":"text","text":"","signature":"` + long + `"}]`:                                                        25006,
		`[{"type":"image","type":"text","text":"` + long + `"}]`:                                                        25006,
		`[{"type":"image","source":{"type":"base64","type":"text","data":"` + long + `"}}]`:                             25009,
		`[{"type":"file","file":{"file_data":"data:text/plain;base64,` + long + `"}}]`:                                  25013,
		`[{"type":"image_url","image_url":{"url":"data:` + long + `"}}]`:                                                25010,
		`[{"type":"tool_use","input":{"content":[{"type":"image","source":{"type":"base64","data":"` + long + `"}}]}}]`: 25015,
	} {
		require.InDelta(t, more, usage.EstimateInput(message(content))-empty, 6, content[:min(90, len(content))])
	}
	require.Zero(t, usage.EstimateInput(nil))
}

func TestHearingAnEventTakesNoMemory(t *testing.T) {
	var r usage.Reader
	e, err := wire.ReadEvent([]byte(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`))
	require.NoError(t, err)
	c, err := wire.ReadChunk([]byte(`{"choices":[{"index":0,"delta":{"content":"Hello"}}]}`))
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Event(&e); r.Chunk(c) }))
}
