package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// Fault: teammates beside a main agent invalidate its thinking, or under load one agent's turns reach another agent's
// requests. The test makes 2,000 requests, with the race detector a fourth of that.
func TestConformanceTeammatesRaceTheMainAgent(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	const teammates, perTurn = 15, 2
	requests := 2_000
	if raced {
		requests /= 4
	}
	turns := requests / (teammates + 1) / perTurn
	w := newWorld(t, claude.remembering(requests), prefixChecking.remembering(requests), kimi.remembering(requests),
		deepSeekChat.remembering(requests))
	w.config.Teammates = map[string]string{}
	on := []string{"claude", "bound", "kimi", "deepseek-chat"}
	for i := range teammates {
		w.config.Teammates[fmt.Sprint("mate", i)] = on[i%len(on)]
	}
	g := w.gateway()

	dialogue := func(c *messagesClient, name string) {
		for i := range turns {
			if len(c.history) > 16 { // a new conversation before requests grow long
				c.history = nil
				c.within(fmt.Sprint(name, "-", i))
			}
			text := fmt.Sprintf("%s says %d: use the tool", name, i)
			// The vendor's default answer repeats the result, so another client's turn would be visible.
			require.Contains(t, c.say(text), "The tool gave: found")
		}
	}
	var done sync.WaitGroup
	for i := range teammates + 1 {
		c, name := g.messages("claude-opus-4-8"), "main"
		c.within("c1") // all of them: only the route differs
		if i < teammates {
			name = fmt.Sprint("mate", i)
			c.prefix = "/teammate/" + name
			c.damage = damages["thinking dropped"]
			c.stream = i%2 == 0
			if on[i%len(on)] == "bound" {
				c.model = "claude-opus-5-5"
			}
		}
		done.Go(func() { dialogue(c, name) })
	}
	done.Wait()

	for line := range strings.Lines(g.metrics("thinking_filter_blocks_total")) {
		require.Contains(t, line, `{backend="claude",fate="kept"}`, "only the main agent filters, and it keeps everything")
	}
	require.Equal(t, w.log.count("[thinking_filter]"), w.log.count("put_back=0 into_text=0 removed=0"),
		"the log has only the main agent's requests, all unchanged")
	require.Zero(t, w.log.count("[thinking_retry]"))
	require.Empty(t, g.metrics("thinking_retries"))
	require.NotContains(t, g.metrics("turns_put_back"), `pipeline="main"`)
	require.Contains(t, g.metrics("turns_put_back"), `pipeline="teammate"`)
	w.conforms(0)
}
