package proxy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// answers is a damage that changes the content of each message of the assistant.
func answers(change func([]block) []block) func([]message) []message {
	return func(history []message) []message {
		for i, m := range history {
			if m.role == "assistant" {
				history[i].content = change(m.content)
			}
		}
		return history
	}
}

// thoughts is a damage that changes each thinking block.
func thoughts(change func(*block)) func([]message) []message {
	return answers(func(content []block) []block {
		for i := range content {
			if content[i].thinks() {
				change(&content[i])
			}
		}
		return content
	})
}

func withoutThinking(content []block) []block { return slices.DeleteFunc(content, block.thinks) }

// damages are what clients do to answers that they send back, by name.
var damages = map[string]func([]message) []message{
	"nothing": nil,
	// SDKs and frameworks that do not know the type.
	"thinking dropped": answers(withoutThinking),
	// Frameworks that trim every string.
	"thinking trimmed":   thoughts(func(b *block) { b.Thinking = strings.TrimSpace(b.Thinking) }),
	"thinking shortened": thoughts(func(b *block) { b.Thinking = b.Thinking[:min(len(b.Thinking), 5)] }),
	"thinking emptied":   thoughts(func(b *block) { b.Thinking = "" }),
	// Parsers that ignore signature_delta: the commonest source of unsigned blocks.
	"signatures dropped": thoughts(func(b *block) { b.Signature, b.Data = nil, "" }),
	"signatures emptied": thoughts(func(b *block) { b.Signature, b.Data = new(string), "" }),
	// Gateways that stamp an invented signature on every block.
	"signatures invented": thoughts(func(b *block) { b.Signature = pointer("EqQBCkgIARABGAIiQInvented") }),
	// Stores that write one signature for all blocks.
	"signatures of another block": func(history []message) []message {
		var first *string
		return thoughts(func(b *block) {
			if first == nil {
				first = b.Signature
			}
			b.Signature = first
		})(history)
	},
	"thinking last": answers(func(content []block) []block {
		return append(withoutThinking(slices.Clone(content)),
			slices.DeleteFunc(content, func(b block) bool { return !b.thinks() })...)
	}),
	"thinking reversed": answers(func(content []block) []block {
		var reversed []block
		for _, b := range content {
			if b.thinks() {
				reversed = append([]block{b}, reversed...)
			}
		}
		for i, b := range content {
			if b.thinks() {
				content[i], reversed = reversed[0], reversed[1:]
			}
		}
		return content
	}),
	"thinking doubled": answers(func(content []block) []block {
		var out []block
		for _, b := range content {
			out = append(out, b)
			if b.thinks() {
				out = append(out, b)
			}
		}
		return out
	}),
	// Stores that keep one field of thinking for each answer.
	"thinking merged": answers(func(content []block) []block {
		merged := block{Type: "thinking"}
		for _, b := range content {
			if b.thinks() {
				merged.Thinking += b.Thinking
				merged.Signature = b.Signature
			}
		}
		if merged.Signature == nil {
			return content
		}
		return append([]block{merged}, withoutThinking(content)...)
	}),
	// Chat front ends that show thinking as text.
	"thinking as text": answers(func(content []block) []block {
		var out []block
		for _, b := range content {
			if b.Type == "thinking" {
				b = textOf("<think>" + b.Thinking + "</think>")
			}
			if !b.thinks() {
				out = append(out, b)
			}
		}
		return out
	}),
	"redacted dropped": answers(func(content []block) []block {
		return slices.DeleteFunc(content, func(b block) bool { return b.Type == "redacted_thinking" })
	}),
	// What a string comparison takes for an edit.
	"texts reformatted": answers(func(content []block) []block {
		for i := range content {
			if content[i].Type == "text" {
				content[i].Text = "\n" + content[i].Text + " \r\n"
			}
		}
		return withoutThinking(content)
	}),
	"inputs encoded anew": answers(func(content []block) []block {
		for i, b := range content {
			if b.Type == "tool_use" {
				content[i].Input = anew(b.Input)
			}
		}
		return withoutThinking(content)
	}),
	"texts joined behind the tool": answers(func(content []block) []block {
		said := spoken(content)
		content = slices.DeleteFunc(withoutThinking(content), func(b block) bool { return b.Type == "text" })
		if said != "" {
			content = append(content, textOf(said))
		}
		return content
	}),
	// The cache's markers move on with each request.
	"newest message marked": func(history []message) []message {
		for i := range history {
			history[i].plain = i < len(history)-1 && history[i].role == "user"
		}
		last := history[len(history)-1].content
		last[len(last)-1].marked = true
		return history
	},
	// The window of the client has no end of its first turn.
	"first turn forgotten": func(history []message) []message {
		if len(history) > 4 {
			return history[2:]
		}
		return history
	},
}

