package pagetest

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"mneme/internal/upstreamtest"
)

// shots is the folder that TestScreenshots writes into; empty: it is skipped.
var shots = flag.String("shots", "", "write a picture of each view into this `folder`")

// story is a model that plans a trip: for the question about the locker it asks analytic and knowledge at once.
func story(r *upstreamtest.Request) *upstreamtest.Answer {
	reply := func(blocks ...upstreamtest.Block) *upstreamtest.Answer {
		a := upstreamtest.Reply(blocks...)
		return &a
	}
	offers := func(name string) bool {
		return slices.ContainsFunc(r.Tools, func(t upstreamtest.Tool) bool { return t.Name == name })
	}
	use := func(tool, member, value string) upstreamtest.Block {
		arguments, _ := json.Marshal(map[string]string{member: value})
		return upstreamtest.Use(tool, string(arguments))
	}
	switch done := len(r.Results) > 0; {
	case strings.HasPrefix(r.User, "### Task:"):
		return reply(upstreamtest.Say("Watering the tomatoes"))
	case offers("search_documents") && !done:
		return reply(use("search_documents", "query", "price of a ferry ticket"))
	case offers("search_documents"):
		return reply(upstreamtest.Say("A ticket costs 14 crowns, and the last ferry leaves at 21:40 [1]."))
	case offers("refund") && !done:
		return reply(upstreamtest.Use("refund", `{"cents": 1400}`))
	case !offers("analytic"):
		return reply(upstreamtest.Say("It is the one that was named in March, and nothing has changed it since."))
	case done:
		return reply(upstreamtest.Say("Your locker is **4471**: you told me in March, and nothing has changed it " +
			"since.\n\nThe ferry costs 14 crowns, and the last one leaves at 21:40 [1]."))
	case strings.Contains(r.User, "locker"):
		return reply(use("analytic", "task", "Which locker at the ferry terminal is the user's, and is that still so?"),
			use("knowledge", "task", "What does the ferry cost, and when does the last one leave?"))
	case strings.Contains(r.User, "sketch"):
		return reply(upstreamtest.Say("The ramp of your sketch, in Go:\n\n```go\n// Slope is how steep a ramp is, in percent.\n" +
			"func Slope(rise, run float64) (float64, error) {\n\tif run == 0 {\n\t\treturn 0, errors.New(\"a ramp has a length\")\n" +
			"\t}\n\treturn 100 * rise / run, nil\n}\n```\n\nand what changes in the plan:\n\n```diff\n@@ -3 +3 @@\n" +
			"-ramp: 12 %\n+ramp: 8 %\n```"))
	case strings.Contains(r.User, "back"):
		return reply(use("desk", "task", "Pay back one ferry ticket."))
	}
	return reply(upstreamtest.Say("Noted. I will keep that in mind for the trip."))
}

// memoryOfMonths is a memory of some months: much small talk, and early in it where the locker is.
func memoryOfMonths() string {
	var lines strings.Builder
	began := time.Date(2026, time.March, 3, 9, 12, 0, 0, time.UTC)
	say := func(at time.Time, role, text string) {
		message := map[string]any{"role": role, "content": text, "timestamp": at.Unix()}
		raw, _ := json.Marshal(map[string]any{"message": message})
		lines.Write(append(raw, '\n'))
	}
	say(began, "user", "My locker at the ferry terminal is number 4471, please keep that.")
	say(began.Add(time.Minute), "assistant", "Kept: locker 4471 at the ferry terminal.")
	for day := range 180 {
		at := began.AddDate(0, 0, day+1)
		say(at, "user", fmt.Sprintf("Day %d: what should I read about the island today?", day+1))
		say(at.Add(time.Minute), "assistant", "Its churches, its birds, or its bakeries: which of them do you like?")
	}
	return lines.String()
}

