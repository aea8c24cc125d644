package upstreamtest_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/proxy/wire"
)

var everything = upstreamtest.Reply(upstreamtest.Think("I think slowly, écoutez."), upstreamtest.Omitted(),
	upstreamtest.Redacted(),
	upstreamtest.Say("Let me look at it."), upstreamtest.Use("weather", `{"city":"Århus","days":3}`),
	upstreamtest.Use("weather", `{}`))

// events are the events of a stream, by name and data.
func events(t tester, stream string) (names []string, data []gjson.Result) {
	frames := wire.NewFrameReader(strings.NewReader(stream))
	for {
		f, err := frames.Next()
		if err != nil {
			return names, data
		}
		name, _, _ := bytes.Cut(bytes.TrimPrefix(f.Raw, []byte("event: ")), []byte("\n"))
		names, data = append(names, string(name)), append(data, gjson.ParseBytes(f.Data))
	}
}

func TestMessagesStream(t *testing.T) {
	v := upstreamtest.New(upstreamtest.Config{Stream: upstreamtest.StreamOptions{Chunk: 5}})
	v.Queue(everything)
	w := post(t, v, "/v1/messages", "{"+opusMembers("")+`,"stream":true,"messages":[`+ask+`]}`)
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	names, data := events(t, w.Body.String())
	require.Equal(t, "message_start", names[0])
	require.Equal(t, `[]`, data[0].Get("message.content").Raw)
	require.Equal(t, "null", data[0].Get("message.stop_reason").Raw)
	require.Equal(t, []string{"message_delta", "message_stop"}, names[len(names)-2:])
	require.Equal(t, "tool_use", data[len(data)-2].Get("delta.stop_reason").String())
	require.Positive(t, data[len(data)-2].Get("usage.output_tokens").Int())
	require.Contains(t, names, "ping")

	var kinds []string // the events, pings and repetitions left out
	for i, d := range data {
		require.Equal(t, names[i], d.Get("type").String())
		kind := strings.TrimPrefix(d.Get("type").String()+" "+d.Get("content_block.type").String()+
			d.Get("delta.type").String(), "content_block_")
		if names[i] != "ping" && (len(kinds) == 0 || kinds[len(kinds)-1] != kind || strings.Contains(kind, "signature")) {
			kinds = append(kinds, kind)
		}
	}
	require.Equal(t, []string{
		"message_start ",
		"start thinking", "delta thinking_delta", "delta signature_delta", "stop ",
		"start thinking", "delta signature_delta", "stop ",
		"start redacted_thinking", "stop ",
		"start text", "delta text_delta", "stop ",
		"start tool_use", "delta input_json_delta", "stop ",
		"start tool_use", "delta input_json_delta", "stop ",
		"message_delta ", "message_stop ",
	}, kinds)
	require.Contains(t, w.Body.String(), `"content_block":{"type":"thinking","thinking":"","signature":""}`)
	require.Regexp(t, `"content_block":\{"type":"redacted_thinking","data":"E[^"]{300,}"`, w.Body.String())
	for _, d := range data {
		require.LessOrEqual(t, len([]rune(d.Get("delta.thinking").String()+d.Get("delta.text").String())), 5)
	}
}

// A stream that is put together says what the JSON answer says.
func TestStreamsEqualAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vendor := rapid.SampledFrom([]upstreamtest.Vendor{upstreamtest.Anthropic, upstreamtest.Kimi, upstreamtest.DeepSeek,
			upstreamtest.Chat}).Draw(t, "vendor")
		v := upstreamtest.New(upstreamtest.Config{Vendor: vendor, Stream: upstreamtest.StreamOptions{
			Chunk: rapid.IntRange(0, 7).Draw(t, "chunk"), Split: rapid.IntRange(0, 50).Draw(t, "split"),
		}})
		said := upstreamtest.Reply(rapid.SliceOfN(blocks, 0, 5).Draw(t, "blocks")...)
		v.Queue(said, said)
		if vendor != upstreamtest.Chat {
			members := `{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2000},` + weather +
				`,"messages":[` + ask + `]`
			whole := post(t, v, "/v1/messages", members+"}").Body.String()
			streamed := assembled(t, post(t, v, "/v1/messages", members+`,"stream":true}`).Body.Bytes())
			for _, path := range []string{"content.#.type", "content.#.text", "content.#.thinking", "content.#.input",
				"stop_reason", "usage.output_tokens"} {
				require.JSONEq(t, gjson.Get(whole, path).Raw, gjson.Get(streamed, path).Raw, path)
			}
			v.Queue(said, said)
		}
		if vendor == upstreamtest.Anthropic {
			return
		}
		members := `{"model":"m","reasoning_effort":"low","messages":[` + ask + `]`
		whole := gjson.Get(post(t, v, "/v1/chat/completions", members+"}").Body.String(), "choices.0")
		text, reasoning, calls,
			finish := joinedChat(t, post(t, v, "/v1/chat/completions", members+`,"stream":true}`).Body.String())
		require.Equal(t, whole.Get("message.content").String(), text)
		require.Equal(t, whole.Get("message.reasoning_content").String(), reasoning)
		require.Equal(t, whole.Get("finish_reason").String(), finish)
		var want []string
		for _, c := range whole.Get("message.tool_calls").Array() {
			want = append(want, c.Get("function.name").String()+c.Get("function.arguments").String())
		}
		require.Equal(t, want, calls)
	})
}

