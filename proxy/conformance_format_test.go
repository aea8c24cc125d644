package proxy_test

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

const (
	closedFormat = `{"type":"json_schema","json_schema":{"name":"place","strict":true,"schema":{"type":"object",` +
		`"properties":{"city":{"type":"string"},"n":{"type":"integer"}},"required":["city","n"],` +
		`"additionalProperties":false}}}`
	boundedFormat = `{"type":"json_schema","json_schema":{"name":"place","schema":{"type":"object",` +
		`"properties":{"city":{"type":"string","maxLength":9}},"required":["city"]}}}`
)

// A client of chat completions that asks for JSON gets nothing but that, whatever the vendor has for
// it, and its next turns go on from there.
func TestConformanceStructuredOutput(t *testing.T) {
	t.Parallel()
	glm := backendCase{name: "glm", vendor: upstreamtest.Config{Vendor: upstreamtest.GLM},
		config: proxy.BackendConfig{Kind: proxy.KindAnthropic, Vendor: "glm"}}
	for _, c := range []struct {
		personality
		format string
		native bool
	}{
		{personality{claude.told(budgeted), "claude-opus-4-8", false}, closedFormat, true},
		{personality{claude.told(budgeted), "claude-sonnet-4-5", false}, closedFormat, true},
		{personality{prefixChecking.told(budgeted), "claude-opus-5-5", false}, closedFormat, true},
		{personality{claude.told(budgeted), "claude-opus-4-8", false}, boundedFormat, false},
		{personality{claude.told(budgeted), "claude-opus-5-5", false}, boundedFormat, false},
		{personality{claude.told(budgeted), "claude-sonnet-4-5", false}, `{"type":"json_object"}`, false},
		{personality{claude.told(budgeted), "claude-3-5-haiku", false}, closedFormat, false},
		{personality{kimi.told(budgeted), "kimi-k2.5", true}, closedFormat, false},
		{personality{kimi.told(budgeted), "kimi-k2-thinking", true}, closedFormat, false},
		{personality{deepSeek.told(budgeted), "deepseek-reasoner", true}, closedFormat, false},
		{personality{glm.told(budgeted), "glm-4.7", false}, closedFormat, false},
	} {
		for _, stream := range []bool{false, true} {
			kind := gjson.Get(c.format, "type").Str
			t.Run(fmt.Sprintf("%s %s %s native=%v stream=%v", c.name, c.model, kind, c.native, stream), func(t *testing.T) {
				w := newWorld(t, c.backendCase)
				client := w.gateway().chat(c.model)
				client.stream, client.tools = stream, false
				client.within("conversation")
				client.say("Good morning.")
				client.more = `,"response_format":` + c.format
				v := w.vendors[c.name]
				if c.model == "kimi-k2-thinking" || c.model == "claude-opus-5-5" && !c.native {
					v.Queue(upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("I look it up."),
						upstreamtest.Use("answer_in_json", `{"city":"Ürüm\"qi","n":1}`)))
				}
				client.user("Where is it?")
				got := client.post()
				require.Equal(t, 200, got.status, got.body)
				m := readChat(t, got)
				require.NotNil(t, m.Content, got.body)
				require.True(t, gjson.Valid(*m.Content), *m.Content)
				if kind == "json_schema" {
					require.NotEmpty(t, gjson.Get(*m.Content, "city").Str, *m.Content)
				}
				require.Empty(t, m.ToolCalls)
				require.Contains(t, got.body, `"finish_reason":"stop"`)
				require.Equal(t, c.native, gjson.GetBytes(v.Last().Body, "output_config.format").Exists())
				require.Equal(t, c.native, !gjson.GetBytes(v.Last().Body, "tools").Exists())
				if choice := gjson.GetBytes(v.Last().Body, "tool_choice.type").Str; choice == "tool" {
					require.False(t, v.Last().Thinking, "vendors force no tool on a model that thinks")
				}
				m.Reasoning = nil
				client.history = append(client.history, m)
				client.more = ""
				client.say("And thank you.")
				require.Contains(t, string(v.Last().Body), string(must(marshal(*m.Content))))
				w.conforms(0)
			})
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A model that has tools may look something up before it answers.
func TestConformanceStructuredOutputBesideTools(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint(stream), func(t *testing.T) {
			w := newWorld(t, kimi)
			client := w.gateway().chat("kimi-k2.5")
			client.stream, client.tools, client.more = stream, true, `,"response_format":`+closedFormat
			v := w.vendors["kimi"]
			v.Queue(
				upstreamtest.Reply(upstreamtest.Say("I look."), upstreamtest.Use("look", `{"q":"x"}`)),
				upstreamtest.Reply(upstreamtest.Use("answer_in_json", `{"city":"Oslo","n":1}`)),
			)
			require.JSONEq(t, `{"city":"Oslo","n":1}`, client.say("Where is it?"))
			require.Len(t, client.history, 4, "a question, a call, its result, the answer")
			require.Equal(t, "any", gjson.GetBytes(v.Last().Body, "tool_choice.type").Str)
			w.conforms(0)
		})
	}
}

