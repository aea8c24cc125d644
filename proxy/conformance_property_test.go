package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// modelOf returns a model that rapid controls.
func modelOf(t *rapid.T) *randomModel { return &randomModel{chooser: rapidChooser{t}} }

// Property: for any answers of the model and any damage by the client, the conversation continues, the vendor refuses
// nothing, and the thinking of the latest turn is complete.
func TestConformancePropertyDamagedDialogues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		backend := thinkers[rapid.IntRange(0, len(thinkers)-1).Draw(t, "backend")]
		w := newWorld(t, backend)
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
		for _, question := range modelOf(t).dialogue(w.vendors[backend.name]) {
			c.say(question)
		}
		w.conforms(0)
	})
}

// Property: the same holds for chat clients and vendors that want reasoning back.
func TestConformancePropertyChatDialogues(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(personalities).Draw(t, "vendor")
		w := newWorld(t, p.told(budgeted))
		c := w.gateway().chat(p.model)
		c.within("c1")
		c.keeps = rapid.Bool().Draw(t, "keeps")
		const renamed = "ids renamed"
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(chatDamages)), func(name string) bool {
			return name == renamed || name == "texts padded" // the user's texts stay the same too
		})
		renames := rapid.Bool().Draw(t, "renames") // always or never: an id stays the same
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
		for _, question := range modelOf(t).dialogue(w.vendors[p.name]) {
			c.say(question)
		}
		w.conforms(0)
	})
}

// Property: a request without damage leaves byte for byte as it came.
func TestConformancePropertyFaithfulReplaysLeaveAsTheyCame(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SampledFrom([]backendCase{claude, manual, prefixChecking, deepSeek}).Draw(t, "backend")
		w := newWorld(t, b)
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
		for _, question := range modelOf(t).dialogue(v) {
			c.question(question)
			for calls := 1; calls > 0; {
				calls, _ = c.round()
				require.Equal(t, string(c.sent), string(v.Last().Body))
			}
		}
		require.Equal(t, c.calls, v.Count())
		w.conforms(0)
	})
}

// content is the content of an answer, whole or streamed.
type content struct {
	text, thinking string
	blocks         []string // of the messages dialect
	calls          []string
	reason, usage  string
}

// compact returns a JSON value without spaces.
func compact(t require.TestingT, value []byte) string {
	var out bytes.Buffer
	require.NoError(t, json.Compact(&out, value))
	return out.String()
}

// lastMember returns the last value of a member with this name anywhere in a body, whole or streamed, except null.
func lastMember(body, name string) string {
	found := regexp.MustCompile(`"`+name+`":\s*("\w+"|\d+)`).FindAllStringSubmatch(body, -1)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1][1]
}

func contentOfMessages(t require.TestingT, got answered) (c content) {
	for _, b := range readMessages(t, got) {
		c.blocks = append(c.blocks, fmt.Sprint(b.Type, b.Text, b.Thinking, b.Signature != nil && *b.Signature != "",
			b.Data != ""))
		c.text += b.Text
		c.thinking += b.Thinking
		if b.Type == "tool_use" {
			c.calls = append(c.calls, b.Name+compact(t, b.Input))
		}
	}
	c.reason = lastMember(got.body, "stop_reason")
	c.usage = lastMember(got.body, "input_tokens") + " " + lastMember(got.body, "output_tokens")
	return c
}

func contentOfChat(t require.TestingT, got answered) (c content) {
	m := readChat(t, got)
	if m.Content != nil {
		c.text = *m.Content
	}
	if m.Reasoning != nil {
		c.thinking = *m.Reasoning
	}
	for _, call := range m.ToolCalls {
		c.calls = append(c.calls, call.Function.Name+compact(t, []byte(call.Function.Arguments)))
	}
	c.reason = lastMember(got.body, "finish_reason")
	c.usage = lastMember(got.body, "prompt_tokens") + " " + lastMember(got.body, "completion_tokens")
	return c
}

// Property: in all four directions a stream, cut into any pieces, has the content of the whole answer.
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
		answer := modelOf(t).answer(rapid.Bool().Draw(t, "last"))
		answer.StopReason = rapid.SampledFrom([]string{"", "max_tokens", "refusal"}).Draw(t, "reason")
		for i := range answer.Blocks {
			answer.Blocks[i].ID = fmt.Sprintf("call_%024d", i)
		}
		v.Queue(answer, answer, answer, answer)

		m := g.messages("claude-opus-4-8")
		m.user(textOf("Go"))
		whole := contentOfMessages(t, m.post())
		m.stream = true
		require.Equal(t, whole, contentOfMessages(t, m.post()))

		c := g.chat("claude-opus-4-8")
		c.more = `,"stream_options":{"include_usage":true}`
		c.question("Go")
		chat := contentOfChat(t, c.post())
		c.stream = true
		streamed := contentOfChat(t, c.post())
		require.Equal(t, chat, streamed)

		// Both endpoints return the same content. The mode of thinking is not translated for chat completions.
		require.Equal(t, whole.text, chat.text)
		require.Equal(t, whole.calls, chat.calls)
		if whole.thinking != "" {
			require.Equal(t, whole.thinking, chat.thinking)
			require.Equal(t, whole.usage[strings.Index(whole.usage, " "):], chat.usage[strings.Index(chat.usage, " "):])
		}
		w.conforms(0)
	})
}
