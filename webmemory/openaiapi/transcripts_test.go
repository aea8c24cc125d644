package openaiapi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	"mneme/webmemory/openaiapi"
)

// line is a message as a client holds it.
type line struct{ role, text, id string }

// program is a client that keeps a transcript of a chat and speaks to one endpoint.
type program struct {
	w        *webmemorytest.World
	endpoint string
	chat     string
	held     []line
}

// endpoints are the routes that take transcripts, by how the chat is named.
var endpoints = []string{"header", "path", "metadata", "conversation", "useChat"}

// regenerates is the trigger with which useChat asks for another answer.
const regenerates = "regenerate-message"

// options are the fields and headers of a request, except its messages.
type options struct {
	trigger, messageID string // of useChat
	header             []string
}

// request makes a request with a transcript.
func (p *program) request(lines []line, o options) *http.Request {
	body, path := map[string]any{"model": "mneme"}, "/v1/chat/completions"
	header := append([]string{"User-Agent", "a program"}, o.header...)
	var messages []any
	for _, l := range lines {
		if p.endpoint == "useChat" {
			messages = append(messages, map[string]any{"id": l.id, "role": l.role,
				"parts": []any{map[string]any{"type": "text", "text": l.text}}})
		} else {
			messages = append(messages, map[string]any{"role": l.role, "content": l.text})
		}
	}
	body["messages"] = messages
	switch p.endpoint {
	case "header":
		header = append(header, "X-Conversation-Id", p.chat)
	case "path":
		path = "/c/" + p.chat + path
	case "metadata":
		body["metadata"] = map[string]string{"chat_id": p.chat}
	case "conversation":
		path = "/v1/responses"
		body = map[string]any{"model": "mneme", "conversation": p.chat, "input": messages}
	case "useChat":
		path = "/v1/chats/" + p.chat + "/ui"
		if body["trigger"] = "submit-message"; o.trigger != "" {
			body["trigger"] = o.trigger
		}
		if o.messageID != "" {
			body["messageId"] = o.messageID
		}
	}
	return p.w.NewRequest("POST", path, body, header...)
}

// send sends a transcript, and holds it with the answer.
func (p *program) send(lines []line, o options) webmemorytest.Response {
	got := p.w.Send(p.request(lines, o))
	if got.Status != 200 {
		return got
	}
	answer := content(got)
	switch p.endpoint {
	case "conversation":
		answer = gjson.GetBytes(got.Body, `output.#(type=="message").content.0.text`).Str
	case "useChat":
		answer = ""
		for line := range strings.Lines(string(got.Body)) {
			answer += gjson.Get(strings.TrimPrefix(line, "data: "), "delta").Str
		}
	}
	p.held = append(slices.Clone(lines), line{"assistant", answer, got.RunID()})
	return got
}

// say sends the transcript with a new message of the user.
func (p *program) say(text string) webmemorytest.Response {
	return p.send(append(slices.Clip(p.held), user(text)), options{})
}

func user(text string) line { return line{"user", text, "id " + text} }

// numbered is an agent that answers each message in other words. It answers "Done." to a message with a full stop.
func numbered() webmemorytest.Agent {
	repeat := repeats()
	return func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		if !strings.HasSuffix(r.Message, ".") {
			repeat(ctx, r, emit)
			return
		}
		completes(r, emit, "Done.")
	}
}

// A change alters a transcript before a program sends it with the message next. It may replace the newest exchange if
// replaces is set.
type change struct {
	name     string
	replaces bool
	apply    func(p *program, next string) (lines []line, o options)
}

func cut(p *program, from, to int) []line { return slices.Delete(slices.Clone(p.held), from, to) }

func decorate(p *program, at int) []line {
	lines := slices.Clone(p.held)
	lines[at].text = "[09:41] " + lines[at].text
	return lines
}

func plain(make func(p *program) []line) func(p *program, next string) ([]line, options) {
	return func(p *program, next string) ([]line, options) { return append(make(p), user(next)), options{} }
}

