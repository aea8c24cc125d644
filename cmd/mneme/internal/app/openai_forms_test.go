package app_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/upstreamtest"
)

// former is a model that asks the subagent analytic first, and then answers in the form that the request asks for;
// without one in words. As the subagent it answers in words.
func former(r *upstreamtest.Request) *upstreamtest.Answer {
	offers := func(name string) bool {
		return slices.ContainsFunc(r.Tools, func(t upstreamtest.Tool) bool { return t.Name == name })
	}
	b := upstreamtest.Say("Riga, I think.")
	switch {
	case offers("analytic") && len(r.Results) == 0:
		b = upstreamtest.Use("analytic", `{"task":"Which city?"}`)
	case offers("answer_in_json"):
		b = upstreamtest.Use("answer_in_json", `{"city":"Riga"}`)
	case hasForm(r.Body):
		b = upstreamtest.Say(`{"city":"Riga"}`)
	}
	a := upstreamtest.Reply(b)
	if r.Thinking {
		a.Blocks = slices.Insert(a.Blocks, 0, upstreamtest.Think("Which city may it be?"))
	}
	return &a
}

func hasForm(body []byte) bool {
	return slices.ContainsFunc([]string{"response_format", "output_config.format", "text.format"}, func(at string) bool {
		return gjson.GetBytes(body, at).Exists()
	})
}

// refusing refuses in a vendor's words what it is told of.
func refusing(says string, what func(r *upstreamtest.Request) bool) func(*upstreamtest.Request) *upstreamtest.Fault {
	return func(r *upstreamtest.Request) *upstreamtest.Fault {
		if !what(r) {
			return nil
		}
		return &upstreamtest.Fault{Status: 400, Body: `{"error":{"message":"` + says + `","type":"invalid_request_error"}}`}
	}
}

// backed starts mneme with a vendor as its backend.
func backed(t *testing.T, kind, vendor, model string, c upstreamtest.Config) (*upstreamtest.Server, *up) {
	t.Helper()
	v := upstreamtest.New(c)
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	at := server.URL + "/v1"
	if kind == "anthropic" {
		at = server.URL
	}
	return v, start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=v",
		backend("v", kind, at, fmt.Sprintf("vendor: %q", vendor), `model_map: {"*": `+model+`}`))
}

// The form of the answer is asked of every vendor in the way that it takes, beside the tools of the master and of no
// subagent; a vendor that takes none beside tools is asked at a last call without, and one that takes none answers as
// well as it can.
func TestCompletionsHaveAForm(t *testing.T) {
	t.Parallel()
	const object, schema = `{"city":"Riga"}`, `{"type":"json_schema","json_schema":{"name":"city","strict":true,"schema":` +
		`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}}}`
	tools := func(r *upstreamtest.Request) bool { return hasForm(r.Body) && len(r.Tools) > 0 }
	for name, c := range map[string]struct {
		kind, vendor, model string
		config              upstreamtest.Config
		want                string
	}{
		"openai": {"openai", "openai", "gpt-5", upstreamtest.Config{Vendor: upstreamtest.Chat,
			Chat: upstreamtest.ChatRules{OpenAI: true}}, object},
		"responses": {"responses", "openai", "gpt-5", upstreamtest.Config{Vendor: upstreamtest.OpenAI}, object},
		"anthropic": {"anthropic", "anthropic", "claude-opus-4-8", upstreamtest.Config{}, object},
		"kimi":      {"anthropic", "kimi", "kimi-k2.5", upstreamtest.Config{Vendor: upstreamtest.Kimi}, object},
		"glm":       {"anthropic", "glm", "glm-4.7", upstreamtest.Config{Vendor: upstreamtest.GLM}, object},
		"deepseek":  {"openai", "deepseek", "deepseek-chat", upstreamtest.Config{Vendor: upstreamtest.DeepSeek}, object},
		// https://github.com/openai/openai-agents-python/issues/656
		"google": {"openai", "", "gemini-2.5-pro", upstreamtest.Config{Vendor: upstreamtest.Chat,
			Fault: refusing("Function calling with a response mime type: 'application/json' is unsupported", tools)}, object},
		// https://github.com/vercel/ai/pull/16540
		"groq": {"openai", "", "llama", upstreamtest.Config{Vendor: upstreamtest.Chat,
			Fault: refusing("json mode cannot be combined with tool/function calling", tools)}, object},
		"one that takes none": {"openai", "", "m", upstreamtest.Config{Vendor: upstreamtest.Chat,
			Fault: refusing("it cannot be had", func(r *upstreamtest.Request) bool { return hasForm(r.Body) })},
			"Riga, I think."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Answer = former
			v, u := backed(t, c.kind, c.vendor, c.model, c.config)
			for i, form := range []string{schema, `{"type":"json_object"}`} {
				for _, stream := range []bool{false, true} {
					body, err := json.Marshal(map[string]any{"model": "mneme", "stream": stream,
						"response_format": json.RawMessage(form), "messages": []openai.ChatCompletionMessage{user("Which city?")}})
					require.NoError(t, err)
					chat := strings.ReplaceAll(name, " ", "-") + string(rune('a'+i))
					status, answer := u.request("POST", "/c/"+chat+"/v1/chat/completions", "application/json", string(body))
					require.Equal(t, 200, status, answer)
					said := gjson.Get(answer, "choices.0.message.content").Str
					if stream {
						said = ""
						for line := range strings.Lines(answer) {
							said += gjson.Get(strings.TrimPrefix(line, "data: "), "choices.0.delta.content").Str
						}
					}
					require.Equal(t, c.want, said, form)
				}
			}
			subagents := 0
			for _, r := range v.Requests() {
				if !strings.Contains(string(r.Body), `"analytic"`) && len(r.Results) == 0 {
					subagents++
					require.False(t, hasForm(r.Body), string(r.Body))
				}
			}
			require.Positive(t, subagents)
			if refused := v.Rejections(); name != "deepseek" || len(refused) != 1 { // what the gateway has learnt by
				require.Empty(t, refused)
			}
		})
	}
}

