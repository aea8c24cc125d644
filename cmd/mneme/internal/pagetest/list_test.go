package pagetest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	webapi "mneme/webmemory/api"
)

// A chat is pinned in the list, stays above those that are used after it, on whatever page it is and in another
// browser, and is unpinned.
func TestAPinnedChat(t *testing.T) {
	_, s, p := visit(t)
	for i := range 60 {
		s.request(http.StatusCreated, "POST", fmt.Sprintf("/v1/chats/n%02d/import", i), "application/x-ndjson",
			fmt.Sprintf(`{"message":{"role":"user","content":"Question %02d"}}`, i))
	}
	first := func(q *tab, want ...string) {
		t.Helper()
		q.until(strings.Join(want, ", "), func() bool {
			return slices.Equal(want, evaluate[[]string](q, fmt.Sprintf(
				`[...document.querySelectorAll(".entry > .cut")].slice(0, %d).map((e) => e.innerText)`, len(want))))
		})
	}
	p.open("#/chats/n03")
	first(p, "Question 59", "Question 58")
	p.click("button", "Show more")
	p.click("button", "Pin Question 03 above the others")
	first(p, "Question 03", "Question 59")
	p.tabTo("Pin Question 58 above the others")
	p.press("\r")
	first(p, "Question 58", "Question 03", "Question 59", "Question 57")
	require.Equal(t, 60, evaluate[int](p, `document.querySelectorAll(".side-list .entry").length`), "each stands once")
	require.Empty(t, p.barriers())

	other := newTab(t, s.url)
	other.open("")
	first(other, "Question 58", "Question 03", "Question 59")
	other.open("#/memory")
	first(other, "Question 58", "Question 03", "Question 59")
	other.open("#/chats")
	other.write("Search chats", "question 0")
	first(other, "Question 03", "Question 09")
	s.say("n20", "A new one")
	first(p, "Question 58", "Question 03", "Question 20", "Question 59")
	p.click("button", "Unpin Question 58")
	first(p, "Question 03", "Question 20", "Question 59", "Question 58")
	p.click("button", "Русский")
	p.has("button", "Открепить Question 03")
	p.has("button", "Стереть Question 03")
}

// A chat is erased from the list, after a question.
func TestErasingInTheList(t *testing.T) {
	_, s, p := visit(t)
	for _, chat := range []string{"keep", "open", "else"} {
		s.say(chat, "I am "+chat)
	}
	p.open("#/chats/open")
	p.sees("You said: I am open")
	p.click("button", "Erase I am else")
	p.sees("Erase this chat?", "documents of I am else go")
	require.Empty(t, p.barriers())
	p.press("\x1b")
	p.seesNo("Erase this chat?")
	p.until("the focus is back", func() bool { return p.focused() == "Erase I am else" })
	p.press("\r")
	p.sees("Erase this chat?")
	p.click("button", "Erase")
	p.seesNo("I am else")
	p.sees("You said: I am open") // what is open stays
	p.tabTo("Erase I am open")
	p.press("\r")
	p.click("button", "Erase")
	p.seesNo("I am open")
	p.sees("What should be remembered?")
	require.Equal(t, "#/chats", evaluate[string](p, "location.hash"))
	var info webapi.ChatInfo
	s.get("/v1/chats/open", &info)
	require.Empty(t, info.Histories)
	p.send("Something new")
	p.sees("You said: Something new")
	require.NotEqual(t, "open", p.chat())
	require.Len(t, s.told("keep"), 2)
}