// summary replaces all but the newest exchange.
func summary(role string) func(p *program, next string) ([]line, options) {
	return plain(func(p *program) []line {
		return append([]line{{role, "They spoke of herons.", "s"}}, p.held[len(p.held)-2:]...)
	})
}

var changes = []change{
	{"a single message", false, plain(func(*program) []line { return nil })},
	{"a system message and a single one", false, plain(func(*program) []line { return []line{{"system", "Be brief.", "s"}} })},
	{"the first exchange and the newest", false, plain(func(p *program) []line { return cut(p, 2, len(p.held)-2) })},
	{"the middle cut", false, plain(func(p *program) []line { return cut(p, 2, 4) })},
	{"a summary by the user", false, summary("user")},
	{"a summary by the assistant", false, summary("assistant")},
	{"a summary by the system", false, summary("system")},
	{"a summary alone", false, plain(func(*program) []line { return []line{{"user", "They spoke of herons.", "s"}} })},
	{"merged messages", false, plain(func(p *program) []line {
		lines := cut(p, 0, 2)
		lines[0].text = p.held[0].text + "\n\n" + lines[0].text
		return lines
	})},
	{"a duplicated exchange", false, plain(func(p *program) []line { return append(p.held[:2:2], p.held...) })},
	{"reordered exchanges", false, plain(func(p *program) []line { return append(p.held[2:4:4], cut(p, 2, 4)...) })},
	{"an older message decorated", false, plain(func(p *program) []line { return decorate(p, 0) })},
	{"the newest message decorated", false, plain(func(p *program) []line { return decorate(p, len(p.held)-2) })},
	{"the newest answer shortened", false, plain(func(p *program) []line {
		lines := slices.Clone(p.held)
		lines[len(lines)-1].text = "…"
		return lines
	})},
	{"a deleted exchange", false, plain(func(p *program) []line { return cut(p, 0, 2) })},
	{"a stale tab", true, plain(func(p *program) []line { return p.held[:2:2] })},
	{"another program's messages between", false, func(p *program, next string) ([]line, options) {
		for _, text := range []string{"foreign 1", "foreign 2"} {
			require.Equal(p.w.T, 200, p.w.Post(p.chat, text).Status)
		}
		return append(p.held[:len(p.held):len(p.held)], user(next)), options{}
	}},
	{"the newest answer again", true, func(p *program, _ string) ([]line, options) {
		return p.held[: len(p.held)-1 : len(p.held)-1], options{trigger: regenerates}
	}},
	{"the newest message changed", true, func(p *program, next string) ([]line, options) {
		return append(cut(p, len(p.held)-2, len(p.held)), user(next)), options{messageID: p.held[len(p.held)-2].id}
	}},
	{"an older answer again", true, func(p *program, _ string) ([]line, options) {
		return p.held[:1:1], options{trigger: regenerates}
	}},
	{"an older message changed", true, plain(func(p *program) []line { return p.held[:0:0] })},
}

// A title is a request that is a task of a page by its id alone: of the newest message, with other words.
func (p *program) title() webmemorytest.Response {
	newest := p.held[len(p.held)-2]
	return p.w.Send(p.request([]line{{"user", "Name this talk in four words: " + newest.text, newest.id}},
		options{header: []string{"Mneme-Message-Id", newest.id}}))
}

// Whatever becomes of a program's transcript, at most the newest exchange is replaced, the new words are stored once, and
// the turns that follow are stored.
func TestATranscriptLosesNothing(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := openaiWorld(t, numbered())
	for i, endpoint := range endpoints {
		t.Run(endpoint, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for _, c := range changes {
				for round := range 3 {
					chat := fmt.Sprintf("%s-%s-%d", endpoint, strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(c.name), round)
					checkChange(t, &program{w: w, endpoint: endpoint, chat: chat}, c, random)
				}
			}
		})
	}
}

