package proxy_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/responsestest"
	"mneme/internal/upstreamtest"
	"mneme/proxy"
)

const pixelURL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4////fwAJ" +
	"+wP9KobjigAAAABJRU5ErkJggg=="

const weatherTool = `"tools":[{"type":"function","name":"get_weather","description":"The weather in a location",
	"parameters":{"type":"object","properties":{"location":{"type":"string"}},"required":["location"]}}]`

// The tests of Open Responses' own suite, by their names there. Says is what the answer must hold; reaches, as a path
// and its value, what the vendor must have been asked, by dialect.
var compliance = []struct {
	name, members string
	stream        bool
	answer        upstreamtest.Block
	item          string // a type that the output must have
	reaches       map[string][2]string
	offline       bool // the offline model can do it
}{
	{
		name: "basic-response", item: "message", answer: upstreamtest.Say("Hello there, friend."), offline: true,
		members: `"input":[{"type":"message","role":"user","content":"Say hello in exactly 3 words."}]`,
	},
	{
		name: "streaming-response", stream: true, item: "message", answer: upstreamtest.Say("1, 2, 3, 4, 5."), offline: true,
		members: `"input":[{"type":"message","role":"user","content":"Count from 1 to 5."}]`,
	},
	{
		name: "system-prompt", item: "message", answer: upstreamtest.Say("Ahoy!"), offline: true,
		members: `"input":[{"type":"message","role":"system","content":"You are a pirate."},
			{"type":"message","role":"user","content":"Say hello."}]`,
		reaches: map[string][2]string{"messages": {"system.0.text", "You are a pirate."},
			"chat": {`messages.#(role=="system").content`, "You are a pirate."}},
	},
	{
		name: "tool-calling", item: "function_call", answer: upstreamtest.Use("get_weather", `{"location":"San Francisco"}`),
		members: `"input":[{"type":"message","role":"user","content":"The weather in San Francisco?"}],` + weatherTool,
		reaches: map[string][2]string{"messages": {"tools.0.name", "get_weather"},
			"chat": {"tools.0.function.name", "get_weather"}},
	},
	{
		name: "tool-calling-streaming", stream: true, item: "function_call",
		answer:  upstreamtest.Use("get_weather", `{"location":"San Francisco"}`),
		members: `"input":[{"type":"message","role":"user","content":"The weather in San Francisco?"}],` + weatherTool,
		reaches: map[string][2]string{"messages": {"tools.0.name", "get_weather"},
			"chat": {"tools.0.function.name", "get_weather"}},
	},
	{
		name: "image-input", item: "message", answer: upstreamtest.Say("A white pixel."),
		members: `"input":[{"type":"message","role":"user","content":[
			{"type":"input_text","text":"What do you see in this image?"},
			{"type":"input_image","image_url":"` + pixelURL + `"}]}]`,
		reaches: map[string][2]string{"messages": {"messages.0.content.1.source.media_type", "image/png"},
			"chat": {"messages.0.content.1.image_url.url", pixelURL}},
	},
	{
		name: "multi-turn", item: "message", answer: upstreamtest.Say("Your name is Alice."), offline: true,
		members: `"input":[{"type":"message","role":"user","content":"My name is Alice."},
			{"type":"message","role":"assistant","content":"Hello Alice! Nice to meet you."},
			{"type":"message","role":"user","content":"What is my name?"}]`,
		reaches: map[string][2]string{"messages": {"messages.1.content.0.text", "Hello Alice! Nice to meet you."},
			"chat": {"messages.1.content", "Hello Alice! Nice to meet you."}},
	},
}

// complies asks one of the suite's questions and checks what came: each event and the whole response.
func complies(t *testing.T, url, model, members string, stream bool, item string) responsestest.Object {
	got := post(t, url+"/v1/responses", fmt.Sprintf(`{"model":%q,"stream":%t,%s}`, model, stream, members))
	require.Equal(t, 200, got.status, got.body)
	var r responsestest.Object
	if stream {
		r = responsestest.Assemble(t, got.body)
	} else {
		require.NoError(t, json.Unmarshal([]byte(got.body), &r))
		responsestest.Response(t, r)
	}
	require.Equal(t, "completed", r["status"])
	require.Equal(t, model, r["model"])
	types := map[any]bool{}
	for _, it := range r["output"].([]any) {
		types[it.(responsestest.Object)["type"]] = true
	}
	require.True(t, types[item], "an item of type %s is missing", item)
	return r
}

func TestOpenResponsesCompliance(t *testing.T) {
	t.Parallel()
	for _, c := range compliance {
		for dialect, b := range map[string]backendCase{"messages": claude, "chat": kimiChat} {
			t.Run(c.name+", "+dialect, func(t *testing.T) {
				w := newWorld(t, b)
				v := w.vendors[b.name]
				v.Queue(upstreamtest.Reply(c.answer))
				r := complies(t, w.gateway().url, "claude-opus-4-8", c.members, c.stream, c.item)
				require.NotNil(t, r["usage"])
				if at := c.reaches[dialect]; at[0] != "" {
					require.Equal(t, at[1], gjson.GetBytes(v.Last().Body, at[0]).Str, "%s", v.Last().Body)
				}
				if output, err := json.Marshal(r["output"]); c.answer.Text != "" {
					require.NoError(t, err)
					require.Contains(t, string(output), c.answer.Text)
				}
				w.conforms(0)
			})
		}
		if c.offline {
			t.Run(c.name+", offline", func(t *testing.T) {
				url, _ := gateway(t, proxy.Config{Backends: map[string]proxy.BackendConfig{"v": {Kind: proxy.KindOffline}}})
				complies(t, url, "any", c.members, c.stream, c.item)
			})
		}
	}
}
