package proxy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// damage changes a history as it is sent. It may change its argument.
type damage = func([]message) []message

// answers returns a damage of the content of each message of the assistant.
func answers(change func([]block) []block) damage {
	return func(history []message) []message {
		for i, m := range history {
			if m.role == "assistant" {
				history[i].content = change(m.content)
			}
		}
		return history
	}
}

// blocks returns a damage of some blocks of the assistant.
func blocks(match func(block) bool, change func(*block)) damage {
	return answers(func(content []block) []block {
		for i := range content {
			if match(content[i]) {
				change(&content[i])
			}
		}
		return content
	})
}

func thoughts(change func(*block)) damage { return blocks(block.thinks, change) }

// hasType returns a function that reports whether a block has a type.
func hasType(kind string) func(block) bool { return func(b block) bool { return b.Type == kind } }

// remove returns a damage that removes blocks of the assistant.
func remove(match func(block) bool) damage {
	return answers(func(content []block) []block { return slices.DeleteFunc(content, match) })
}

// doubled returns a damage that repeats blocks of any message.
func doubled(match func(block) bool) damage {
	return func(history []message) []message {
		for i, m := range history {
			history[i].content = nil
			for _, b := range m.content {
				history[i].content = append(history[i].content, b)
				if match(b) {
					history[i].content = append(history[i].content, b)
				}
			}
		}
		return history
	}
}

// chain returns a damage that makes several damages of a dialect in turn, except those that are nil.
func chain[M any](all ...func([]M) []M) func([]M) []M {
	return func(history []M) []M {
		for _, next := range all {
			if next != nil {
				history = next(history)
			}
		}
		return history
	}
}

func withoutThinking(content []block) []block { return slices.DeleteFunc(content, block.thinks) }

// damages are changes that clients make to the answers in their history, by name.
var damages = map[string]damage{
	"nothing": nil,
	// SDKs and frameworks that do not know the type.
	"thinking dropped": remove(block.thinks),
	// Frameworks that trim every string.
	"thinking trimmed":   thoughts(func(b *block) { b.Thinking = strings.TrimSpace(b.Thinking) }),
	"thinking shortened": thoughts(func(b *block) { b.Thinking = b.Thinking[:min(len(b.Thinking), 5)] }),
	"thinking emptied":   thoughts(func(b *block) { b.Thinking = "" }),
	// Parsers that ignore signature_delta: the commonest source of unsigned blocks.
	"signatures dropped": thoughts(func(b *block) { b.Signature, b.Data = nil, "" }),
	"signatures emptied": thoughts(func(b *block) { b.Signature, b.Data = new(string), "" }),
	// Gateways that stamp an invented signature on every block.
	inventedSignatures: thoughts(func(b *block) { b.Signature = pointer("EqQBCkgIARABGAIiQInvented") }),
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
		places := indexes(content, block.thinks)
		for i := range len(places) / 2 {
			a, b := places[i], places[len(places)-1-i]
			content[a], content[b] = content[b], content[a]
		}
		return content
	}),
	"thinking doubled": doubled(block.thinks),
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
	"thinking as text": chain(
		blocks(hasType("thinking"), func(b *block) { *b = textOf("<think>" + b.Thinking + "</think>") }),
		remove(block.thinks)),
	"redacted dropped": remove(hasType("redacted_thinking")),
	// A string comparison takes these for edits.
	"texts reformatted": chain(
		remove(block.thinks), blocks(hasType("text"), func(b *block) { b.Text = "\n" + b.Text + " \r\n" })),
	"inputs encoded anew": chain(
		remove(block.thinks), blocks(hasType("tool_use"), func(b *block) { b.Input = reencoded(b.Input) })),
	"texts joined behind the tool": answers(func(content []block) []block {
		text := spoken(content)
		content = slices.DeleteFunc(withoutThinking(content), hasType("text"))
		if text != "" {
			content = append(content, textOf(text))
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
	// The client's window begins after its first turn.
	"first turn forgotten": func(history []message) []message {
		if len(history) > 4 {
			return history[2:]
		}
		return history
	},
}

// reencoded returns a JSON value as a client encodes it again: its members in another order, its numbers in another
// form, HTML escaped.
func reencoded(value []byte) json.RawMessage {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return value
	}
	out, _ := json.MarshalIndent(v, "", " ") // cannot fail
	return out
}

func indexes[M any](list []M, match func(M) bool) (at []int) {
	for i, m := range list {
		if match(m) {
			at = append(at, i)
		}
	}
	return at
}

func chatStarts(history []chatMessage) (at []int) {
	return indexes(history, func(m chatMessage) bool { return m.Role == "user" })
}

// finalAnswersOnly removes the rounds of tools of older turns.
func finalAnswersOnly(history []chatMessage) []chatMessage {
	at := chatStarts(history)
	current := at[len(at)-1]
	return append(slices.DeleteFunc(history[:current], func(m chatMessage) bool {
		return m.Role == "tool" || len(m.ToolCalls) > 0
	}), history[current:]...)
}

func pointer[T any](v T) *T { return &v }

// wandering is a dialogue with all kinds of content: thinking before and between calls, two calls at once, thinking in
// several blocks, redacted and without text, and an answer without any.
var wandering = func() []turn {
	redacted := upstreamtest.Redacted()
	look := func(q string) upstreamtest.Block { return upstreamtest.Use("look", `{"q":"`+q+`","n":1.0}`) }
	return []turn{
		exchange("Hello", "Hello.", saying(" The user greets me.\n", "Hello.")),
		exchange("What is it?", "It is a, b and c.", reply(think("I must look it up."), speak("Let me look."), look("a")),
			reply(think("Not enough, twice more."), look("b"), look("c")), saying("Now I know.", "It is a, b and c.")),
		exchange("And then?", "It is d and e.",
			reply(think("One more."), redacted, think("And another."), speak("Wait."), look("d")),
			reply(redacted, look("e")), reply(upstreamtest.Omitted(), speak("It is d and e."))),
		exchange("Thank you", "You are welcome."),
		exchange("What is it?", "It is f.", reply(think("I must look it up."), speak("Let me look."), look("f")),
			saying("Now I know.", "It is f.")),
	}
}()

func wander(p *play) { steps(wandering...)(p) }

// inventedSignatures names a damage that a vendor must refuse once: some blocks have no text either.
const inventedSignatures = "signatures invented"

// damagesWith returns a variant for each damage. Invented signatures cost this many refusals.
func damagesWith(refusals int) (all variants) {
	special := map[string]turn{inventedSignatures: costs(refusals), "first turn forgotten": func(p *play) {
		if p.run.vendors[0].vendor.Thinking.PrefixCheck {
			tolerate(1)(p) // thinking bound to that turn is lost
		}
	}}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		all = append(all, variant{name, steps(damaged(name), special[name])})
	}
	return all
}

