package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// words are texts that are hard to hand on: escapes, characters outside of the
// basic plane, what looks like the wire's own. They are told apart by a number.
func words(t *rapid.T, n *int) string {
	*n++
	return fmt.Sprint(rapid.SampledFrom([]string{
		"so", " leading", "two\n\nlines\r\n", "\"quoted\" \\ and \u2028", "data: {\"type\":\"error\"}\n\n", "жизнь",
		"👩‍👩‍👧 and 漢字", "<b>&amp;</b>", "\t",
	}).Draw(t, "text"), *n, rapid.SampledFrom([]string{"", "!", " \n"}).Draw(t, "end"))
}

// anyAnswer begins with thinking, as an answer of a model that thinks does.
func anyAnswer(t *rapid.T, n *int, last bool) upstreamtest.Answer {
	blocks := []upstreamtest.Block{upstreamtest.Think(words(t, n))}
	for range rapid.IntRange(0, 3).Draw(t, "blocks") {
		blocks = append(blocks, rapid.SampledFrom([]upstreamtest.Block{
			upstreamtest.Redacted(), upstreamtest.Omitted(), upstreamtest.Think(words(t, n)), upstreamtest.Say(words(t, n)),
		}).Draw(t, "block"))
	}
	if last {
		return upstreamtest.Reply(append(blocks, upstreamtest.Say(words(t, n)))...)
	}
	for range rapid.IntRange(1, 3).Draw(t, "calls") {
		input, _ := json.Marshal(map[string]string{"q": words(t, n)})
		blocks = append(blocks, upstreamtest.Use("look", rapid.SampledFrom([]string{
			string(input), "{}", `{"q":1.50e+3,"deep":[{"type":"thinking"},null,true]}`, fmt.Sprintf(`{ "n" : %d }`, *n),
		}).Draw(t, "input")))
	}
	return upstreamtest.Reply(blocks...)
}

// anyDialogue queues the answers of some turns and gives what the user says.
func anyDialogue(t *rapid.T, v *upstreamtest.Server) (said []string) {
	n := 0
	for range rapid.IntRange(1, 4).Draw(t, "turns") {
		for range rapid.IntRange(0, 2).Draw(t, "rounds") {
			v.Queue(anyAnswer(t, &n, false))
		}
		v.Queue(anyAnswer(t, &n, true))
		said = append(said, rapid.SampledFrom([]string{"yes", "and then?", "жизнь"}).Draw(t, "said"))
	}
	return said
}

// Property: whatever the model says and however a client damages its history, the
// conversation goes on, no vendor refuses anything, and what the model thought in
// the latest turn is there.
func TestConformancePropertyDamagedDialogues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		backend := thinkers[rapid.IntRange(0, len(thinkers)-1).Draw(t, "backend")]
		w := newWorld(t, backend.of)
		c := w.gateway().messages(backend.model)
		c.within("c1")
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(damages)), func(name string) bool {
			return proofs[name] || name == "first turn forgotten" && backend.name == "bound"
		})
		c.damage = func(history []message) []message {
			c.stream = rapid.Bool().Draw(t, "stream")
			if damage := damages[rapid.SampledFrom(names).Draw(t, "damage")]; damage != nil {
				return damage(history)
			}
			return history
		}
		for _, said := range anyDialogue(t, w.vendors[backend.of.name]) {
			c.say(said)
		}
		w.conforms(0)
	})
}

// Property: the same for chat clients, on vendors that want reasoning back.
func TestConformancePropertyChatDialogues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(personalities).Draw(t, "vendor")
		w := newWorld(t, p.backendCase)
		c := w.gateway().chat(p.model)
		c.within("c1")
		c.keeps = rapid.Bool().Draw(t, "keeps")
		const renamed = "ids renamed"
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(chatDamages)), func(name string) bool { return name == renamed })
		renames := rapid.Bool().Draw(t, "renames") // always or never: what was called so once stays so
		c.damage = func(history []chatMessage) []chatMessage {
			c.stream = rapid.Bool().Draw(t, "stream")
			if renames {
				history = chatDamages[renamed](history)
			}
			if damage := chatDamages[rapid.SampledFrom(names).Draw(t, "damage")]; damage != nil {
				return damage(history)
			}
			return history
		}
		for _, said := range anyDialogue(t, w.vendors[p.name]) {
			c.say(said)
		}
		w.conforms(0)
	})
}

// Property: with nothing to do a request leaves byte for byte as it came.
func TestConformancePropertyFaithfulReplaysLeaveAsTheyCame(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom([]struct {
			backendCase
			model string
		}{{claude, "claude-opus-4-8"}, {claude, "claude-sonnet-4-5"}, {prefixChecking, "claude-opus-5-5"},
			{deepSeek, "deepseek-reasoner"}}).Draw(t, "backend")
		w := newWorld(t, b.backendCase)
		v := w.vendors[b.name]
		c := w.gateway().messages(b.model)
		if b.name == "deepseek" {
			c.thinking = `{"type":"enabled"}`
		}
		c.more = `,"unknown":{"z":1.50e+3,"a":[ ]}`
		if b.name != "deepseek" {
			c.more = `,"metadata":{"user_id":"\u0041"},"stop_sequences":[ "\u0042" ]`
		}
		if rapid.Bool().Draw(t, "named") {
			c.within("c1")
		}
		c.damage = func(history []message) []message {
			c.stream = rapid.Bool().Draw(t, "stream")
			for i := range history {
				history[i].plain = rapid.Bool().Draw(t, "plain") && history[i].role == "user"
			}
			return history
		}
		for _, said := range anyDialogue(t, v) {
			c.say(said)
		}
		require.Len(t, v.Requests(), len(c.requests))
		for i, r := range v.Requests() {
			require.Equal(t, string(c.requests[i]), string(r.Body))
		}
		w.conforms(0)
	})
}