// anew is a JSON value as a client writes it that has decoded it: its members in
// another order, its numbers in another form, HTML escaped.
func anew(value []byte) json.RawMessage {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return value
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return value
	}
	return out
}

func pointer[T any](v T) *T { return &v }

// wander queues the answers of a dialogue that has all there is: thinking before
// and between calls, two calls at once, thinking in several blocks, redacted and
// without text, and an answer without any. Each wanderer says the turns.
func wander(v *upstreamtest.Server) {
	think, say, redacted := upstreamtest.Think, upstreamtest.Say, upstreamtest.Redacted()
	look := func(q string) upstreamtest.Block { return upstreamtest.Use("look", `{"q":"`+q+`","n":1.0}`) }
	v.Queue(
		upstreamtest.Reply(think(" The user greets me.\n"), say("Hello.")),
		upstreamtest.Reply(think("I must look it up."), say("Let me look."), look("a")),
		upstreamtest.Reply(think("Not enough, twice more."), look("b"), look("c")),
		upstreamtest.Reply(think("Now I know."), say("It is a, b and c.")),
		upstreamtest.Reply(think("One more."), redacted, think("And another."), say("Wait."), look("d")),
		upstreamtest.Reply(redacted, look("e")),
		upstreamtest.Reply(upstreamtest.Omitted(), say("It is d and e.")),
		upstreamtest.Reply(say("You are welcome.")),
		upstreamtest.Reply(think("I must look it up."), say("Let me look."), look("f")),
		upstreamtest.Reply(think("Now I know."), say("It is f.")),
	)
}

var wandering = []string{"Hello", "What is it?", "And then?", "Thank you", "What is it?"}

func wanderOn(t *testing.T, c agent) {
	t.Helper()
	for i, want := range []string{"Hello.", "It is a, b and c.", "It is d and e.", "You are welcome.", "It is f."} {
		require.Equal(t, want, c.say(wandering[i]))
	}
}

// thinkers are the kinds of backends that verify thinking.
var thinkers = []struct {
	name  string
	of    backendCase
	model string
	ways  []bool // of an answer: whole, as a stream
}{
	{"adaptive", claude, "claude-opus-4-8", []bool{false, true}},
	{"manual", claude, "claude-sonnet-4-5", []bool{false}},
	{"bound", prefixChecking, "claude-opus-5-5", []bool{true}},
}

// proofs are the damages that a vendor has to be asked about, once.
var proofs = map[string]bool{
	// With no text either, nothing of the block is known.
	"signatures invented": true,
}

// Fault: a client's careless replay of an answer kills the conversation. Whatever it
// did to the thinking, as long as what was said is the same the turn goes back.
func TestConformanceDamagedReplays(t *testing.T) {
	for _, backend := range thinkers {
		for name, damage := range damages {
			for _, stream := range backend.ways {
				t.Run(fmt.Sprint(backend.name, ", ", name, ", stream=", stream), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, backend.of)
					wander(w.vendors[backend.of.name])
					c := w.gateway().messages(backend.model)
					c.within("c1")
					c.stream, c.damage = stream, damage
					wanderOn(t, c)
					switch {
					case name == "first turn forgotten" && backend.of.vendor.Thinking.PrefixCheck:
						w.refusedAtMost(1) // what was bound to that turn cannot be kept
					case proofs[name]:
						w.conforms(1)
					default:
						w.conforms(0)
					}
				})
			}
		}
	}
}

// Fault: clients that name no conversation lose everything. What is theirs beyond
// doubt, signatures and long tool ids, still leads to their turns.
func TestConformanceDamagedReplaysWithoutConversation(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, claude)
			wander(w.vendors["claude"])
			c := w.gateway().messages("claude-opus-4-8")
			c.stream, c.damage = true, damage
			wanderOn(t, c)
			if proofs[name] {
				w.conforms(3) // without calls, one for each answer: each of the blocks is another one
				return
			}
			w.conforms(0)
		})
	}
}