// checkChange applies one change to a random chat, and checks what is stored.
func checkChange(t *testing.T, p *program, c change, random *rand.Rand) {
	words := func(n int) string {
		return fmt.Sprintf("message %d%s", n, []string{"", ".", " with a word"}[random.IntN(3)])
	}
	exchanges := 3 + random.IntN(4)
	for n := range exchanges {
		require.Equal(t, 200, p.say(words(n)).Status, p.chat)
	}
	before := p.w.History("chat_history:" + p.chat)
	require.Len(t, before, 2*exchanges, p.chat)
	lines, o := c.apply(p, "the new words")
	foreign := p.w.History("chat_history:" + p.chat)[len(before):]
	got := p.send(lines, o)
	after := p.w.History("chat_history:" + p.chat)
	stale := p.endpoint == "useChat" && c.name == "an older answer again"
	if stale {
		require.Equal(t, 409, got.Status, "%s: %s", p.chat, got.Body)
		require.Equal(t, before, after, p.chat)
	} else {
		require.Equal(t, 200, got.Status, "%s: %s", p.chat, got.Body)
		kept := len(before)
		if c.replaces {
			kept -= 2
		}
		require.Equal(t, before[:kept], after[:min(kept, len(after))], p.chat)
		require.Subset(t, after, foreign, p.chat)
		question, count := "user: "+lines[len(lines)-1].text, 0
		for _, m := range after {
			if m == question {
				count++
			}
		}
		want := 1
		if c.name == "an older answer again" { // without ids it looks like a repeated question
			want = 2
		}
		require.Equal(t, want, count, "%s: %v", p.chat, after)
	}
	for n := range 6 {
		require.Equal(t, 200, p.say(words(100+n)).Status, p.chat)
	}
	grown := p.w.History("chat_history:" + p.chat)
	require.Equal(t, after, grown[:len(after)], p.chat)
	require.Len(t, grown, len(after)+12, "%s: %v", p.chat, grown)
	if p.endpoint == "header" {
		p.titles(t, random)
	}
}

// titles checks that a page's task leaves nothing behind if it has the id of the newest message.
func (p *program) titles(t *testing.T, random *rand.Rand) {
	text := fmt.Sprint("under an id ", random.IntN(1000))
	lines := append(slices.Clip(p.held), user(text))
	require.Equal(t, 200, p.send(lines, options{header: []string{"Mneme-Message-Id", user(text).id}}).Status)
	before := p.w.History("chat_history:" + p.chat)
	got := p.title()
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Equal(t, "none", got.Header.Get("Mneme-Memory"))
	require.Equal(t, before, p.w.History("chat_history:"+p.chat))
}

// If a client times out and retries, its message is stored once. It gets the answer of the run that continues, or of a
// new run if the first one was stopped.
func TestARetryIsStoredOnce(t *testing.T) {
	t.Parallel()
	for _, onDisconnect := range []string{openaiapi.Stop, openaiapi.Continue} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(onDisconnect, ", stream ", stream), func(t *testing.T) {
				t.Parallel()
				release, runs := make(chan struct{}), atomic.Int64{}
				w := openaiWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
					emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message,
						Metadata: r.Metadata})
					if runs.Add(1) == 1 {
						select {
						case <-release:
						case <-ctx.Done():
							emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
							return
						}
					}
					emit(event.Head{}, &event.Assistant{Content: "re " + r.Message})
					emit(event.Head{}, &event.RunFinished{Outcome: event.Completed})
				}, func(c *openaiapi.Config) { c.OnDisconnect = onDisconnect })
				body := fmt.Sprintf(`{"model":"mneme","stream":%t,"messages":[%s]}`, stream, userSaid("hi"))
				ctx, giveUp := context.WithCancel(t.Context())
				req := w.NewRequest("POST", "/c/c/v1/chat/completions", body).WithContext(ctx)
				left := make(chan struct{})
				go func() {
					defer close(left)
					if resp, err := http.DefaultClient.Do(req); err == nil {
						_ = resp.Body.Close()
					}
				}()
				webmemorytest.Eventually(t, "the run is followed", func() bool {
					return len(w.History("chat_history:c")) == 1 && w.Metric("mneme_event_streams") == 1
				})
				giveUp()
				<-left
				// Until the server notices that its client left, it may count the answer as delivered.
				if onDisconnect == openaiapi.Stop {
					webmemorytest.Eventually(t, "the run is stopped", func() bool { return len(w.History("chat_history:c")) == 2 })
				} else {
					webmemorytest.Eventually(t, "the client left", func() bool { return w.Metric("mneme_event_streams") == 0 })
				}
				again := make(chan webmemorytest.Response, 1)
				retry := w.NewRequest("POST", "/c/c/v1/chat/completions", body, "X-Stainless-Retry-Count", "1")
				go func() { again <- w.Send(retry) }()
				if onDisconnect == openaiapi.Continue {
					webmemorytest.Eventually(t, "the retry joins the run", func() bool {
						return w.Metric("mneme_event_streams") == 1
					})
					close(release)
				}
				got := <-again
				require.Equal(t, 200, got.Status, string(got.Body))
				require.Contains(t, string(got.Body), "re hi")
				require.Equal(t, []string{"user: hi", "assistant: re hi"}, w.History("chat_history:c"))
			})
		}
	}
}

