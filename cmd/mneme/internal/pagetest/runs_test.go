package pagetest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The runs of a chat are listed as long as they are known.
func TestRuns(t *testing.T) {
	m := &model{}
	s := service{t, "http://" + run(t, "up", configuration(t), m.environ(t)...).Webmemory}
	p := newTab(t, s.url)
	p.open("#/runs")
	p.sees("No chats yet", "Choose a chat")
	require.Empty(t, p.barriers())
	require.Contains(t, s.say("trip", "ask both about "+hostile("message")), "They say: ")
	p.open("#/runs/trip")
	p.sees("ask both about "+hostile("message")[:40], "completed", "2 delegations", "tokens in")
	p.reload()
	p.has("link", "Open the chat")
	require.Empty(t, p.barriers())
	require.False(t, evaluate[bool](p, "'hurt' in window"))
}
