package app_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory/event"
)

// An answer that breaks off behind its first byte, which no gateway can repeat, is asked for once more by mneme's own
// agents: the user gets it whole, and sees nothing of it twice.
func TestAnAnswerThatBreaksOffIsAskedForOnceMore(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const said = "These are enough words to come in more than one piece of a stream, as answers do."
	whole := upstreamtest.Reply(upstreamtest.Say(said))
	other := upstreamtest.Reply(upstreamtest.Say("Now it begins otherwise, and goes on for some words."))
	asks := upstreamtest.Reply(upstreamtest.Use("analytic", `{"task":"Look."}`))
	for name, c := range map[string]struct {
		answers   []upstreamtest.Answer
		content   string // of the answer
		shown     string // of its pieces; the beginning of content where nothing is said
		delegated int
		failure   string
	}{
		"inside a text":          {answers: []upstreamtest.Answer{whole.CutAfter(4, true), whole}, content: said, shown: said},
		"before any text":        {answers: []upstreamtest.Answer{whole.CutAfter(1, false), whole}, content: said, shown: said},
		"by a vendor's error":    {answers: []upstreamtest.Answer{whole.FailAfter(4), whole}, content: said, shown: said},
		"as if it were over":     {answers: []upstreamtest.Answer{cleanly(whole, 4), whole}, content: said, shown: said},
		"and begins otherwise":   {answers: []upstreamtest.Answer{whole.CutAfter(4, false), other}, content: other.Blocks[0].Text},
		"inside a call":          {answers: []upstreamtest.Answer{asks.CutAfter(2, true), asks, whole, whole}, content: said, shown: said, delegated: 1},
		"of a subagent":          {answers: []upstreamtest.Answer{asks, whole.CutAfter(4, false), whole, whole}, content: said, shown: said, delegated: 1},
		"twice, which is an end": {answers: []upstreamtest.Answer{whole.CutAfter(4, false), whole.CutAfter(4, false)}, failure: event.AnswerCut},
	} {
		t.Run(name, func(t *testing.T) {
			vendor := upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat})
			server := httptest.NewServer(vendor)
			defer server.Close()
			vendor.Queue(c.answers...)
			u := start(t, "MNEME_DATA_DIR="+t.TempDir(), backend("real", "openai", server.URL+"/v1"))
			var shown, task strings.Builder
			answer, responses := event.Assistant{}, []string{}
			for _, e := range u.stream("1", "Hello") {
				switch p := e.Payload.(type) {
				case *event.AssistantDelta:
					shown.WriteString(p.Text)
				case *event.SubagentDelta:
					task.WriteString(p.Text)
				case *event.Completion:
					responses = append(responses, p.Response)
				case *event.Assistant:
					answer = *p
				case *event.Error:
					require.Equal(t, c.failure, p.Code)
				}
			}
			require.Len(t, vendor.Requests(), len(c.answers))
			require.Len(t, responses, c.delegated)
			if c.failure != "" {
				require.Equal(t, c.failure, answer.Failure)
				require.True(t, answer.Partial)
				require.Equal(t, shown.String(), answer.Content)
				return
			}
			require.Equal(t, c.content, answer.Content)
			if c.shown == "" {
				require.NotEmpty(t, shown.String())
				require.True(t, strings.HasPrefix(said, shown.String()), "%q", shown.String())
				return
			}
			require.Equal(t, c.shown, shown.String())
			for _, response := range responses {
				require.Equal(t, said, response)
				require.Equal(t, said, task.String())
			}
		})
	}
}

// cleanly is an answer that ends after so many events as if it were over.
func cleanly(a upstreamtest.Answer, events int) upstreamtest.Answer {
	a.Cut = &upstreamtest.Cut{Events: events, Clean: true}
	return a
}