// Requests of one client at the same time replace nothing of each other.
func TestConcurrentTranscripts(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, repeats())
	require.Equal(t, 200, postCompletion(w, "c", users("a")).Status)
	require.Equal(t, 200, postCompletion(w, "c", users("a b")).Status)
	var all sync.WaitGroup
	for i := range 4 {
		req := w.NewRequest("POST", "/v1/chat/completions", users(fmt.Sprint("a b c", i)), "Mneme-Chat-Id", "c")
		all.Go(func() {
			if got := w.Send(req); got.Status != 200 {
				t.Errorf("%d: %s", got.Status, got.Body)
			}
		})
	}
	all.Wait()
	require.Nil(t, asideSizes(w, "c"))
	words := strings.Fields(userWords(w, "c"))
	slices.Sort(words)
	require.Equal(t, []string{"a", "b", "c0", "c1", "c2", "c3"}, words)
}

// The model is given the client's transcript if that does not end where the chat does, and the message is marked.
func TestADivergedTranscriptIsAnsweredAsSent(t *testing.T) {
	t.Parallel()
	w := openaiWorld(t, nil)
	w.ScriptApiserver(recites)
	require.Equal(t, 200, postCompletion(w, "c", transcriptOf("a")).Status)
	got := postCompletion(w, "c", transcriptOf("x", "re x", "y", "re y", "z"))
	require.Equal(t, "to master, user x, assistant re x, user y, assistant re y: z", content(got), string(got.Body))
	require.Equal(t, "chat", got.Header.Get("Mneme-Memory"))
	require.Equal(t, "a z", userWords(w, "c"))
	history := w.Do("GET", "/v1/chats/c/history", nil).Body
	require.False(t, gjson.GetBytes(history, "messages.0.metadata.transcript_diverged").Exists())
	require.Equal(t, "true", gjson.GetBytes(history, "messages.2.metadata.transcript_diverged").Str)
	events := string(w.Do("GET", "/v1/chats/c/runs/"+got.RunID()+"/events", nil).Body)
	require.Contains(t, events, "transcript_diverged")

	// The next message follows it. Tool results without their calls are ignored, and long messages are shortened.
	orphan := `{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"assistant","content":"","tool_calls":` +
		`[{"id":"","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	got = postCompletion(w, "c", messagesOf(userSaid(strings.Repeat("large ", 200_000)), `{"role":"assistant","content":"x"}`,
		userSaid("q"), orphan, `{"role":"assistant","content":"re q"}`, userSaid("w")))
	require.Equal(t, 200, got.Status, string(got.Body))
	require.Contains(t, content(got), ", user q, assistant , assistant re q: w")
	require.Less(t, len(content(got)), 300<<10)
	require.Equal(t, "a z w", userWords(w, "c"))
}
