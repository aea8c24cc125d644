//go:build !race

// Everything here happens in one goroutine, so scripts/test runs it without the race detector, which finds nothing in
// it and takes twenty times as long.

package offline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

func TestDialogues(t *testing.T) {
	testtier.Slow(t)
	for _, d := range dialogues {
		for _, streamed := range []bool{false, true} {
			t.Run(d.name, func(t *testing.T) {
				c := newChat(t)
				c.stream = streamed
				for _, l := range d.lines {
					got := c.say(l.say)
					for want := range strings.SplitSeq(l.want, "|") {
						if want == honest {
							want = iAm.in(langOf(l.say))
						}
						require.Contains(t, got.answer, want, l.say)
					}
					if l.not != "" {
						require.NotContains(t, got.answer, l.not, l.say)
					}
				}
			})
		}
	}
}

// What a message that is no statement says is never kept.
func TestAnInstructionIsNeverAFact(t *testing.T) {
	testtier.Slow(t)
	c := newChat(t)
	for _, d := range dialogues {
		if d.name != "everything else" {
			continue
		}
		for _, l := range d.lines {
			require.NotContains(t, c.say(l.say).answer, "Noted")
			require.NotContains(t, c.say("What do you know about me?").answer, "You", l.say)
		}
	}
}

// Each of these is a way to ask for work that grows much faster than the text.
func TestLongAndNestedTextIsBounded(t *testing.T) {
	testtier.Slow(t)
	for name, text := range map[string]string{
		"one endless sentence":  strings.Repeat("then tell it that ", 20_000),
		"nested orders":         strings.Repeat("please ask it to ", 5_000),
		"quotes":                strings.Repeat(`"a" `, 50_000),
		"brackets":              strings.Repeat("(", 100_000),
		"a long sum":            "what is 1" + strings.Repeat("+1", 50_000),
		"many sentences":        strings.Repeat("My name is Aliya. ", 20_000),
		"many questions":        strings.Repeat("What is my name? ", 20_000),
		"full stops":            strings.Repeat(".", 200_000),
		"one word":              strings.Repeat("ы", 200_000),
		"Russian without stops": strings.Repeat("и скажи ему что ", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, tools := range [][]simTool{simAgents, {calcTool, dateTool, searchTool}} {
				requireComplete(t, roundTrip(t, simRequest{Model: "m", Messages: []simMessage{userText(text)}, Tools: tools}))
			}
		})
	}
}
