package sanitize_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/internal/upstreamtest"
	"mneme/proxy/sanitize"
	"mneme/proxy/wire"
)

var dialects = []wire.Dialect{wire.Messages, wire.Chat}

// again is a request that has been sanitized, on its way through once more. Which parts were of
// one request alone is not said again: the newest user message may be another one by then, since
// a result without its call is told as the user's.
func again(t *rapid.T, in sanitize.Input, out sanitize.Output) sanitize.Input {
	o, err := wire.ReadOutline(out.Body)
	require.NoError(t, err, "%s\nbecame\n%s", in.Outline.Body, out.Body)
	h := http.Header{"Anthropic-Beta": slices.Clone(in.Betas)}
	out.Header(h)
	in.Outline, in.Betas, in.Ephemeral = o, h.Values("Anthropic-Beta"), false
	return in
}

func drawBody(g generator, d wire.Dialect, model string) string {
	if d == wire.Messages {
		return g.messagesBody(model)
	}
	return g.chatBody(model)
}

func drawInput(t *rapid.T) sanitize.Input {
	g := generator{T: t}
	d := rapid.SampledFrom(dialects).Draw(t, "dialect")
	in := input(t, d, drawBody(g, d, g.pick("model", models...)), g.pick("vendor", vendors...),
		g.pick("beta", "", "a-2025-01-01, interleaved-thinking-2025-05-14", "context-management-2025-06-27"))
	in.Budget = rapid.SampledFrom([]int64{0, 10000}).Draw(t, "budget")
	in.Count = rapid.Bool().Draw(t, "count")
	in.Ephemeral = rapid.Bool().Draw(t, "ephemeral")
	return in
}

// Whatever comes in, what leaves is JSON, sanitizing it again changes nothing,
// and the input is as it was.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		before := string(in.Outline.Body)
		out := sanitize.Sanitize(in)
		require.Equal(t, before, string(in.Outline.Body))
		require.True(t, jsontext.Value(out.Body).IsValid(), "%s", out.Body)
		require.Equal(t, out, sanitize.Sanitize(in), "it is deterministic")
		if len(out.Changes) == 0 {
			require.Same(t, &in.Outline.Body[0], &out.Body[0])
			require.Empty(t, out.AddBetas)
			require.Empty(t, out.RemoveBetas)
		}
		second := sanitize.Sanitize(again(t, in, out))
		require.Empty(t, second.Changes, "%s\nbecame\n%s\nbecame\n%s", before, out.Body, second.Body)
		require.Equal(t, string(out.Body), string(second.Body))
	})
}

// Requests with no faults but those that the sanitizer repairs satisfy the strictest
// vendor.
func TestRepairedMessagesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{T: t, tame: true}
		body := g.messagesBody("claude-sonnet-4-5")
		in := input(t, wire.Messages, body, g.pick("vendor", "anthropic", "bedrock"))
		if len(in.Outline.Messages) == 0 {
			t.Skip("nothing is said")
		}
		out := sanitize.Sanitize(in)
		require.NoError(t, upstreamtest.ValidateMessages(out.Body), "%s\nbecame\n%s\n%v", body, out.Body, out.Changes)
	})
}

func TestRepairedChatsAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{T: t, tame: true}
		body := g.chatBody("mistral-large")
		in := input(t, wire.Chat, body, "mistral")
		out := sanitize.Sanitize(in)
		o := again(t, in, out).Outline
		if n := len(o.Messages); n == 0 || o.Messages[n-1].Role != "user" && o.Messages[n-1].Role != "tool" {
			t.Skip("the model is not asked")
		}
		require.NoError(t, upstreamtest.ValidateChat(out.Body), "%s\nbecame\n%s\n%v", body, out.Body, out.Changes)
	})
}

// A conversation that grows keeps its beginning: what was sent before the newest
// message is sent again.
func TestGrowingConversations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{T: t, tame: true, plain: true}
		d := rapid.SampledFrom(dialects).Draw(t, "dialect")
		vendor := g.pick("vendor", vendors...)
		body := func(list string) string {
			return `{"model":"` + map[bool]string{true: "claude-sonnet-4-5", false: "m"}[vendor == "anthropic"] +
				`","tools":[{"name":"calc"}],"messages":` + list + "}"
		}
		list := g.messages()
		if d == wire.Chat {
			list = g.list("messages", 8, g.chatMessage)
		}
		whole := input(t, d, body(list), vendor)
		n := len(whole.Outline.Messages)
		if n < 2 {
			t.Skip("there is nothing to grow from")
		}
		cut := rapid.IntRange(1, n-1).Draw(t, "cut")
		at := whole.Outline.Messages[cut-1]
		if at.Role != "user" && at.Role != "tool" {
			t.Skip("no client asks for an answer here")
		}
		for _, m := range whole.Outline.Messages[cut:] {
			if m.Role == "tool" {
				t.Skip("no client asks for an answer before all results are there")
			}
			if m.Role != "system" && m.Role != "developer" {
				break
			}
		}
		start := whole.Outline.Members.Get("messages").Start
		part := input(t, d, body(string(whole.Outline.Body[start:at.End])+"]"), vendor)
		before, after := sanitized(t, part), sanitized(t, whole)
		for i := range max(0, len(before)-1) {
			require.Less(t, i, len(after))
			require.Equal(t, before[i], after[i], "message %d of\n%s\nand\n%s", i, before, after)
		}
	})
}

// sanitized are the messages that leave.
func sanitized(t *rapid.T, in sanitize.Input) []string {
	o := again(t, in, sanitize.Sanitize(in)).Outline
	var out []string
	for _, m := range o.Messages {
		out = append(out, string(o.Raw(m.Span)))
	}
	return out
}
