package pagetest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A chat of ten thousand messages is read from its end, and back as far as one likes, without all of it on the page.
func TestTenThousandMessages(t *testing.T) {
	_, s, p := visit(t)
	var lines strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&lines, `{"message":{"role":"user","content":"Question %d","timestamp":%d}}`+"\n", i, 1700000000+2*i)
		answer := fmt.Sprintf("Answer %d", i)
		if i == 1234 {
			answer = "The lighthouse keeper is called Oyuna."
		}
		fmt.Fprintf(&lines, `{"message":{"role":"assistant","content":%q,"timestamp":%d}}`+"\n", answer, 1700000001+2*i)
	}
	s.request(http.StatusCreated, "POST", "/v1/chats/long/import", "application/x-ndjson", lines.String())
	p.open("#/chats/long")
	p.sees("Answer 4999")
	top := func() int {
		return evaluate[int](p, `Math.min(...[...document.querySelectorAll("[data-at]")].map(e => Number(e.dataset.at)))`)
	}
	shown := func() int { return evaluate[int](p, `document.querySelectorAll("[data-at]").length`) }
	for range 6 {
		before := top()
		evaluate[bool](p, `document.querySelector(".talk").scrollTop = 0, true`)
		p.until("older messages", func() bool { return top() < before })
		require.Less(t, shown(), 400)
	}
	p.click("button", "To the newest")
	p.sees("Answer 4999")

	p.open("#/memory/long")
	p.write("Search what was said", "who is the lighthouse keeper")
	p.sees("pieces found", "The lighthouse keeper is called Oyuna.")
	p.clickFirst("button", "Show in its history")
	p.seesIn(".stored-message.found", "Oyuna")
	p.sees("Question 1234", "Question 1235")
	require.Less(t, shown(), 400)
}