// TestScreenshots takes a picture of each view in light and dark, and as wide as a phone:
//
//	go test ./cmd/mneme/internal/pagetest -run Screenshots -args -shots /tmp/shots
func TestScreenshots(t *testing.T) {
	if *shots == "" {
		t.Skip("takes pictures into the folder of -shots")
	}
	require.NoError(t, os.MkdirAll(*shots, 0o755))
	vendor := httptest.NewServer(upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: story}))
	t.Cleanup(vendor.Close)
	s := service{t, "http://" + run(t, "up", configuration(t), backendEnviron(vendor)...).Webmemory}
	p := newTab(t, s.url)
	shoot := func(name string) {
		for _, scheme := range []string{"light", "dark"} {
			p.scheme(scheme)
			p.shoot(name + "-" + scheme)
		}
		p.scheme("light")
		p.width(390)
		p.shoot(name + "-phone")
		p.width(1280)
	}
	p.open("")
	p.sees("What should be remembered?")
	shoot("welcome")

	s.request(http.StatusCreated, "POST", "/v1/chats/trip/import", "application/x-ndjson", memoryOfMonths())
	s.request(http.StatusCreated, "PUT", "/v1/collections/docs", "", "")
	s.request(http.StatusCreated, "PUT", "/v1/collections/old-letters", "", "")
	for id, text := range map[string]string{
		"ferry.md":  "# Ferry\n\n## Tickets\n\nA ferry ticket costs 14 crowns. The last ferry leaves at 21:40.",
		"museum.md": "# Museum\n\nThe museum opens at ten o'clock and is closed on Mondays. A ticket costs 9 crowns.",
		"island/churches.md": "# Churches\n\n" +
			strings.Repeat("The church of the northern village was built of limestone. ", 60) +
			"\n\n## Towers\n\nSome of the towers can be climbed, for a ticket of 5 crowns.",
	} {
		s.request(http.StatusCreated, "PUT", "/v1/collections/docs/documents/"+id, "text/markdown", text)
	}
	s.say("garden", "Remember that the tomatoes want to be watered on Thursdays")
	for chat, title := range map[string]string{"trip": "A week on the island", "garden": "The garden"} {
		s.request(http.StatusOK, "PATCH", "/v1/chats/"+chat, "application/json", fmt.Sprintf(`{"title": %q}`, title))
	}
	p.open("#/chats/trip")
	p.sees("Day 180", "A week on the island")
	p.send("What was the number of my locker, and when does the last ferry leave?")
	p.sees("Your locker is 4471")
	p.idle()
	evaluate[bool](p, `document.querySelector(".message:last-of-type .recalled summary")?.click(), true`)
	p.sees("My locker at the ferry terminal")
	shoot("chat")
	p.do(chromedp.EmulateViewport(900, 640))
	evaluate[bool](p, `document.querySelector(".talk").scrollTop = 1e9, true`)
	p.shoot("page") // docs/page.png
	p.width(1280)
	evaluate[bool](p, `document.querySelectorAll(".message:last-of-type .lane summary").forEach(e => e.click()), true`)
	shoot("chat-lanes")
	p.open("#/runs/trip")
	p.sees("What was the number of my locker")
	shoot("runs")
	p.click("link", "What was the number of my locker*")
	p.has("list", "Steps")
	shoot("run")
	p.open("#/chats/trip")
	p.send("I lost a ticket. Can I have my money back?")
	p.sees("The run waits for you")
	shoot("approval")

	s.request(http.StatusOK, "PATCH", "/v1/chats/garden", "application/json", `{"pinned": true}`)
	p.open("#/chats/pier")
	p.has("button", "Add images")
	p.hand(".chat", "drop", "", aFile{"pier.png", "image/png", picture(t, "png", color.RGBA{60, 110, 160, 255})})
	p.images(waiting, 1)
	p.send("How steep is the ramp of this sketch?")
	p.sees("and what changes in the plan")
	p.idle()
	p.images(".message.user", 1)
	p.seesIn(".code-keyword", "func")
	p.hand(".chat", "drop", "", aFile{"north.png", "image/png", picture(t, "png", color.RGBA{160, 90, 60, 255})},
		aFile{"plan.svg", "image/svg+xml", "<svg/>"})
	p.images(waiting, 1)
	shoot("chat-images")
	p.open("#/chats")
	shoot("chat-list")

	p.open("#/memory/trip")
	p.sees("chat_history:trip", "Day 180")
	shoot("memory")
	p.write("Search what was said", "locker at the terminal")
	p.sees("pieces found")
	shoot("memory-search")
	p.open("#/memory/trip/~notes")
	p.sees("No notes.")
	shoot("memory-notes")

	p.open("#/documents")
	p.sees("Choose a collection")
	shoot("documents")
	p.open("#/documents/docs")
	p.choose(map[string]string{"boats.csv": "name,seats\nSaga,40\nFreja,12\n",
		"old.doc": "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"})
	p.sees("2 of 2 done")
	shoot("collection")
	p.write("Search in docs", "what does a ticket cost")
	p.press("\r")
	p.sees("score")
	shoot("documents-search")
	p.open("#/documents/docs/island%2Fchurches.md")
	p.sees("Passage 1")
	shoot("document")
}

// shoot writes a picture of the window as name.png.
func (p *tab) shoot(name string) {
	p.t.Helper()
	picture, err := get(p, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o644))
}
