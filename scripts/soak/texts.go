package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// text makes a message that no other post has, for the master or for the analytic
// subagent itself: facts, questions about them, sums that need a tool, and errands
// of several steps. Every name in it carries the chat's tag.
func text(rng *rand.Rand, ch *chat) (message, agent string) {
	n := ch.serial.Add(1)
	box := func(n int64) string { return fmt.Sprintf("box %s%05d", ch.tag, n) }
	code := fmt.Sprintf("%s%05dk%03d", ch.tag, n, rng.IntN(1000))
	earlier := box(max(n-1-rng.Int64N(6), 1))
	pad := ""
	if rng.IntN(40) == 0 { // a long one now and then: more to tear
		pad = " " + strings.Repeat("and so on ", 200+rng.IntN(3000))
	}
	who := []string{"analytic", "analytic", "knowledge"}[rng.IntN(3)]
	direct := rng.IntN(4) == 0
	agent = "master"
	if direct {
		agent = "analytic"
	}
	switch kind := rng.IntN(10); {
	case kind < 4 && direct:
		message = fmt.Sprintf("The code of %s is %s%s", box(n), code, pad)
	case kind < 4:
		message = fmt.Sprintf("Tell the %s subagent that the code of %s is %s%s", who, box(n), code, pad)
	case kind < 6 && direct:
		message = fmt.Sprintf("What is the code of %s? This is question %s", earlier, code)
	case kind < 6:
		message = fmt.Sprintf("Ask the %s subagent what the code of %s is, for %s", who, earlier, code)
	case kind < 8 && direct:
		message = fmt.Sprintf("What is %d * %d? It is for %s", 1000+n, rng.IntN(1000), code)
	case kind < 8:
		message = fmt.Sprintf("Ask the analytic subagent what %d * %d is, then tell the knowledge subagent that the code "+
			"of %s is %s",
			1000+n, rng.IntN(1000), box(n), code)
	default:
		agent = "master"
		message = fmt.Sprintf("Tell the %s subagent that the code of %s is %s, then ask it what the code of %s is,"+
			" then tell the knowledge subagent that the key of %s is red, then ask the analytic subagent what %d + %d is",
			who, box(n), code, box(n), box(n), n, rng.IntN(1000))
	}
	return message, agent
}
