package pagetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	webapi "mneme/webmemory/api"
)

// Names of what the page offers, as a screen reader says them.
const (
	field      = "Write a message"
	edit       = "Edit: takes back what follows"
	regenerate = "Answer anew: takes back what follows"
	fork       = "Go on from here in a new chat"
	who        = "Who answers"
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

// cutShort sends a message with an answer that comes slowly, and stops it in its middle.
func (p *tab) cutShort(m *model) {
	p.t.Helper()
	m.hold()
	p.send("Stop when it comes slowly")
	p.seesIn("[aria-busy=true]", "The first half comes at once, up to the")
	p.press("\x1b")
	p.sees("stopped early")
	p.idle()
	m.release()
}

// The first minute of a user of the page: what to type is said, lanes show which agent works, an answer is followed
// over a reload and in a second tab, and what was said is corrected, taken back and forked.
func TestAChat(t *testing.T) {
	m, s, p := visit(t)
	p.open("")
	p.sees("What should be remembered?", "Tell the analytic subagent")
	require.Empty(t, p.barriers())

	p.send("ask both about tea")
	p.sees("They say: Noted: Think about: ask both about tea Noted: Look into: ask both about tea")
	chat := p.chat()
	p.seesIn(".lane", "analytic", "desk", "done")
	p.idle()
	p.seesIn("h1", aTitle)
	p.seesIn(".entry[aria-current]", aTitle)
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
	p.cutShort(m)

	p.click("button", fork)
	p.until("another chat", func() bool { return p.chat() != chat })
	p.sees("stopped early")
	p.send("Only in the fork")
	p.sees("You said: Only in the fork")
	p.idle()
	require.Len(t, s.told(p.chat()), 10)
	require.Len(t, s.told(chat), 8)
	require.Equal(t, 1, m.asked())
}

// A title is asked for once, and one that a user sets meanwhile stays.
func TestATitle(t *testing.T) {
	m, s, p := visit(t)
	p.open("#/chats/named")
	m.hold()
	p.send("Say it slowly")
	p.sees("up to the middle")
	title := func(to string) {
		s.request(http.StatusOK, "PATCH", "/v1/chats/named", "application/json", fmt.Sprintf(`{"title": %q}`, to))
	}
	title("My own")
	m.release()
	p.sees(slowly)
	p.until("the question for a title", func() bool { return m.asked() == 1 })
	p.seesIn("h1", "My own")
	p.click("button", regenerate)
	p.sees("What was taken back can be put back")
	p.idle()
	p.send("Something else")
	p.sees("You said: Something else")
	p.idle()
	require.Equal(t, 1, m.asked())
	require.NotContains(t, p.text(), aTitle)

	m.untitle()
	p.open("#/chats/unnamed")
	p.send("How it begins")
	p.sees("You said: How it begins")
	p.until("the question for a title", func() bool { return m.asked() == 2 })
	p.idle()
	p.seesIn("h1", "How it begins")
}

// A title is plain text: the page shows it as it is stored, and Rename edits the stored value.
func TestATitleIsPlainText(t *testing.T) {
	m, s, p := visit(t)
	m.untitle()
	titles := []string{"fix __init__.py", "snake_case_name", "**bold** text", "__init__", "a*b*c", "`code`", "<b>x</b>",
		"# heading", "[a](b) ~~c~~", "_x_ and *y*", strings.Repeat("long__title ", 14) + "end"}
	for i, title := range titles {
		chat := fmt.Sprint("plain", i)
		raw, err := json.Marshal(map[string]any{"message": map[string]string{"role": "user", "content": title}})
		require.NoError(t, err)
		s.request(http.StatusCreated, "POST", "/v1/chats/"+chat+"/import", "application/x-ndjson", string(raw))
		if i%2 == 1 || len(title) > 80 { // else the title is the beginning of the message
			raw, err = json.Marshal(map[string]string{"title": title})
			require.NoError(t, err)
			s.request(http.StatusOK, "PATCH", "/v1/chats/"+chat, "application/json", string(raw))
		}
		p.open("#/chats/" + chat)
		p.until("the heading", func() bool { return p.textOf("h1") == title })
		p.until("the entry", func() bool { return p.textOf(".entry[aria-current] > .cut") == title })
		p.until("the tab's title", func() bool { return evaluate[string](p, "document.title") == title+" · Chats · mneme" })
		p.has("button", "Erase "+title)
		p.click("button", "Rename")
		p.until("the field", func() bool {
			return evaluate[string](p, `document.querySelector(".page-top form input")?.value ?? ""`) == title
		})
		p.click("button", "Rename")
		p.until("the heading", func() bool { return p.textOf("h1") == title })
		var info webapi.ChatInfo
		s.get("/v1/chats/"+chat, &info)
		require.Equal(t, title, info.Title)
		p.open("#/runs/" + chat)
		p.until("the heading of the runs", func() bool { return p.textOf("h1") == title })
	}
}

// The page removes marks around a title that a model made, and none within it.
func TestATitleOfAModel(t *testing.T) {
	_, _, p := visit(t)
	p.open("#/chats")
	for said, want := range map[string]string{
		"fix __init__": "fix __init__", "__init__.py": "__init__.py", "`code`": "`code`", "**Bold** text": "**Bold** text",
		"“Tea.”": "Tea", "\"Tea\".": "Tea", "# Tea\nMore": "Tea", "**Tea**": "Tea", "'tis tea": "'tis tea", "*": "",
		"“Tea” and “milk”": "“Tea” and “milk”", "<think>x</think>\n«Чай»": "Чай", "“.”": "", "C#": "C#", "Wait...": "Wait...",
	} {
		require.Equal(t, want, evaluate[string](p, `import("./ui/title.js").then((m) => m.cleaned(`+quoted(said)+`))`), said)
	}
}

// The list of runs, a run's steps and the lane of a subagent show the words of messages unchanged.
func TestWordsWithMarksInside(t *testing.T) {
	_, s, p := visit(t)
	s.say("marks", "ask both about __init__.py, a*b*c and x**y**z")
	p.open("#/chats/marks")
	p.seesIn(".lane-said", "Noted: Think about: ask both about __init__.py, a*b*c and x**y**z")
	p.open("#/runs/marks")
	p.seesIn(".rows", "ask both about __init__.py, a*b*c and x**y**z")
	evaluate[bool](p, `document.querySelector(".rows a").click(), true`)
	p.seesIn("ol.steps", "ask both about __init__.py, a*b*c and x**y**z")
}

// The agent that one writes to is chosen for each chat, by keyboard, and kept.
func TestWhoAnswers(t *testing.T) {
	_, s, p := visit(t)
	p.open("#/chats/direct")
	p.has("combobox", who)
	p.tabTo(who)
	p.press("desk")
	require.Empty(t, p.barriers())
	chosen := func(name string) {
		t.Helper()
		p.until(name, func() bool {
			return evaluate[string](p, `document.querySelector(".composer select")?.value ?? ""`) == name
		})
	}
	chosen("desk")
	p.send("Good morning")
	p.sees("Noted: Good morning")
	p.idle()
	p.reload()
	chosen("desk")
	p.send("Good evening")
	p.sees("Noted: Good evening")
	p.idle()
	require.Equal(t, []string{"Good morning", "Noted: Good morning", "Good evening", "Noted: Good evening"},
		s.told("direct"))
	p.open("#/chats/other")
	chosen("master")
	p.send("Good night")
	p.sees("You said: Good night")
	p.click("button", "Русский")
	p.has("combobox", "Кто отвечает")
}

// A tool asks a person by a form, and is told what was filled in; the agent is told that nothing was.
func TestAToolAsks(t *testing.T) {
	_, _, p := visit(t)
	p.open("#/chats/seat")
	p.send("book a seat")
	p.sees("The run waits for you", "Which seat?")
	require.Empty(t, p.barriers())
	p.reload()
	p.sees("Which seat?")
	p.click("radio", "Fill in")
	p.has("spinbutton", "Seats*")
	require.Empty(t, p.barriers())
	p.write("Name *", "Tuya")
	p.click("checkbox", "window")
	p.on("combobox", "class", false, `function () { this.focus(); return true }`)
	p.press("s")
	p.write("Seats*", "12")
	p.click("button", "Answer")
	p.sees("Which seat?") // twelve are more than there may be
	p.write("Seats*", "2")
	p.press("\r")
	p.sees("They say: Done: ", `{"class":"second","name":"Tuya","seats":2,"window":true}`)
	p.idle()
	p.send("book another seat")
	p.sees("Which seat?")
	p.click("radio", "No")
	p.click("button", "Answer")
	p.sees("They say: Done: (denied by a person)")
}

func last(all []string, n int) []string { return slices.Clone(all[max(0, len(all)-n):]) }

// Documents, a person's yes, notes and redaction, from the chat to the memory.
func TestAChatWithMoreThanWords(t *testing.T) {
	_, s, p := visit(t)
	s.request(http.StatusCreated, "PUT", "/v1/collections/docs", "", "")
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
	second.seesNo("The run waits for you") // nor is it said to users of a screen reader
	p.idle()

	p.send("Remember: my locker is number 4471")
	p.sees("They say: Noted: Remember")
	p.idle()
	p.open("#/memory/trip")
	p.has("button", "Copy the key")
	p.sees("chat_history:trip", "my locker is number 4471")
	require.Empty(t, p.barriers())
	exported := s.request(http.StatusOK, "GET", "/v1/chats/trip/export", "", "")
	require.Equal(t, string(exported), p.download("Export", "trip.ndjson"))
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
