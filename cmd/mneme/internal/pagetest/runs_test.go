package pagetest

import (
	"net/http"
	"strings"
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
	p.open("#/chats/trip")
	p.seesIn(".message .tools", "tokens in", "master") // the model that answered
}

// A run of yesterday, without its events, is shown by what the histories and its record tell: without an error, in
// sentences, and with what it cost in no more digits than say something.
func TestARunOfYesterday(t *testing.T) {
	_, s, p := visit(t)
	const run, failed = "AAAAAAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBBBBBB"
	s.request(http.StatusCreated, "POST", "/v1/chats/old/import", "application/x-ndjson", strings.Join([]string{
		`{"message":{"role":"user","content":"# What **was** it?","timestamp":1700000000,"id":"` + run + `.1"}}`,
		`{"message":{"role":"assistant","content":"It was ` + "`x`" + `.","timestamp":1700000004,"run":{"usage":` +
			`{"input_tokens":900,"output_tokens":20,"cost_micro_usd":2000},"recalled":3,"calls":2,"model":"big-model",` +
			`"backend":"east"},"id":"` + run + `.4"}}`,
		`{"message":{"role":"user","content":"And then?","timestamp":1700000010,"id":"` + failed + `.1"}}`,
		`{"message":{"role":"assistant","content":"(no answer: model_unavailable)","timestamp":1700000011,` +
			`"failure":"model_unavailable","id":"` + failed + `.2"}}`,
	}, "\n"))
	p.open("#/chats/old")
	p.seesIn("h1", "# What **was** it?")
	p.seesIn(".message .tools", "900 tokens in", "$0.002", "Recalled 3 messages", "big-model")
	p.seesIn(".problem", "The model's vendor cannot be reached or failed")
	p.seesNo("model_unavailable", "0.0000")
	require.Empty(t, p.barriers())
	p.open("#/runs/old")
	p.seesIn(".rows", "# What **was** it?", "completed", "And then?", "failed")
	p.click("link", "# What **was** it?*")
	p.seesIn("ol.steps", "Message", "# What **was** it?", "Answer", "It was x.")
	p.sees("completed", "$0.002", "Recalled 3 messages", "2 model calls", "big-model", "east")
	require.Empty(t, p.barriers())
	p.click("link", "To the runs")
	p.click("link", "And then?*")
	p.seesIn("ol.steps", "The model's vendor cannot be reached or failed")
	p.seesNo("model_unavailable")
}
