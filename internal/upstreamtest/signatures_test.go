package upstreamtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// agent is a faithful client: it sends back every answer, block by block.
type agent struct {
	t        tester
	v        *Server
	members  string // of every request, beside the messages
	messages []string
}

// send requests the next answer and appends it to the messages.
func (a *agent) send() {
	a.t.Helper()
	body := ok(a.t, a.v, "/v1/messages", join("messages", a.messages, a.members))
	a.messages = append(a.messages, message(assistant, gjson.Get(body, "content").Raw))
}

// check sends these messages and compares the refusal. An empty text means that the vendor accepts them.
func (a *agent) check(want string, list ...string) {
	a.t.Helper()
	w := post(a.t, a.v, "/v1/messages", join("messages", list, a.members))
	require.Equal(a.t, want, errorText(w.Body.String()))
	require.Equal(a.t, want == "", w.Code == 200, w.Body)
}

func (a *agent) ask(text string) {
	a.messages = append(a.messages, message(user, fmt.Sprintf("%q", text)))
}

// answerCalls appends a result for every call of the last answer. It reports whether there were any.
func (a *agent) answerCalls() bool {
	var list []string
	for _, id := range gjson.Get(a.messages[len(a.messages)-1], `content.#(type=="tool_use")#.id`).Array() {
		list = append(list, toolResult(id.String()))
	}
	if len(list) > 0 {
		a.messages = append(a.messages, question(list...))
	}
	return len(list) > 0
}

const opusMembers = `"model":"` + opus48 + `","max_tokens":9000,` + adaptive + `,"system":"You help.",` + weather

// drop leaves blocks out of a message.
func drop(message string, places ...int) string {
	return reorder(message, func(blocks []string) (kept []string) {
		for j, b := range blocks {
			if !slices.Contains(places, j) {
				kept = append(kept, b)
			}
		}
		return kept
	})
}

// reorder changes the blocks of a message.
func reorder(m string, change func([]string) []string) string {
	var blocks []string
	for _, b := range gjson.Get(m, "content").Array() {
		blocks = append(blocks, b.Raw)
	}
	return message(gjson.Get(m, "role").String(), `[`+strings.Join(change(blocks), ",")+`]`)
}

// set changes one string inside a message.
func set(message, path, value string) string {
	was := gjson.Get(message, path)
	return message[:was.Index] + fmt.Sprintf("%q", value) + message[was.Index+len(was.Raw):]
}

// conversation plays nine messages: a question, a loop of two rounds, a second question, and an unfinished loop.
//
//	0 ask  1 thinking text use  2 result  3 thinking redacted text thinking use  4 result
//	5 thinking text  6 ask  7 thinking text thinking use  8 result
func conversation(t tester, v *Server) *agent {
	a := &agent{t: t, v: v, members: opusMembers}
	act := Use("weather", `{"city":"Oslo"}`)
	v.Queue(Reply(Think("one"), Say("I look."), act), Reply(Think("two"), Redacted(), Say("Again."), Think("three"), act),
		Reply(Think("four"), Say("Done.")), Reply(Think("five"), Say("Look."), Think("six"), act))
	a.ask("first")
	for range 4 {
		a.send()
		if !a.answerCalls() {
			a.ask("second")
		}
	}
	require.Len(t, a.messages, 9)
	return a
}

const (
	invalidAt  = "messages.%s: Invalid `signature` in `thinking` block"
	modifiedAt = "messages.%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be " +
		"modified. These blocks must remain as they were in the original response."
	elsewhere = ". The block is bound to a different conversation. Remove the block, or set " +
		"`thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\"."
	needsBeta  = " That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
	invalidRed = "Invalid `data` in `redacted_thinking` block"
)

// boundAt is the refusal of a block that is bound to another conversation.
func boundAt(at string) string { return fmt.Sprintf(invalidAt, at) + elsewhere }

func bindingTo(behavior string) string {
	return `"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"` + behavior + `"}}`
}

