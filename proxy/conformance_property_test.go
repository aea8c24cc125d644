package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
)

// modelOf returns a model that rapid controls.
func modelOf(t *rapid.T) *randomModel { return &randomModel{chooser: rapidChooser{t}} }

// anyDamage returns a damage that rapid chooses for each request.
func anyDamage[M any](t *rapid.T, m *manners, all map[string]func([]M) []M, except ...string) func([]M) []M {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return slices.Contains(except, name)
	})
	return func(history []M) []M {
		m.stream = rapid.Bool().Draw(t, "stream")
		return chain(all[rapid.SampledFrom(names).Draw(t, "damage")])(history)
	}
}

// Property: for any answers of the model and any damage by the client, the conversation continues, the vendor refuses
// nothing, and the thinking of the latest turn is complete.
func TestConformancePropertyDamagedDialogues(t *testing.T) {
	for dialect, vendors := range map[string][]backendCase{"messages": thinkers, "chat": personalities} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				b := rapid.SampledFrom(vendors).Draw(t, "vendor")
				w := newWorld(t, b.told(budgeted))
				client, m := w.gateway().anyClient(dialect, b.model)
				m.within("c1")
				switch c := client.(type) {
				case *messagesClient:
					except := []string{inventedSignatures}
					if b.name == "bound" {
						except = append(except, "first turn forgotten")
					}
					c.damage = anyDamage(t, m, damages, except...)
				case *chatClient:
					c.keeps = rapid.Bool().Draw(t, "keeps")
					// The user's texts stay the same. Ids are renamed always or never.
					const renamed = "ids renamed"
					c.damage = anyDamage(t, m, chatDamages, renamed, "texts padded")
					if rapid.Bool().Draw(t, "renames") {
						c.damage = chain(chatDamages[renamed], c.damage)
					}
				}
				for _, question := range modelOf(t).dialogue(w.vendors[b.name]) {
					client.say(question)
				}
				w.conforms(0)
			})
		})
	}
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
		c.more = `,"metadata":{"user_id":"\u0041"},"stop_sequences":[ "\u0042" ]`
		if b.name == "deepseek" {
			c.thinking, c.more = `{"type":"enabled"}`, `,"unknown":{"z":1.50e+3,"a":[ ]}`
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
	text, thinking, calls string
	all                   string // the blocks of an answer of the messages dialect
	reason, usage, output string
}

func (c *content) call(t require.TestingT, name string, arguments []byte) {
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, arguments))
	c.calls += name + compact.String() + "\n"
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
		c.all += fmt.Sprintln(b.Type, b.Text, b.Thinking, deref(b.Signature) != "", b.Data != "")
		c.text += b.Text
		c.thinking += b.Thinking
		if b.Type == "tool_use" {
			c.call(t, b.Name, b.Input)
		}
	}
	c.reason = lastMember(got.body, "stop_reason")
	c.usage, c.output = lastMember(got.body, "input_tokens"), lastMember(got.body, "output_tokens")
	return c
}

func contentOfChat(t require.TestingT, got answered) (c content) {
	m := readChat(t, got)
	c.text, c.thinking = deref(m.Content), deref(m.Reasoning)
	for _, call := range m.ToolCalls {
		c.call(t, call.Function.Name, []byte(call.Function.Arguments))
	}
	c.reason = lastMember(got.body, "finish_reason")
	c.usage, c.output = lastMember(got.body, "prompt_tokens"), lastMember(got.body, "completion_tokens")
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
		g := w.gateway()
		answer := modelOf(t).answer(rapid.Bool().Draw(t, "last"))
		answer.StopReason = rapid.SampledFrom([]string{"", "max_tokens", "refusal"}).Draw(t, "reason")
		for i := range answer.Blocks {
			answer.Blocks[i].ID = fmt.Sprintf("call_%024d", i)
		}
		w.vendors[b.name].Queue(answer, answer, answer, answer)

		m, c := g.messages("claude-opus-4-8"), g.chat("claude-opus-4-8")
		m.question("Go")
		whole := contentOfMessages(t, m.post())
		m.stream = true
		require.Equal(t, whole, contentOfMessages(t, m.post()))

		c.more = `,"stream_options":{"include_usage":true}`
		c.question("Go")
		chat := contentOfChat(t, c.post())
		c.stream = true
		require.Equal(t, chat, contentOfChat(t, c.post()))

		// Both endpoints return the same content. The mode of thinking is not translated for chat completions.
		require.Equal(t, whole.text, chat.text)
		require.Equal(t, whole.calls, chat.calls)
		if whole.thinking != "" {
			require.Equal(t, whole.thinking, chat.thinking)
			require.Equal(t, whole.output, chat.output)
		}
		w.conforms(0)
	})
}
