package thinking

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// history of a client that is careless with what it was told: it drops thinking,
// edits, forgets and invents.
type carelessClient struct {
	*rapid.T
	dialect wire.Dialect
	shown   []string
	turns   int
}

func (c *carelessClient) answer() (stored, shown string) {
	c.turns++
	n := fmt.Sprint(c.turns)
	text := rapid.SampledFrom([]string{"yes", "say " + n}).Draw(c.T, "text")
	plain := `{"type":"text","text":"` + text + `"}`
	if c.dialect == wire.Chat {
		rest := `"role":"assistant","content":"` + text + `"}`
		stored = `{"reasoning_content":"think ` + n + `",` + rest
		shown = rapid.SampledFrom([]string{stored, `{` + rest, `{"reasoning_content":"invented",` + rest,
			strings.Replace(stored, text, "edited", 1)}).Draw(c.T, "shown")
		return stored, shown
	}
	stored = rapid.SampledFrom([]string{
		assistant(thought(n), plain), assistant(thought(n), plain, thought(n+"b"), uses("toolu_0123456789abcdef"+n, n)),
		assistant(plain), assistant(thought(n)),
		assistant(`{"type":"redacted_thinking","data":"`+n+`"}`, uses("look:0", n)),
	}).Draw(c.T, "stored")
	shown = rapid.SampledFrom([]string{
		stored, strings.ReplaceAll(stored, thought(n)+",", ""), strings.Replace(stored, text, "edited", 1),
		assistant(thought("foreign"), plain),
		strings.Replace(stored, "signature"+n, "", 1), strings.ReplaceAll(stored, `"}`, `","cache_control":{}}`),
	}).Draw(c.T, "shown")
	return stored, shown
}

// Whatever a client shows, what leaves is valid, keeps every message and the
// visible text, is the same if it is filtered again, and shows a vendor only its
// own.
func TestFilterProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := ledger.New(ledger.Config{})
		defer func() { require.NoError(t, l.Close(context.Background())) }()
		c := &carelessClient{T: t, dialect: rapid.SampledFrom([]wire.Dialect{wire.Messages, wire.Chat}).Draw(t, "dialect")}
		policy := Policy{
			Unproven: rapid.SampledFrom([]Unproven{Lazy, Text, Drop}).Draw(t, "unproven"),
			Bound:    rapid.Bool().Draw(t, "bound"),
		}
		made := map[string]string{} // vendor by what it thought
		for range rapid.IntRange(1, 6).Draw(t, "turns") {
			c.shown = append(c.shown, user(fmt.Sprint("u", len(c.shown))))
			to := rapid.SampledFrom([]ledger.Origin{claude, glm, mirror}).Draw(t, "backend")
			o, err := wire.ReadOutline([]byte(asks(c.shown...)))
			require.NoError(t, err)
			begin := func(o *wire.Outline) *Session {
				return Begin(context.Background(), l, ledger.Request{
					Scope: ledger.Scope{Conversation: "c", Route: "main"}, Target: to, Dialect: c.dialect, Outline: o,
				}, policy)
			}
			s := begin(o)
			body, report := s.Filter()
			sent, err := wire.ReadOutline(body)
			require.NoError(t, err, "%s", body)
			require.Len(t, sent.Messages, len(o.Messages))
			for _, m := range sent.Messages {
				require.False(t, m.Blocks != nil && len(m.Blocks) == 0, "%s", body)
			}
			for thought, vendor := range made {
				if vendor != to.Vendor {
					require.NotContains(t, string(body), `"`+thought+`"`)
				}
			}
			if !report.Changed() && c.dialect == wire.Chat {
				require.Same(t, &o.Body[0], &body[0])
			}
			// Thinking that was removed cannot tell any more that the message is no
			// turn that is known.
			if !slices.ContainsFunc(s.judged, func(j ledger.Judged) bool { return j.Turn == nil && last(j.Keys) != "" }) {
				again, _ := begin(sent).Filter()
				require.Equal(t, string(body), string(again), "idempotent")
			}
			if refill, err := s.Refill(Placeholder{Block: true, Field: "reasoning_content"}); true {
				require.NoError(t, err)
				_, err = wire.ReadOutline(refill.Body)
				require.NoError(t, err, "%s", refill.Body)
			}

			stripped, keys := Strip(sent, c.dialect)
			if rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
				s.Refused(context.Background(), keys, false)
				sent, err = wire.ReadOutline(stripped)
				require.NoError(t, err)
			}
			stored, shown := c.answer()
			made[fmt.Sprint("think ", c.turns)] = to.Vendor
			in := `{"content":` + strings.TrimSuffix(strings.TrimPrefix(stored, `{"role":"assistant","content":`), "}") + `}`
			if c.dialect == wire.Chat {
				in = `{"choices":[{"message":` + stored + `}]}`
			}
			observer := NewObserver(c.dialect, false)
			hear(observer, []byte(in))
			a, ok := observer.Answer()
			require.True(t, ok)
			s.Register(context.Background(), sent, a, nil)
			c.shown = append(c.shown, shown)
		}
	})
}