// A client of messages gets the form of the answer from a chat backend too: by the format of that dialect, or
// told in words where the vendor takes any JSON object only, which costs one refusal.
func TestConformanceStructuredOutputOfMessagesClients(t *testing.T) {
	t.Parallel()
	schema := gjson.Get(closedFormat, "json_schema.schema").Raw
	for _, member := range []string{`,"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}`,
		`,"output_format":{"type":"json_schema","schema":` + schema + `}`} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("openai stream=%v %.16s", stream, member), func(t *testing.T) {
				w := knocked(t, unlisted)
				client := w.gateway().messages("gpt-4.1")
				client.stream, client.tools, client.more = stream, false, member
				said := client.say("Where is it?")
				require.JSONEq(t, `{"city":"sample","n":1}`, said)
				sent := w.vendors["openai"].Last().Body
				require.JSONEq(t, schema, gjson.GetBytes(sent, "response_format.json_schema.schema").Raw)
				require.True(t, gjson.GetBytes(sent, "response_format.json_schema.strict").Bool())
				require.Empty(t, w.vendors["openai"].Rejections())
			})
			t.Run(fmt.Sprintf("deepseek stream=%v %.16s", stream, member), func(t *testing.T) {
				w := knocked(t, deepSeekChat)
				v, g := w.vendors["deepseek-chat"], w.gateway()
				client := g.messages("deepseek-chat")
				client.stream, client.tools, client.more = stream, false, member
				client.thinking = ""
				for i := range 2 {
					v.Queue(upstreamtest.Reply(upstreamtest.Say(`{"city":"Oslo","n":1}`)))
					require.JSONEq(t, `{"city":"Oslo","n":1}`, client.say("Where is it?"))
					require.Equal(t, 2+i, v.Count(), "one refusal")
				}
				require.Equal(t, `{"type":"json_object"}`, gjson.GetBytes(v.Last().Body, "response_format").Raw)
				require.Contains(t, gjson.GetBytes(v.Last().Body, "messages.0.content").Str, schema)
			})
		}
	}
}

// On a messages backend that has no format of its own a messages client gets the answer by a tool, as text.
func TestConformanceStructuredOutputByAToolForMessagesClients(t *testing.T) {
	t.Parallel()
	glm := backendCase{name: "glm", vendor: upstreamtest.Config{Vendor: upstreamtest.GLM},
		config: proxy.BackendConfig{Kind: proxy.KindAnthropic, Vendor: "glm"}}
	schema := gjson.Get(closedFormat, "json_schema.schema").Raw
	for _, c := range []personality{{kimi, "kimi-k2.5", true}, {kimi, "kimi-k2-thinking", true},
		{deepSeek, "deepseek-reasoner", true}, {glm, "glm-4.7", false}, {claude, "claude-3-5-haiku", false},
		{claude, "claude-opus-4-8", false}} {
		for _, stream := range []bool{false, true} {
			for _, tools := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s stream=%v tools=%v", c.model, stream, tools), func(t *testing.T) {
					native := c.model == "claude-opus-4-8"
					w := newWorld(t, c.backendCase.told(func(b *proxy.BackendConfig) {
						b.ModelMap = map[string]string{"mine": c.model}
					}))
					client := w.gateway().messages("mine")
					client.thinking = ""
					client.stream, client.tools = stream, tools
					client.within("conversation")
					client.say("Good morning.")
					client.more = `,"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}`
					v := w.vendors[c.name]
					if !native {
						v.Queue(upstreamtest.Reply(upstreamtest.Think("Hm."), upstreamtest.Say("I look it up."),
							upstreamtest.Use("answer_in_json", `{"city":"Oslo","n":1}`)))
					}
					said := client.say("Where is it?")
					require.NotEmpty(t, gjson.Get(said, "city").Str, said)
					require.True(t, gjson.Valid(said), said)
					require.Equal(t, native, gjson.GetBytes(v.Last().Body, "output_config.format").Exists())
					require.Equal(t, native, !gjson.GetBytes(v.Last().Body, "tool_choice").Exists())
					require.Len(t, client.history, 4, "a question and an answer, twice")
					client.more = ""
					client.say("And thank you.")
					require.Contains(t, string(v.Last().Body), string(must(marshal(said))))
					w.conforms(0)
				})
			}
		}
	}
}

// A chat client's schema is told in words in the same way.
func TestConformanceASchemaToldInWords(t *testing.T) {
	t.Parallel()
	w := knocked(t, deepSeekChat)
	v, g := w.vendors["deepseek-chat"], w.gateway()
	client := g.chat("deepseek-chat")
	client.tools, client.more = false, `,"response_format":`+closedFormat
	for i := range 2 {
		v.Queue(upstreamtest.Reply(upstreamtest.Say(`{"city":"Oslo","n":1}`)))
		require.JSONEq(t, `{"city":"Oslo","n":1}`, client.say("Where is it?"))
		require.Equal(t, 2+i, v.Count(), "one refusal")
	}
	require.Equal(t, "system", gjson.GetBytes(v.Last().Body, "messages.0.role").Str)
}

// A file is a document in the messages dialect.
func TestConformanceFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, claude)
	client := w.gateway().chat("claude-opus-4-8")
	pdf := base64.StdEncoding.EncodeToString([]byte("%PDF-1.4"))
	got := client.send("/v1/chat/completions", []byte(`{"model":"claude-opus-4-8","messages":[{"role":"user","content":[`+
		`{"type":"text","text":"Read this."},{"type":"file","file":{"filename":"a.pdf","file_data":`+
		`"data:application/pdf;base64,`+pdf+`"}},{"type":"file","file":{"file_data":"data:text/csv;base64,YSxi"}}]}]}`))
	require.Equal(t, 200, got.status, got.body)
	require.JSONEq(t, `[{"type":"text","text":"Read this."},{"type":"document","title":"a.pdf","source":{"type":"base64",`+
		`"media_type":"application/pdf","data":"`+pdf+`"}},{"type":"document","source":{"type":"text",`+
		`"media_type":"text/plain","data":"a,b"}}]`,
		gjson.GetBytes(w.vendors["claude"].Last().Body, "messages.0.content").Raw)
	w.conforms(0)
}
