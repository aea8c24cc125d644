package pagetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	webapi "mneme/webmemory/api"
)

// A list of more than a thousand chats is read to its end, the oldest of them is found, and it is called by its title
// wherever it is open.
func TestManyChats(t *testing.T) {
	t.Parallel()
	const chats = 1100
	server := redistest.Start(t)
	look := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = look.Close() })
	stored := []any{"chat_history:a", `[{"role":"user","content":"## The **lighthouse** of _Oyuna_"}]`}
	for i := range chats { // as another program leaves them, so that they are listed when the service starts
		stored = append(stored, fmt.Sprint("chat_history:n", i), fmt.Sprintf(`[{"role":"user","content":"Question %d"}]`, i))
	}
	require.NoError(t, look.MSet(t.Context(), stored...).Err())
	m := &model{}
	environ := append(m.environ(t), "MNEME_REDIS_URL="+server.URL())
	s := service{t, "http://" + run(t, "up", configuration(t), environ...).Webmemory}
	require.Eventually(t, func() bool { // all of them are listed: none comes between those that were read
		var list webapi.ChatList
		s.get("/v1/chats?order=used&q=lighthouse", &list)
		return len(list.Chats) == 1 && look.ZScore(t.Context(), "mneme:chats", "*filled").Err() == nil
	}, patience, 50*time.Millisecond)
	p := newTab(t, s.url)
	const title = "## The **lighthouse** of _Oyuna_"
	p.open("#/chats/a")
	p.seesIn("h1", title)
	p.until("the tab's title", func() bool { return evaluate[string](p, "document.title") == title+" · Chats · mneme" })
	listed := func() int { return evaluate[int](p, `document.querySelectorAll(".side-list .entry").length`) }
	p.until("the first page", func() bool { return listed() == 50 })
	for listed() <= chats {
		before := listed()
		p.click("button", "Show more")
		p.until("more chats", func() bool { return listed() > before })
	}
	require.Equal(t, chats+1, listed())
	p.hasNo("button", "Show more")
	p.seesIn(".entry[aria-current]", title)

	p.reload()
	p.write("Search chats", "LIGHTHOUSE")
	p.until("what is found", func() bool { return listed() == 1 })
	p.open("#/memory/a")
	p.seesIn("h1", title)
	p.until("the tab's title", func() bool { return evaluate[string](p, "document.title") == title+" · Memory · mneme" })
	p.open("#/runs/a")
	p.seesIn("h1", title)
}

// A text that is made to take long is shown as it is, and holds nothing up.
func TestTextsThatTakeLong(t *testing.T) {
	_, s, p := visit(t)
	answers := map[string]string{"emphasis": strings.Repeat("_a*", 32<<10/3), "brackets": strings.Repeat("[", 32<<10),
		"quotes": strings.Repeat(">", 10<<10), "stars": strings.Repeat("**", 16<<10), "table": "|a|b|\n|-|-|\n" +
			strings.Repeat("|_x|*y|\n", 4<<10), "lists": strings.Repeat("- ", 16<<10)}
	for chat, answer := range answers {
		message := map[string]any{"role": "assistant", "content": answer + " the end"}
		raw, err := json.Marshal(map[string]any{"message": message})
		require.NoError(t, err)
		s.request(http.StatusCreated, "POST", "/v1/chats/"+chat+"/import", "application/x-ndjson",
			`{"message":{"role":"user","content":"Hello"}}`+"\n"+string(raw))
	}
	p.open("")
	p.sees("What should be remembered?")
	// How long the page is held up is told, not judged: the machine may have other things to do.
	evaluate[bool](p, `(() => {
		let last = performance.now(), longest = 0;
		const turn = () => {
			longest = Math.max(longest, performance.now() - last);
			last = performance.now();
			setTimeout(turn, 0);
		};
		turn();
		window.heldUp = () => [longest, longest = 0][0];
		return true;
	})()`)
	for chat := range answers {
		evaluate[float64](p, "heldUp()")
		began := time.Now()
		p.open("#/chats/" + chat)
		p.seesIn(".message", "the end")
		shown := time.Since(began)
		t.Logf("%s: the page was held up for %.0f ms; shown after %s", chat, evaluate[float64](p, "heldUp()"), shown)
	}
	p.open("#/chats/emphasis")
	p.until("the plain text", func() bool { return strings.Contains(p.textOf(".message pre.plain"), "_a*_a*") })
	s.request(http.StatusCreated, "POST", "/v1/chats/plain/import", "application/x-ndjson",
		`{"message":{"role":"user","content":"Hello"}}`+"\n"+
			`{"message":{"role":"assistant","content":"It is **bold**. `+strings.Repeat("And so on, `ok`. ", 200)+`"}}`)
	p.open("#/chats/plain")
	p.seesIn(".message strong", "bold")
	require.Equal(t, 200, evaluate[int](p, `document.querySelectorAll(".message code").length`), "it is read whole")
}
