package app_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/ragtest"
	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
)

// trickster is a model for every agent of a mneme. As the master it asks the knowledge
// subagent and then the panel; the agent that is to play the trick says it, all others
// repeat the passage. As a panel it says it in every part of a discussion or a plan.
type trickster struct {
	who  atomic.Value // "master", "knowledge", "discuss" or "ensemble"
	says atomic.Value
}

func (m *trickster) play(who, text string) { m.who.Store(who); m.says.Store(text) }

func (m *trickster) answer(r *upstreamtest.Request) *upstreamtest.Answer {
	offers := func(name string) bool {
		return slices.ContainsFunc(r.Tools, func(t upstreamtest.Tool) bool { return t.Name == name })
	}
	who, trick := m.who.Load().(string), m.says.Load().(string)
	as := func(name string) string {
		if who == name {
			return trick
		}
		return "A ferry ticket costs 14 crowns [1]."
	}
	object := func(fields map[string]any) string { raw, _ := json.Marshal(fields); return string(raw) }
	use := func(tool string, fields map[string]any) *upstreamtest.Answer {
		a := upstreamtest.Reply(upstreamtest.Use(tool, object(fields)))
		return &a
	}
	say := func(text string) *upstreamtest.Answer { a := upstreamtest.Reply(upstreamtest.Say(text)); return &a }
	body := string(r.Body)
	switch {
	case offers("search_documents") && len(r.Results) == 0:
		return use("search_documents", map[string]any{"query": "ferry ticket"})
	case offers("search_documents"):
		return say(as("knowledge"))
	case offers("knowledge") && len(r.Results) == 0:
		return use("knowledge", map[string]any{"task": "What does a ferry ticket cost?"})
	case offers("knowledge") && len(r.Results) == 1 && (who == "discuss" || who == "ensemble"):
		return use(who, map[string]any{"task": "What does a ferry ticket cost?"})
	case offers("knowledge"):
		return say(as("master"))
	case offers("create_plan"):
		return use("create_plan", map[string]any{"objective": trick, "reasoning": trick, "tasks": []string{trick}})
	case strings.Contains(body, "You moderate"):
		return say(object(map[string]any{"conclusion": trick, "key_points": []string{trick}, "consensus": []string{},
			"disagreements": []string{}}))
	case strings.Contains(body, "You judge a plan"):
		return say(object(map[string]any{"score": 5, "reasoning": trick}))
	}
	return say(trick)
}

const tricksFile = `
proxy: {active: model, backends: {model: {kind: openai, base_url: %q}}}
panel: {members: [{name: one}, {name: two}]}
`

// tricked is a mneme with a hostile model and one document.
func tricked(t *testing.T) (*up, *trickster) {
	m := &trickster{}
	vendor := httptest.NewServer(upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: m.answer}))
	t.Cleanup(vendor.Close)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mneme.yaml", fmt.Appendf(nil, tricksFile, vendor.URL+"/v1"), 0o600))
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	u.load(map[string]string{})
	document, err := json.Marshal(map[string]string{"title": "Ferry", "text": ragtest.Passage, "source": ragtest.Source})
	require.NoError(t, err)
	status, body := u.request("PUT", "/v1/collections/docs/documents/ferry", "application/json", string(document))
	require.Equal(t, 201, status, body)
	return u, m
}

// shown is what a run shows of answers: its text in pieces, and the texts of all events.
func shown(events []event.Event) (streamed string, all []string, answer event.Assistant) {
	for _, e := range events {
		switch p := e.Payload.(type) {
		case *event.AssistantDelta:
			streamed += p.Text
		case *event.SubagentDelta:
			all = append(all, p.Text)
		case *event.ToolProgress:
			all = append(all, p.Detail)
		case *event.Completion:
			all = append(all, p.Response)
			if p.Answer != nil {
				all = append(append(all, p.Answer.Answer), p.Answer.Missing...)
			}
		case *event.Assistant:
			answer = *p
		}
	}
	return streamed, append(all, streamed, answer.Content), answer
}

// On the way that every message takes no trick reaches the user, whichever agent plays it:
// neither in what is streamed, nor in what is stored. Every so many of the tricks are tried.
func noTrickReachesTheUser(t *testing.T, every int) {
	u, m := tricked(t)
	chat := 0
	tricks := ragtest.Tricks
	if testing.Short() {
		tricks = tricks[:5]
	}
	subagents := []string{"knowledge", "discuss", "ensemble"} // each plays every third; all pass the same check
	for i, trick := range tricks {
		if i%every != 0 {
			continue
		}
		for _, who := range []string{"master", subagents[i%len(subagents)]} {
			chat++
			m.play(who, trick.Text)
			streamed, all, answer := shown(u.stream(fmt.Sprint(chat), ragtest.Question))
			require.Equal(t, answer.Content, streamed, "what was streamed is what is kept")
			for _, text := range all {
				if text != "" {
					ragtest.RequireHarmless(t, ragtest.Trick{Name: who + ": " + trick.Name, Text: trick.Text, Not: trick.Not}, text)
				}
			}
			require.Equal(t, answer.Content, u.last(fmt.Sprint(chat)))
			for _, c := range answer.Citations {
				require.Equal(t, 1, c.N)
				require.Contains(t, answer.Content, "[1]")
			}
		}
	}
}

// last is the content of the last message that is stored of a chat.
func (u *up) last(chat string) string {
	u.t.Helper()
	status, body := u.request("GET", "/v1/chats/"+chat+"/history", "", "")
	require.Equal(u.t, 200, status, body)
	var page struct{ Messages []memory.Message }
	require.NoError(u.t, json.Unmarshal([]byte(body), &page))
	require.NotEmpty(u.t, page.Messages)
	return page.Messages[len(page.Messages)-1].Content
}

// What nothing supports is named to the reader, whichever agent says it; what is right
// stays as it is, with its citation.
func TestTheMastersAnswerIsChecked(t *testing.T) {
	u, m := tricked(t)
	for i, who := range []string{"master", "knowledge"} {
		m.play(who, ragtest.Invented)
		streamed, all, answer := shown(u.stream(fmt.Sprint(100+i), ragtest.Question))
		for _, note := range ragtest.InventedNotes {
			require.Contains(t, strings.Join(all, "\n"), note)
		}
		if who == "master" {
			require.Equal(t, answer.Content, streamed)
			require.Contains(t, answer.Flags, event.Flag{Kind: "unverified", Text: "99"})
		}
	}
	for i, text := range ragtest.Honest {
		m.play("master", text)
		_, _, answer := shown(u.stream(fmt.Sprint(200+i), ragtest.Question))
		require.Equal(t, text, answer.Content)
		require.Empty(t, answer.Flags)
		if strings.Contains(text, "14 crowns [1]") {
			require.Len(t, answer.Citations, 1)
			require.NotEmpty(t, answer.Citations[0].Quote)
		}
	}
	// A number that an earlier answer had belongs to no passage in this run.
	m.play("master", "As I said, 14 crowns [3].")
	_, _, answer := shown(u.stream("200", ragtest.Question))
	require.Equal(t, "As I said, 14 crowns.", answer.Content)
	require.Empty(t, answer.Citations)
}
