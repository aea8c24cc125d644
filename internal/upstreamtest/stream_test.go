package upstreamtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// everything is an answer with each kind of block.
var everything = Reply(Think("I think slowly, écoutez."), Omitted(), Redacted(), Say("Let me look at it."),
	Use("weather", `{"city":"Århus","days":3}`), Use("weather", `{}`))

// An assembled stream equals the JSON answer.
func TestStreamsEqualAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vendor := rapid.SampledFrom([]Vendor{Anthropic, Kimi, DeepSeek, Chat}).Draw(t, "vendor")
		v := New(Config{Vendor: vendor, Stream: StreamOptions{
			Chunk: rapid.IntRange(0, 7).Draw(t, "chunk"), Split: rapid.IntRange(0, 50).Draw(t, "split"),
		}})
		reply := Reply(rapid.SliceOfN(blocks, 0, 5).Draw(t, "blocks")...)
		if vendor != Chat {
			v.Queue(reply, reply)
			whole := ok(t, v, "/v1/messages", msg("m", enabled+","+weather))
			streamed := assembled(t, []byte(ok(t, v, "/v1/messages", msg("m", enabled+","+weather+`,"stream":true`))))
			for _, path := range []string{"content.#.type", "content.#.text", "content.#.thinking", "content.#.input",
				"stop_reason", "usage.output_tokens"} {
				require.JSONEq(t, gjson.Get(whole, path).Raw, gjson.Get(streamed, path).Raw, path)
			}
		}
		if vendor == Anthropic {
			return
		}
		v.Queue(reply, reply)
		whole := gjson.Get(ok(t, v, "/v1/chat/completions", chat("m", `"reasoning_effort":"low"`)), "choices.0")
		stream := ok(t, v, "/v1/chat/completions", chat("m", `"reasoning_effort":"low","stream":true`))
		text, reasoning, calls, finish := joinedChat(t, stream)
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

// joinedChat assembles a stream of chat completions.
func joinedChat(t tester, stream string) (text, reasoning string, calls []string, finish string) {
	chunks, done := strings.CutSuffix(stream, "[DONE]\n\n")
	require.True(t, done)
	for chunk := range strings.SplitSeq(chunks, "\n\n") {
		d := gjson.Parse(strings.TrimPrefix(chunk, "data:"))
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

// Kimi's signatures have another length in streams.
func TestLengthsOfSignatures(t *testing.T) {
	for stream, length := range map[string]int{"false": 12946, "true": 4340} {
		v := New(Config{Vendor: Kimi})
		v.Queue(everything)
		body := ok(t, v, "/v1/messages", msg("m", `"stream":`+stream))
		if v.Last().Stream {
			body = assembled(t, []byte(body))
			require.Equal(t, `["tool_0","tool_1"]`, gjson.Get(body, `content.#(type=="tool_use")#.id`).Raw)
		}
		require.Len(t, gjson.Get(body, "content.0.signature").Str, length)
	}
}

// Vendors that require reasoning never refuse a faithful client, in either dialect.
func TestFaithfulReplayElsewhere(t *testing.T) {
	for _, vendor := range []Vendor{Kimi, DeepSeek} {
		v := New(Config{Vendor: vendor})
		a := &agent{t: t, v: v, members: `"model":"m","max_tokens":10,` + weather}
		var talk []string
		for i := range 4 {
			text := fmt.Sprintf("use the tool, %d", i)
			a.ask(text)
			for a.send(); a.answerCalls(); a.send() {
				a.stream = !a.stream
			}
			talk = append(talk, message(user, fmt.Sprintf("%q", text)))
			for calling := true; calling; {
				answer := gjson.Get(ok(t, v, "/v1/chat/completions", chat("m", function(""), talk...)), "choices.0.message")
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