// A request may have blocks dropped that fail the prefix check. Blocks of the vendor's other models are dropped anyway.
func TestDroppedBlocks(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		a := conversation(t, New(Config{Thinking: ThinkingRules{PrefixCheck: true}}))
		edited := slices.Clone(a.messages)
		edited[4] = set(edited[4], "content.0.content", "edited")
		for _, c := range []struct {
			from, to string
			messages []string
			dropped  int
			first    string
		}{
			{adaptive, bindingTo("drop_block"), edited, 3, `"path":"messages.5.content.0","reason":"prefix_mismatch"`},
			{opus48, "claude-opus-4-7", a.messages, 7, `"path":"messages.1.content.0","reason":"model_binding_mismatch"`},
		} {
			members := strings.Replace(opusMembers, c.from, c.to, 1) + `,"stream":` + stream
			body := ok(t, a.v, "/v1/messages", join("messages", c.messages, members), "Anthropic-Beta", betaBinding)
			require.Contains(t, body, `"input_transformations":[{"type":"thinking_dropped",`+c.first+`}`)
			require.Len(t, a.v.Last().Dropped, c.dropped)
		}
		require.Equal(t, "messages.1.content.0", a.v.Last().Dropped[0])
	}
}

// A tool loop goes on if the model, the machine or the thinking in the history changes.
func TestLoopsGoOn(t *testing.T) {
	play := func(config Config, rounds int, each func(a *agent, i int)) *agent {
		a := &agent{t: t, v: New(config), members: opusMembers}
		a.ask("go")
		for i := range rounds {
			each(a, i)
			a.v.Queue(Reply(Think("t"), Use("weather", "{}")))
			a.send()
			a.answerCalls()
		}
		return a
	}
	checked := Config{Name: "one", Thinking: ThinkingRules{PrefixCheck: true}}
	a := play(checked, 6, func(a *agent, i int) {
		a.members = strings.Replace(opusMembers, opus48, []string{opus48, "claude-opus-4-7"}[i%2], 1)
	})
	require.Zero(t, a.v.Last().Missing, "the models take turns")
	require.Len(t, a.v.Last().Dropped, 3)

	machines := []*Server{New(checked), New(checked)}
	play(checked, 5, func(a *agent, i int) { a.v = machines[i%2] })

	a = play(Config{}, 4, func(a *agent, i int) {
		if i == 2 {
			a.messages[1], a.messages[3] = drop(a.messages[1], 0), drop(a.messages[3], 0)
		}
	})
	require.Equal(t, 2, a.v.Last().Missing, "the client took all thinking out of the loop")
	a.messages[5] = drop(a.messages[5], 0)
	a.check(fmt.Sprintf(modifiedAt, "7.content.0"), a.messages...)
}

// Signatures look like real ones. The vendor refuses every changed signature.
func TestForgedSignatures(t *testing.T) {
	a := conversation(t, New(Config{}))
	m := a.messages
	for _, signature := range []gjson.Result{gjson.Get(m[1], "content.0.signature"), gjson.Get(m[3], "content.1.data")} {
		require.Regexp(t, `^E[A-Za-z0-9+/]{300,}={0,2}$`, signature.Str)
	}
	good := gjson.Get(m[1], "content.0.signature").String()
	refused := func(t tester, forged string) {
		b := *a
		b.t = t
		changed := append([]string{m[0], set(m[1], "content.0.signature", forged)}, m[2:]...)
		b.check(fmt.Sprintf(invalidAt, "1.content.0"), changed...)
	}
	spare := strings.TrimSuffix(good, "==") // its last character has unused bits
	require.Len(t, spare, len(good)-2)
	last := map[byte]string{'A': "B", 'Q': "R", 'g': "h", 'w': "x"}[spare[len(spare)-1]]
	refused(t, spare[:len(spare)-1]+last+"==")
	rapid.Check(t, func(t *rapid.T) {
		bad := []byte(good)
		switch at := rapid.IntRange(0, len(bad)-1).Draw(t, "at"); rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			bad[at] = rapid.SampledFrom([]byte("ABCxyz019+/=!")).Draw(t, "byte")
		case 1:
			bad = bad[:at]
		default:
			bad = append(bad[:at:at], append([]byte("QUJD"), bad[at:]...)...)
		}
		if string(bad) == good {
			t.Skip("unchanged")
		}
		refused(t, string(bad))
	})
}