// joinedChat puts a stream of chunks together.
func joinedChat(t tester, stream string) (text, reasoning string, calls []string, finish string) {
	_, data := events(t, stream)
	require.True(t, strings.HasSuffix(stream, "[DONE]\n\n"))
	for _, d := range data {
		delta := d.Get("choices.0.delta")
		text += delta.Get("content").String()
		reasoning += delta.Get("reasoning_content").String()
		for _, c := range delta.Get("tool_calls").Array() {
			i := int(c.Get("index").Int())
			calls = append(calls, make([]string, max(0, i+1-len(calls)))...)
			calls[i] += c.Get("function.name").String() + c.Get("function.arguments").String()
		}
		finish += d.Get("choices.0.finish_reason").String()
	}
	return text, reasoning, calls, finish
}

func TestVendorsOwnWays(t *testing.T) {
	kimi := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Kimi})
	kimi.Queue(everything, everything, everything)
	streamed := post(t, kimi, "/v1/messages", one+`,"stream":true}`).Body.String()
	require.Contains(t, streamed, "\ndata:{", "no space")
	require.NotContains(t, streamed, "data: ")
	_, data := events(t, streamed)
	i := slices.IndexFunc(data, func(d gjson.Result) bool { return d.Get("delta.signature").Exists() })
	require.Len(t, data[i].Get("delta.signature").String(), 4340)
	whole := post(t, kimi, "/v1/messages", messages(ask)).Body.String()
	require.Len(t, gjson.Get(whole, "content.0.signature").String(), 12946)
	require.Equal(t, `["tool_0","tool_1"]`, gjson.Get(whole, `content.#(type=="tool_use")#.id`).Raw)
	require.Empty(t, gjson.Get(whole, `content.#(type=="redacted_thinking")`).Raw)
	chatted := post(t, kimi, "/v1/chat/completions", chat(ask)).Body.String()
	require.Equal(t, `["functions.weather:0","functions.weather:1"]`,
		gjson.Get(chatted, "choices.0.message.tool_calls.#.id").Raw)

	deep := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.DeepSeek})
	deep.Queue(everything, everything)
	require.NotContains(t, post(t, deep, "/v1/messages", messages(ask)).Body.String(), "signature")
	require.NotContains(t, post(t, deep, "/v1/messages", one+`,"stream":true}`).Body.String(), "signature")

	mistral := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Chat: upstreamtest.ChatRules{
		ToolIDs: upstreamtest.MistralIDs, ReasoningField: "reasoning",
	}})
	mistral.Queue(everything, everything)
	ids := gjson.Get(post(t, mistral, "/v1/chat/completions", chat(ask)).Body.String(),
		"choices.0.message.tool_calls.#.id").Array()
	require.Len(t, ids, 2)
	require.Regexp(t, "^[A-Za-z0-9]{9}$", ids[0].String())
	body := post(t, mistral, "/v1/chat/completions",
		strings.Replace(chat(ask), "{", `{"reasoning_effort":"low","stream":true,"stream_options":{"include_usage":true},`,
			1)).Body.String()
	require.Contains(t, body, `"delta":{"reasoning":"I think slow`)
	require.Regexp(t,
		`"choices":\[\],"usage":\{"prompt_tokens":\d+,"completion_tokens":\d+,"total_tokens":\d+\}\}\n\ndata: \[DONE\]\n\n$`,
		body)
}

// A faithful client of the vendors that want reasoning back is never refused, in
// either dialect.
func TestFaithfulReplayElsewhere(t *testing.T) {
	for _, vendor := range []upstreamtest.Vendor{upstreamtest.Kimi, upstreamtest.DeepSeek} {
		v := upstreamtest.New(upstreamtest.Config{Vendor: vendor})
		a := &agent{t: t, v: v, members: `"model":"m","max_tokens":10,` + weather}
		var talk []string
		for i := range 4 {
			question := fmt.Sprintf("use the tool, %d", i)
			a.ask(question)
			for {
				status, body := a.send()
				require.Equal(t, 200, status, body)
				if !a.answerCalls() {
					break
				}
				a.stream = !a.stream
			}
			talk = append(talk, says("user", fmt.Sprintf("%q", question)))
			for calling := true; calling; {
				body := post(t, v, "/v1/chat/completions",
					`{"model":"m","tools":[{"type":"function","function":{"name":"weather"}}],"messages":[`+strings.Join(talk, ",")+
						`]}`).Body.String()
				answer := gjson.Get(body, "choices.0.message")
				require.True(t, answer.Exists(), body)
				talk = append(talk, answer.Raw)
				calling = answer.Get("tool_calls").Exists()
				for _, id := range answer.Get("tool_calls.#.id").Array() {
					talk = append(talk, result(id.String()))
				}
			}
		}
		require.Len(t, a.messages, 16)
		require.Len(t, talk, 16)
	}
}