// told is what an answer says, however it came.
type told struct {
	text, thinking string
	blocks         []string // of the messages dialect
	calls          []string
	reason         string
	in, out        int64
}

// compact is a value without its spaces, which say nothing.
func compact(t require.TestingT, value []byte) string {
	var out bytes.Buffer
	require.NoError(t, json.Compact(&out, value))
	return out.String()
}

func toldInMessages(t require.TestingT, got answered) (a told) {
	for _, b := range readMessages(t, got) {
		a.blocks = append(a.blocks, fmt.Sprint(b.Type, b.Text, b.Thinking, b.Signature != nil && *b.Signature != "",
			b.Data != ""))
		a.text += b.Text
		a.thinking += b.Thinking
		if b.Type == "tool_use" {
			a.calls = append(a.calls, b.Name+compact(t, b.Input))
		}
	}
	if !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") {
		a.reason = gjson.Get(got.body, "stop_reason").Str
		a.in, a.out = gjson.Get(got.body, "usage.input_tokens").Int(), gjson.Get(got.body, "usage.output_tokens").Int()
		return a
	}
	for data := range events(t, got.body) {
		for _, usage := range []string{"message.usage", "usage"} {
			if n := gjson.GetBytes(data, usage+".input_tokens"); n.Exists() {
				a.in = n.Int()
			}
			if n := gjson.GetBytes(data, usage+".output_tokens"); n.Exists() {
				a.out = n.Int()
			}
		}
		if r := gjson.GetBytes(data, "delta.stop_reason"); r.Str != "" {
			a.reason = r.Str
		}
	}
	return a
}

func toldInChat(t require.TestingT, got answered) (a told) {
	m := readChat(t, got)
	if m.Content != nil {
		a.text = *m.Content
	}
	if m.Reasoning != nil {
		a.thinking = *m.Reasoning
	}
	for _, c := range m.ToolCalls {
		a.calls = append(a.calls, c.Function.Name+compact(t, []byte(c.Function.Arguments)))
	}
	read := func(body []byte) {
		if r := gjson.GetBytes(body, "choices.0.finish_reason"); r.Str != "" {
			a.reason = r.Str
		}
		if u := gjson.GetBytes(body, "usage"); u.IsObject() {
			a.in, a.out = u.Get("prompt_tokens").Int(), u.Get("completion_tokens").Int()
		}
	}
	if !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream") {
		read([]byte(got.body))
		return a
	}
	for data := range events(t, got.body) {
		read(data)
	}
	return a
}

// Property: in all four directions a stream, in whatever pieces it came, says what
// the answer says that was not streamed.
func TestConformancePropertyStreamsSayWhatBodiesSay(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom([]backendCase{claude.told(budgeted), kimi.told(budgeted), deepSeek.told(budgeted), kimiChat,
			deepSeekChat,
			chatVendor("openrouter", "generic", upstreamtest.ChatRules{ReasoningField: "reasoning"})}).Draw(t, "backend")
		b.vendor.Stream = upstreamtest.StreamOptions{Chunk: rapid.IntRange(1, 20).Draw(t, "chunk"),
			Split: rapid.SampledFrom([]int{0, 1, 3, 50}).Draw(t, "split")}
		w := newWorld(t, b)
		v := w.vendors[b.name]
		g := w.gateway()
		n := 0
		answer := anyAnswer(t, &n, rapid.Bool().Draw(t, "last"))
		answer.StopReason = rapid.SampledFrom([]string{"", "max_tokens", "refusal"}).Draw(t, "reason")
		for i := range answer.Blocks {
			answer.Blocks[i].ID = fmt.Sprintf("call_%024d", i)
		}
		v.Queue(answer, answer, answer, answer)

		m := g.messages("claude-opus-4-8")
		m.user(textOf("Go"))
		whole := toldInMessages(t, m.post())
		m.stream = true
		require.Equal(t, whole, toldInMessages(t, m.post()))

		c := g.chat("claude-opus-4-8")
		c.more = `,"stream_options":{"include_usage":true}`
		c.user("Go")
		chat := toldInChat(t, c.post())
		c.stream = true
		streamed := toldInChat(t, c.post())
		require.Equal(t, chat, streamed)

		// Both endpoints say the same, apart from the words of the dialect. How to ask for
		// thinking is not translated for chat completions.
		require.Equal(t, whole.text, chat.text)
		require.Equal(t, whole.calls, chat.calls)
		if whole.thinking != "" {
			require.Equal(t, whole.thinking, chat.thinking)
			require.Equal(t, whole.out, chat.out)
		}
		w.conforms(0)
	})
}
