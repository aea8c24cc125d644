package pagetest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The runs of a chat are listed as long as they are known.
func TestRuns(t *testing.T) {
	_, s, p := visit(t)
	p.open("#/runs")
	p.sees("No chat yet.", "Choose a chat")
	require.Empty(t, p.barriers())
	require.Contains(t, s.say("trip", "ask both about "+hostile("message")), "They say: ")
	p.open("#/runs/trip")
	p.sees("ask both about "+hostile("message")[:40], "completed", "2 delegations", "tokens in")
	p.reload()
	p.has("link", "Open the chat")
	require.Empty(t, p.barriers())
	p.click("link", "ask both about*")
	p.seesIn("ol.steps", "Message", "Model call", "Delegation", "desk", "Look into: ask both about", "Answer")
	evaluate[bool](p, `document.querySelectorAll(".step summary").forEach(e => e.click()), true`)
	p.seesIn("ol.steps", "Backend", "scripted", "Input", "Noted: Look into: ask both about ")
	require.Empty(t, p.barriers())
	p.click("link", "To the runs")
	p.has("link", "Open the chat")
	p.excuse("status of 404")
	p.open("#/runs/trip/NOSUCHRUN")
	p.sees("Nothing is known of this run.", "15 minutes")
	p.seesNo("unknown_run")
	require.False(t, evaluate[bool](p, "'hurt' in window"))
}
