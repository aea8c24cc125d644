package pagetest

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Names of what the page offers, as a screen reader says them.
const (
	field      = "Write a message"
	edit       = "Edit: takes back what follows"
	regenerate = "Answer anew: takes back what follows"
	fork       = "Go on from here in a new chat"
)

// send writes a message in the chat that is open and sends it, once that is offered.
func (p *tab) send(message string) {
	p.t.Helper()
	p.write(field, message)
	p.on("button", "Send (Enter)", false, `function () { return !this.disabled }`)
	p.press("\r")
}

// chat is the id of the chat that is open.
func (p *tab) chat() string {
	p.t.Helper()
	p.until("a chat in the address", func() bool {
		return strings.HasPrefix(evaluate[string](p, "location.hash"), "#/chats/")
	})
	return strings.TrimPrefix(evaluate[string](p, "location.hash"), "#/chats/")
}

// idle waits until a message can be sent.
func (p *tab) idle() {
	p.t.Helper()
	p.hasNo("button", "Stop (Esc)")
	p.has("button", "Send (Enter)")
}

// The first minute of somebody who looks at the page: what to type is said, lanes show who works, an answer is
// followed over a reload and in a second tab, and what was said is corrected, taken back and forked.
func TestAChat(t *testing.T) {
	t.Parallel()
	m := &model{}
	s := service{t, "http://" + run(t, "up", configuration(t), m.environ(t)...).Webmemory}
	p := newTab(t, s.url)
	p.open("")
	p.sees("What should be remembered?", "Tell the analytic subagent")
	require.Empty(t, p.barriers())

	p.send("ask both about tea")
	p.sees("They say: Noted: Think about: ask both about tea Noted: Look into: ask both about tea")
	chat := p.chat()
	p.seesIn(".lane", "analytic", "desk", "done")
	p.idle()
	p.reload()
	p.seesIn(".lane", "analytic", "desk", "Noted: Look into") // what was streamed is redrawn
	evaluate[bool](p, `document.querySelectorAll(".lane summary").forEach(e => e.click()), true`)
	p.sees("Task", "Think about: ask both about tea")
	require.Empty(t, p.barriers())

	m.hold()
	p.send("Say it slowly")
	p.sees("The first half comes at once, up to")
	p.seesNo("second half")
	p.has("button", "Stop (Esc)")
	p.reload()
	p.sees("The first half comes at once, up to")
	second := p.beside()
	second.open("#/chats/" + chat)
	other := newTab(t, s.url) // another browser
	other.open("#/chats/" + chat)
	for _, q := range []*tab{second, other} {
		q.sees("Say it slowly", "The first half comes at once, up to")
		q.seesNo("second half")
	}
	m.release()
	for _, q := range []*tab{p, second, other} {
		q.sees(slowly)
		q.idle()
	}
	require.Equal(t, []string{"Say it slowly", slowly}, last(s.told(chat), 2))

	second.send("Written in the second tab")
	p.sees("You said: Written in the second tab")
	m.hold()
	p.send("Stop when it comes slowly")
	p.seesIn("[aria-busy=true]", "The first half comes at once, up to the")
	p.press("\x1b")
	p.sees("stopped early")
	p.idle()
	m.release()

	p.click("button", fork)
	p.until("another chat", func() bool { return p.chat() != chat })
	p.sees("stopped early")
	p.send("Only in the fork")
	p.sees("You said: Only in the fork")
	p.idle()
	require.Len(t, s.told(p.chat()), 10)
	require.Len(t, s.told(chat), 8)
}

func last(all []string, n int) []string { return slices.Clone(all[max(0, len(all)-n):]) }

// Documents, a person's yes, notes and redaction, from the chat to the memory.
func TestAChatWithMoreThanWords(t *testing.T) {
	t.Parallel()
	m := &model{}
	s := service{t, "http://" + run(t, "up", configuration(t), m.environ(t)...).Webmemory}
	s.request(http.StatusCreated, "PUT", "/v1/collections/docs", "", "")
	p := newTab(t, s.url)
	p.open("#/chats/trip")
	p.has("button", "Give a file to this chat")
	p.choose(map[string]string{"ferry.md": "# Ferry\n\nA ferry ticket costs 14 crowns."})
	p.sees("1 passage")
	p.send("What does the ferry cost?")
	p.sees("A ferry ticket costs 14 crowns", "1 source")
	p.click("button", "1")
	p.seesIn(".quote", "A ferry ticket costs 14 crowns.")
	p.idle()

	p.send("refund my ticket")
	p.sees("The run waits for you", "refund", `"cents": 1400`)
	require.Empty(t, p.barriers())
	second := p.beside()
	second.open("#/chats/trip")
	second.sees("The run waits for you")
	p.click("radio", "Yes, do it")
	p.click("button", "Answer")
	p.sees(`They say: Done: `)
	second.sees(`They say: Done: `)
	second.hasNo("form", "The run waits for you")
	p.idle()

	p.send("Remember: my locker is number 4471")
	p.sees("They say: Noted: Remember")
	p.idle()
	p.open("#/memory/trip")
	p.has("button", "Copy the key")
	p.sees("chat_history:trip", "my locker is number 4471")
	require.Empty(t, p.barriers())
	p.write("Search what was said", "locker number")
	p.sees("pieces found", "my locker is number 4471")
	p.press("\x1b")
	p.click("button", "Redact")
	p.sees("Redact what was said?", "messages lose their text")
	require.Empty(t, p.barriers())
	p.click("button", "Redact")
	p.sees("messages were redacted")
	p.click("button", "Close")
	p.sees("(redacted)")
	p.write("Search what was said", "locker number")
	p.sees("Nothing that was said matches.")
	require.NotContains(t, strings.Join(s.told("trip"), " "), "4471")
	p.press("\x1b")

	p.open("#/memory/trip/~notes")
	p.write("What must always be known, in a sentence", "Prefers the train. "+hostile("note"))
	p.press("\r")
	p.sees("Prefers the train. " + hostile("note"))
	p.open("#/memory/trip/desk")
	p.sees("<svg onload=")
	require.Empty(t, p.barriers())
	require.False(t, evaluate[bool](p, "'hurt' in window"))
}
