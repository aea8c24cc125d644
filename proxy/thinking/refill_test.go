package thinking

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

func TestRefillWithPlaceholders(t *testing.T) {
	call := `"tool_calls":[{"id":"a"},{"id":"b"}]`
	for name, c := range map[string]struct {
		dialect wire.Dialect
		p       Placeholder
		in, out string
	}{
		"block": {wire.Messages, Placeholder{Block: true, Text: "…"}, assistant(says("1")),
			assistant(`{"type":"thinking","thinking":"…","signature":""}`, says("1"))},
		"block, a string": {wire.Messages, Placeholder{Block: true}, `{"role":"assistant","content":"hi"}`,
			assistant(`{"type":"thinking","thinking":"","signature":""}`, `{"type":"text","text":"hi"}`)},
		"block is there": {wire.Messages, Placeholder{Block: true}, turn("1"), turn("1")},
		"field": {wire.Chat, Placeholder{Field: "reasoning_content", Text: "…"}, `{"role":"assistant",` + call + `}`,
			`{"reasoning_content":"…","role":"assistant",` + call + `}`},
		"field is null": {wire.Chat, Placeholder{Field: "reasoning_content"},
			`{"role":"assistant","reasoning_content":null}`, `{"role":"assistant","reasoning_content":""}`},
		"field is there": {wire.Chat, Placeholder{Field: "reasoning_content"},
			`{"role":"assistant","reasoning_content":"x"}`, `{"role":"assistant","reasoning_content":"x"}`},
		"signature": {wire.Chat, Placeholder{Signature: BypassSignature}, `{"role":"assistant",` + call + `}`,
			`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}},"id":"a"},{"id":"b"}]}`},
		"signature, null": {wire.Chat, Placeholder{Signature: "s"},
			`{"role":"assistant","tool_calls":[{"extra_content":null}]}`,
			`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"s"}}}]}`},
		"signature beside": {wire.Chat, Placeholder{Signature: "s"},
			`{"role":"assistant","tool_calls":[{"extra_content":{"x":1}}]}`,
			`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"s"},"x":1}}]}`},
		"signature is there": {wire.Chat, Placeholder{Signature: "s"},
			`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"q"}}}]}`,
			`{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"q"}}}]}`},
		"no calls": {wire.Chat, Placeholder{Signature: "s"}, `{"role":"assistant","content":"x"}`,
			`{"role":"assistant","content":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTalk(t, c.dialect)
			s := k.begin(glm, hi, c.in, hi)
			body, _ := s.Filter()
			got, err := s.Refill(c.p)
			require.NoError(t, err)
			require.Equal(t, []string{c.out}, assistants(t, got.Body))
			require.Equal(t, c.in != c.out, got.Changed)
			if c.in == c.out {
				require.Same(t, &body[0], &got.Body[0], "there is nothing to send again")
				require.True(t, got.Off)
				return
			}
			require.Equal(t, 1, got.Placeholders)
			require.False(t, got.Off)
		})
	}
}

// The vendor asks for what the chain did not lead to: the ledger has it.
func TestRefillFromTheLedger(t *testing.T) {
	k := newTalk(t, wire.Messages)
	use := assistant(thought("1"), uses("toolu_0123456789abcdef", "x"))
	k.answers(claude, use, user("a"))
	k.policy.Bound = true
	k.head = `"model":"m","system":"changed"`
	history := []string{user("a"), assistant(uses("toolu_0123456789abcdef", "x")), results("toolu_0123456789abcdef")}
	s := k.begin(claude, history...)
	body, _ := s.Filter()
	require.Equal(t, []string{history[1]}, assistants(t, body))
	got, err := s.Refill(Placeholder{})
	require.NoError(t, err)
	require.Equal(t, []string{use}, assistants(t, got.Body))
	require.Equal(t, Refilled{Body: got.Body, Turns: 1, Changed: true}, got)
}

// Nothing is known and nothing may stand in its place: thinking has to go off.
func TestRefillThatChangesNothing(t *testing.T) {
	k := newTalk(t, wire.Messages)
	s := k.begin(claude, user("a"), assistant(uses("toolu_0123456789abcdef", "x")), results("toolu_0123456789abcdef"))
	body, _ := s.Filter()
	got, err := s.Refill(Placeholder{})
	require.NoError(t, err)
	require.Equal(t, Refilled{Body: body, Off: true}, got)
}

// stood is what stands for thinking where a Placeholder has no text.
const stood = `{"type":"thinking","thinking":"","signature":""}`

// A refill is no strip, and brings nothing to another vendor or back that was
// refused.
func TestRefillKeepsTheFilter(t *testing.T) {
	k := newTalk(t, wire.Messages)
	k.answers(claude, turn("1"), user("a"))
	k.answers(glm, turn("2"), user("a"), turn("1"), user("b"))
	s := k.begin(glm, user("a"), turn("1"), user("b"), turn("2"), user("c"))
	s.Filter()
	s.Refused(t.Context(), []string{ledger.BlockKey([]byte(thought("2")))}, false)
	got, err := s.Refill(Placeholder{Block: true})
	require.NoError(t, err)
	require.Equal(t, []string{assistant(stood, says("1")), turn("2")}, assistants(t, got.Body))

	s = k.begin(glm, user("a"), turn("1"), user("b"), turn("2"), user("c"))
	s.Filter()
	got, err = s.Refill(Placeholder{Block: true})
	require.NoError(t, err)
	require.Equal(t, []string{assistant(stood, says("1")), assistant(stood, says("2"))},
		assistants(t, got.Body))
}