// A tool of the client's that has to be called is: at the first call of a run, whatever the vendor.
func TestCompletionsForceAClientsTool(t *testing.T) {
	t.Parallel()
	lazy := func(r *upstreamtest.Request) *upstreamtest.Answer {
		b := upstreamtest.Say("No need.")
		choice := gjson.GetBytes(r.Body, "tool_choice")
		forced := choice.Get("function.name").Str + choice.Get("name").Str
		if choice.Str == "required" || choice.Get("type").Str == "any" {
			forced = r.Tools[len(r.Tools)-1].Name
		}
		if forced != "" {
			b = upstreamtest.Use(forced, `{}`)
		}
		a := upstreamtest.Reply(b)
		return &a
	}
	tools := func(names ...string) (all []openai.Tool) {
		for _, name := range names {
			all = append(all, openai.Tool{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: name,
				Parameters: json.RawMessage(`{"type":"object","properties":{}}`)}})
		}
		return all
	}
	named := func(name string) openai.ToolChoice {
		return openai.ToolChoice{Type: openai.ToolTypeFunction, Function: openai.ToolFunction{Name: name}}
	}
	for name, c := range map[string]struct {
		kind, vendor, model string
		config              upstreamtest.Config
		obeys               bool
	}{
		"openai": {"openai", "openai", "gpt-5", upstreamtest.Config{Vendor: upstreamtest.Chat,
			Chat: upstreamtest.ChatRules{OpenAI: true}}, true},
		"anthropic": {"anthropic", "anthropic", "claude-opus-4-8", upstreamtest.Config{}, true},
		"one that takes none": {"openai", "", "m", upstreamtest.Config{Vendor: upstreamtest.Chat,
			Fault: refusing("it cannot be had", func(r *upstreamtest.Request) bool {
				return gjson.GetBytes(r.Body, "tool_choice").Exists()
			})}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Answer = lazy
			_, u := backed(t, c.kind, c.vendor, c.model, c.config)
			for chat, asked := range map[string]struct {
				choice any
				tools  []openai.Tool
				want   string
			}{
				"named":           {named("light"), tools("light", "door"), "light"},
				"required":        {"required", tools("light", "door"), "door"},
				"required of one": {"required", tools("light"), "light"},
				"none":            {"none", tools("light"), ""},
				"auto":            {"auto", tools("light"), ""},
				"a subagent":      {named("analytic"), tools("light"), ""},
			} {
				client := u.completions(strings.ReplaceAll(chat, " ", "-"))
				request := openai.ChatCompletionRequest{Model: "mneme", Tools: asked.tools, ToolChoice: asked.choice,
					Messages: []openai.ChatCompletionMessage{user("Is it dark?")}}
				got, err := client.CreateChatCompletion(t.Context(), request)
				require.NoError(t, err, chat)
				said := got.Choices[0].Message
				if asked.want == "" || !c.obeys {
					require.Empty(t, said.ToolCalls, chat)
					require.Equal(t, "No need.", said.Content, chat)
					continue
				}
				require.Len(t, said.ToolCalls, 1, chat)
				require.Equal(t, asked.want, said.ToolCalls[0].Function.Name, chat)
				request.Messages = append(request.Messages, said, openai.ChatCompletionMessage{Role: "tool",
					ToolCallID: said.ToolCalls[0].ID, Content: "it shines"})
				got, err = client.CreateChatCompletion(t.Context(), request)
				require.NoError(t, err, chat)
				require.Equal(t, "No need.", got.Choices[0].Message.Content, "it is asked for once")
			}
		})
	}
}