// goldenDamage returns a dialogue with damaged replays and a golden file.
func goldenDamage(name, fault string) transcript {
	return row(name, fault,
		runEach(claude).cite("anthropics/claude-code#63441").flag(golden),
		damaged(name),
		say("First", reply(think(" I look. "), speak("Looking."), think("Where?"), look("one")),
			saying("Found.", "Done.")),
		say("Second"))
}

var damageRows = []transcript{
	goldenDamage("thinking trimmed", "a client trims texts, and with them what a signature is bound to."),
	goldenDamage("thinking merged", "a client joins the thinking of an answer to one block."),
	goldenDamage("thinking doubled", "a client that came back from an error sends a block twice."),
	goldenDamage("thinking reversed", "each block is genuine, and none stands where it stood."),
	goldenDamage("signatures dropped", "a parser that knows no signature_delta replays thinking without its signature."),
	goldenDamage("signatures of another block", "a client mixes up which signature belongs to which block."),
	row("damaged replays", "a careless replay of an answer kills the conversation though its texts are the same.",
		runEach(thinkers...).cite("anthropics/claude-code#63441").vary(streams, damagesWith(1)),
		wander),
	row("damaged replays without a conversation", "turns are lost although signatures and tool ids lead to them.",
		runEach(claude).vary(damagesWith(3)),
		unnamed, streamed, wander),
	row("omitted thinking", "blocks of thinking without text are taken for one another.",
		runEach(omitting(claude), omitting(manual), omitting(prefixChecking)),
		damaged("signatures dropped"), wander, func(p *play) {
			seen := map[string]bool{}
			for _, signature := range strs([]byte(p.last()), `messages.#.content.#(type=="thinking")#.signature|@flatten`) {
				require.False(p, seen[signature], "each block has its own")
				seen[signature] = true
			}
			require.Greater(p, len(seen), 4)
		}),
	row("thinking recorded when it begins", "blocks are recorded at the beginning of a stream, as the hash of nothing.",
		runEach(claude),
		streamed, replay{messages: chain(damages["signatures dropped"], idsAltered)}.turn,
		begin("Go", reply(think("a long thought"), speak("So."), upstreamtest.Use("look", "{}"))), round(),
		vendorGot("a long thought")),
	row("foreign signature", "unknown thinking is stripped before the vendor refuses it, or again in each turn.",
		runEach(claude).cite("anthropics/anthropic-sdk-python#1598").flag(golden),
		costs(1), forged("made elsewhere", "Zm9yZ2VkIGVsc2V3aGVyZQ=="), say("And?"), say("And then?")),
	row("redacted and empty thinking", "a block without text has the hash of nothing, and is taken for another one.",
		runEach(claude).flag(golden),
		thinkingDropped, say("First", reply(upstreamtest.Omitted(), upstreamtest.Redacted(), speak("One."))),
		say("Second", reply(upstreamtest.Omitted(), speak("Two."))), say("Third")),
}

// omitting returns a vendor that does not show the text of thinking.
func omitting(b backendCase) backendCase {
	return b.with("omitting", func(c *upstreamtest.Config) { c.Thinking.Omit = true })
}
