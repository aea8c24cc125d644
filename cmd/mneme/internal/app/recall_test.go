package app_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
)

// told fills a memory of a chat, its own or a subagent's, with so many messages from January
// 2024 on, one each eight hours, in some of which something is told.
func (u *up) told(chat string, subagent memory.Agent, messages int, told map[int]string) {
	u.t.Helper()
	var lines strings.Builder
	at := time.Date(2024, 1, 1, 10, 0, 0, 0, time.UTC)
	for i := range messages {
		m := memory.Message{Role: memory.RoleUser, Content: fmt.Sprintf("Small talk number %d about tea.", i)}
		if i%2 == 1 {
			m = memory.Message{Role: memory.RoleAssistant, Content: "Indeed."}
		}
		if text := told[i]; text != "" {
			m.Content = text
		}
		m.ID, m.Timestamp = fmt.Sprintf("m.%d", i), event.Seconds(at.Add(time.Duration(i)*8*time.Hour))
		line, err := json.Marshal(webapi.ExportLine{Subagent: subagent, Message: m.Encode()})
		require.NoError(u.t, err)
		fmt.Fprintln(&lines, string(line))
	}
	status, body := u.request("POST", "/v1/chats/"+chat+"/import", "application/x-ndjson", lines.String())
	require.Equal(u.t, 201, status, body)
}

// recalled are the events of what was recalled, those of one agent; "" is the master.
func recalled(events []event.Event, agent memory.Agent) (out []*event.Recalled) {
	for _, e := range events {
		if r, ok := e.Payload.(*event.Recalled); ok && e.Subagent == agent {
			out = append(out, r)
		}
	}
	return out
}

// What was told hundreds of messages ago is known, with the time at which it was said, and
// the event says why. What was never said is not known.
func TestWhatWasToldLongAgoIsKnown(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	u := start(t, "MNEME_DATA_DIR="+t.TempDir())
	u.told("7", "", 600, map[int]string{
		4: "My name is Aliya.", 10: "I'm allergic to peanuts.", 300: "I flew to Berlin with Ann.",
		400: "I saw the wall in Berlin.",
	})
	u.told("ru", "", 600, map[int]string{4: "Меня зовут Алия."})
	for question, want := range map[string]struct{ answer, id string }{
		"как меня зовут":                      {"Вас зовут Алия. Вы сказали это 2024-01-02 в 18:00 UTC.", "m.4"},
		"What is my name?":                    {"Your name is Aliya. You said so on 2024-01-02 at 18:00 UTC.", "m.4"},
		"what am I allergic to?":              {"You're allergic to peanuts. You said so on 2024-01-04 at 18:00 UTC.", "m.10"},
		"what did I say about Berlin in May?": {"You saw the wall in Berlin. You said so on 2024-05-13 at 18:00 UTC.", "m.400"},
	} {
		chat := "7"
		if question == "как меня зовут" {
			chat = "ru"
		}
		events := u.stream(chat, question)
		var answer string
		for _, e := range events {
			if a, ok := e.Payload.(*event.Assistant); ok {
				answer = a.Content
			}
		}
		require.Equal(t, want.answer, answer, question)
		of := recalled(events, "")
		require.Len(t, of, 1)
		require.Contains(t, strings.Fields(of[0].String()), want.id)
	}
	require.Contains(t, u.say("7", "What is my sister's name?"), "I don't know")
	require.Contains(t, u.say("8", "What is my name?"), "I don't know", "it is another chat's")
	require.Empty(t, recalled(u.stream("7", "I like the sea."), ""), "nothing is asked")

	// A subagent has what it was told itself, be it delegated to or addressed.
	u.told("9", "analytic", 300, map[int]string{20: "My locker number is 4455."})
	require.Equal(t, "Your locker number is 4455. You said so on 2024-01-08 at 02:00 UTC.",
		u.askSubagent("9", "analytic", "What is my locker number?"))
	events := u.stream("9", "Ask the analytic subagent what my locker number is")
	require.NotEmpty(t, recalled(events, "analytic"))
}

// turns has a model of a vendor that binds thinking to what stands before it answer so many
// questions in a chat, each with a call of a tool, and gives the vendor's requests.
func turns(t *testing.T, n int, environ ...string) (*up, *upstreamtest.Server) {
	vendor := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	u := start(t, append([]string{"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_PROXY_ACTIVE=claude",
		backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`),
		"MNEME_AGENTS_MASTER_REASONING_EFFORT=medium"}, environ...)...)
	u.told("7", "", 300, map[int]string{4: "My name is Aliya."})
	think, say := upstreamtest.Think, upstreamtest.Say
	for i := range n {
		vendor.Queue(
			upstreamtest.Reply(think(fmt.Sprint("before ", i)), upstreamtest.Use("analytic", `{"task":"Is it the same name?"}`)),
			upstreamtest.Reply(think(fmt.Sprint("of ", i)), say("It is.")),
			upstreamtest.Reply(think(fmt.Sprint("after ", i)), say(fmt.Sprintf("It is Aliya, %d.", i))),
		)
		require.Equal(t, fmt.Sprintf("It is Aliya, %d.", i), u.say("7", fmt.Sprintf("What is my name (%d)?", i)))
	}
	require.Empty(t, vendor.Rejections())
	for _, r := range vendor.Requests() {
		require.Zero(t, r.Missing, "the current turn's thinking is kept")
	}
	require.Len(t, vendor.Requests(), 3*n, "no call was made twice")
	return u, vendor
}

// outcomes are how the gateway found conversations, and what it put back but for thinking of older turns.
func outcomes(t *testing.T, u *up) []string {
	return regexp.MustCompile(`(?m)^mneme_proxy_conversation_(?:requests|messages_rebuilt|messages_given_up)_total.*$`).
		FindAllString(metrics(t, u.addrs.Proxy), -1)
}

// texts are the parts of the newest message of the user in a request of the messages dialect that
// is not made of results.
func texts(t *testing.T, body []byte) (out []string) {
	var request struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(body, &request))
	for _, m := range request.Messages {
		var text string
		var blocks []struct{ Type, Text string }
		if m.Role != memory.RoleUser {
			continue
		}
		if json.Unmarshal(m.Content, &text) == nil {
			out = []string{text}
			continue
		}
		require.NoError(t, json.Unmarshal(m.Content, &blocks))
		if blocks[0].Type == "text" {
			out = nil
			for _, b := range blocks {
				out = append(out, b.Text)
			}
		}
	}
	return out
}

// What is recalled is the front part of the newest message of the user, in each call of a
// turn, and is stored nowhere; the gateway finds conversations and puts turns back as it does
// without. Without recall no search is made for it.
func TestWhatIsRecalledIsOfOneTurn(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	redis := redistest.Start(t)
	const n = 4
	with, vendor := turns(t, n, "MNEME_RECALL_AUTO=always", "MNEME_REDIS_URL="+redis.URL())
	blocks := 0
	for _, r := range vendor.Requests() {
		body := string(r.Body)
		count := strings.Count(body, `<recalled nonce=`)
		require.LessOrEqual(t, count, 1, body)
		if !strings.Contains(r.User, "What is my name (") {
			continue
		}
		blocks += count
		parts := texts(t, r.Body)
		require.Len(t, parts, 2)
		require.Contains(t, parts[0], "<said m.4 2024-01-02 18:00>\nuser: My name is Aliya.\n")
		require.Regexp(t, `^What is my name \(\d\)\?$`, parts[1])
	}
	require.Equal(t, 2*n, blocks, "the master's calls")
	for _, key := range redis.Client().Keys(t.Context(), "*").Val() {
		dump := redis.Client().Dump(t.Context(), key).Val()
		require.NotContains(t, dump, "recalled nonce", key)
		require.NotContains(t, dump, "outside of the other messages here", key)
	}
	_, history := with.request("GET", "/v1/chats/7/history", "", "")
	require.NotContains(t, history, "nonce")

	without, vendor := turns(t, n, "MNEME_RECALL_AUTO=off", "MNEME_RECALL_TOOL=false")
	for _, r := range vendor.Requests() {
		require.NotContains(t, string(r.Body), `"name":"recall"`)
	}
	require.Equal(t, outcomes(t, without), outcomes(t, with))
	require.NotEmpty(t, outcomes(t, with))
	const asked = `route="/internal/v1/runs/:run/recall"`
	require.Contains(t, metrics(t, with.addrs.Webmemory), asked)
	require.NotContains(t, metrics(t, without.addrs.Webmemory), asked, "no request at all")
}

// What a subagent looks up is in its own words for one run: the next one is shown which messages
// it was, and goes on with all thinking that its vendor binds to what it was shown.
func TestALookUpIsRememberedWithoutItsWords(t *testing.T) {
	t.Parallel()
	vendor := upstreamtest.New(upstreamtest.Config{Thinking: upstreamtest.ThinkingRules{PrefixCheck: true}})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	u := start(t, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_PROXY_ACTIVE=claude", "MNEME_RECALL_AUTO=off",
		backend("claude", "anthropic", server.URL, `model_map: {"*": claude-opus-5-5}`),
		"MNEME_AGENTS_SUBAGENTS=[{name: analytic, reasoning_effort: medium}, {name: knowledge}]")
	u.told("7", "analytic", 300, map[int]string{4: "The code is 4455."})
	think, say := upstreamtest.Think, upstreamtest.Say
	for i := range 3 {
		vendor.Queue(
			upstreamtest.Reply(think(fmt.Sprint("looking ", i)), upstreamtest.Use("recall", `{"query":"the code","to":"2024-02-01"}`)),
			upstreamtest.Reply(think(fmt.Sprint("found ", i)), say("It is known.")),
		)
		require.Equal(t, "It is known.", u.askSubagent("7", "analytic", fmt.Sprintf("What is the code (%d)?", i)))
		require.Contains(t, string(vendor.Last().Body), "user: The code is 4455.")
		require.Equal(t, 1, strings.Count(string(vendor.Last().Body), "The code is 4455."), "of this run alone")
	}
	require.Empty(t, vendor.Rejections())
	require.Len(t, vendor.Requests(), 6)
	_, history := u.request("GET", "/v1/chats/7/subagents/analytic/history?offset=100", "", "")
	require.Contains(t, history, "m.4 (2024-01-02 18:00)")
	require.NotContains(t, history, "<said")
}
