package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/go-telegram/bot"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/webmemory"
	webapi "mneme/webmemory/api"
)

// scripted answers "long" at length, "wait" when it is released or stopped, and "refund" after a decision.
type scripted struct{ release chan struct{} }

var long = strings.Repeat("Ferries 🚢 leave.\n", 550)

// play is a webmemorytest.Agent.
func (s scripted) play(ctx context.Context, r master.Request, emitAs webmemorytest.Emit) {
	emit := func(p event.Payload) { emitAs(event.Head{}, p) }
	answer, outcome := "You said "+r.Message, event.Completed
	if r.Resume != nil {
		emit(&event.RunResumed{Answers: r.Resume.Answers})
		answer = "It is " + r.Resume.Answers[0].Decision
	} else {
		emit(&event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
	}
	switch {
	case r.Message == "long":
		answer = long
	case r.Message == "refund" && r.Resume == nil:
		posted, _ := r.Posted()
		state, _ := json.Marshal(map[string]any{"version": 1, "request": posted, "waits": []string{"w1"}})
		emit(&event.RunWaiting{State: state, Pending: []event.Wait{{ID: "w1", Kind: event.Approval, ToolCallID: "t",
			Tool: "refund", Arguments: json.RawMessage(`{"amount":5}`), Reason: "It moves money.",
			ExpiresAt: event.Seconds(time.Now().Add(time.Hour))}}})
		return
	case strings.HasPrefix(r.Message, "wait"):
		emit(&event.AssistantDelta{Text: "You "})
		select {
		case <-s.release:
		case <-ctx.Done():
			answer, outcome = "You ", event.Stopped
		}
	}
	for line := range strings.Lines(answer) {
		emit(&event.AssistantDelta{Text: line})
	}
	emit(&event.Assistant{Content: answer, Partial: outcome == event.Stopped})
	emit(&event.RunFinished{Outcome: outcome})
}

// newMemory starts a webmemory and returns its URL.
func newMemory(t *testing.T, a scripted) string { return webmemorytest.NewWorld(t, a.play).URL }

// newMemoryWithKey starts a webmemory that requires keys. It returns its URL and a key with the scopes.
func newMemoryWithKey(t *testing.T, a scripted, scopes ...access.Scope) (url, key string) {
	t.Helper()
	w := webmemorytest.NewWorld(t, a.play)
	w.Shutdown(w.URL)
	keys := access.NewStore(w.Redis)
	key, _, err := keys.Create(t.Context(), access.Key{Name: "bot", Scopes: scopes})
	require.NoError(t, err)
	authenticator := access.NewAuthenticator(nil, keys, zerolog.Nop())
	t.Cleanup(func() { _ = authenticator.Close() })
	return w.StartReplica(func(c *webmemory.Config) { c.Gate = &access.Gate{Keys: authenticator} }), key
}

// telegram is the Bot API, as strict as the real one is about what the bot sends.
type telegram struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed at the next change
	updates []string      // guarded by mu
	taken   int           // guarded by mu: updates that a bot has confirmed
	texts   []string      // guarded by mu: of the messages, the first has the id 1
	buttons []string      // guarded by mu: what theirs do
	calls   int           // guarded by mu: messages that were sent and edited
	slow    int           // guarded by mu: calls that are refused for now
	ended   chan struct{} // closed when the test is over
}

func newTelegram(t *testing.T) *telegram {
	f := &telegram{t: t, changed: make(chan struct{}), ended: make(chan struct{})}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() { close(f.ended); f.CloseClientConnections(); f.Close() })
	return f
}

func (f *telegram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseMultipartForm(1 << 20)
	result, problem := f.call(r.Context(), path.Base(r.URL.Path), r.FormValue)
	if problem != "" {
		code, _ := strconv.Atoi(problem[:3])
		fmt.Fprintf(w, `{"ok":false,"error_code":%d,"description":%q,"parameters":{"retry_after":0}}`, code, problem[4:])
		return
	}
	fmt.Fprintf(w, `{"ok":true,"result":%s}`, result)
}

func (f *telegram) call(ctx context.Context, method string, value func(string) string) (result, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, _ := strconv.Atoi(value("message_id"))
	switch method {
	case "getMe":
		return `{"id":1,"is_bot":true,"first_name":"m"}`, ""
	case "getUpdates":
		offset, _ := strconv.Atoi(value("offset"))
		f.taken = max(f.taken, offset-1)
		for f.taken >= len(f.updates) {
			more := f.changed
			f.mu.Unlock()
			select {
			case <-more:
			case <-ctx.Done():
			case <-f.ended: // or Close would wait for the next request
				f.mu.Lock()
				return "[]", ""
			}
			f.mu.Lock()
			if ctx.Err() != nil {
				return "[]", ""
			}
		}
		return "[" + strings.Join(f.updates[f.taken:], ",") + "]", ""
	case "answerCallbackQuery":
		return "true", ""
	case "sendMessage":
		f.texts, f.buttons = append(f.texts, ""), append(f.buttons, "")
		id = len(f.texts)
	}
	var markup struct {
		Rows [][]struct {
			Data string `json:"callback_data"`
		} `json:"inline_keyboard"`
	}
	_ = json.Unmarshal([]byte(value("reply_markup")), &markup)
	var does []string
	for _, row := range markup.Rows {
		for _, b := range row {
			if len(b.Data) > 64 {
				return "", "400 Bad Request: BUTTON_DATA_INVALID"
			}
			does = append(does, b.Data)
		}
	}
	text, buttons := strings.TrimSpace(value("text")), strings.Join(does, "|")
	switch n := len(utf16.Encode([]rune(value("text")))); {
	case n == 0 || n > maxText:
		return "", fmt.Sprintf("400 Bad Request: message has %d units", n)
	case f.texts[id-1] == text && f.buttons[id-1] == buttons:
		return "", "400 Bad Request: message is not modified"
	case f.slow > 0:
		f.slow--
		if method == "sendMessage" {
			f.texts, f.buttons = f.texts[:id-1], f.buttons[:id-1]
		}
		return "", "429 Too Many Requests"
	}
	f.texts[id-1], f.buttons[id-1] = text, buttons
	f.calls++
	close(f.changed)
	f.changed = make(chan struct{})
	return fmt.Sprintf(`{"message_id":%d,"date":1,"chat":{"id":-7,"type":"group"}}`, id), ""
}

// happens is an update: a message, or a press of a button of a message.
func (f *telegram) happens(text string, message int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	const chat, from = `"chat":{"id":-7,"type":"group"}`, `"from":{"id":5,"is_bot":false,"first_name":"Ann"}`
	update := fmt.Sprintf(`{"update_id":%d,"message":{"message_id":900,"date":1,%s,%s,"text":%q}}`, len(f.updates)+1, chat,
		from, text)
	if message > 0 {
		update = fmt.Sprintf(`{"update_id":%d,"callback_query":{"id":"q","data":%q,%s,"message":{"message_id":%d,"date":1,%s,`+
			`"text":%q}}}`, len(f.updates)+1, text, from, message, chat, f.texts[message-1])
	}
	f.updates = append(f.updates, update)
	close(f.changed)
	f.changed = make(chan struct{})
}

// until waits until a message says something and has buttons that begin so; "" for none.
func (f *telegram) until(message int, text, buttons string) (does string) {
	f.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		f.mu.Lock()
		more, said := f.changed, fmt.Sprintf("%q", f.texts)
		if len(f.texts) >= message {
			does = f.buttons[message-1]
			fits := strings.HasPrefix(does, buttons) && (does == "") == (buttons == "")
			if fits && strings.Contains(f.texts[message-1], text) {
				f.mu.Unlock()
				return does
			}
		}
		f.mu.Unlock()
		select {
		case <-more:
		case <-deadline:
			require.Fail(f.t, "it was not said", "message %d: %q, buttons %q; said: %.2000s", message, text, buttons, said)
		}
	}
}

// starts starts a bot; end ends it, as SIGTERM does.
func starts(t *testing.T, f *telegram, memoryURL, open string, pace time.Duration, key ...string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	a := &app{open: open, pace: pace, users: "4,5", key: strings.Join(key, "")}
	go func() { over <- a.run(ctx, memoryURL, "token", bot.WithServerURL(f.URL)) }()
	end = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-over)
	})
	t.Cleanup(end)
	return end
}

// history is what the chat remembers.
func history(t *testing.T, memoryURL string) (said []string) {
	t.Helper()
	client, err := webapi.New(memoryURL)
	require.NoError(t, err)
	defer client.Close()
	for raw, err := range client.Messages(t.Context(), memory.ChatKey(chatOf(-7)), 0) {
		require.NoError(t, err)
		var m memory.Message
		require.NoError(t, json.Unmarshal(raw, &m))
		said = append(said, m.Role+": "+m.Content)
	}
	return said
}

func TestBot(t *testing.T) {
	release := make(chan struct{})
	m, f, open := newMemory(t, scripted{release}), newTelegram(t), t.TempDir()
	end := starts(t, f, m, open, 0)
	f.happens("Hi.", 0)
	f.until(1, "You said Hi.", "")

	// While it is written, the answer has a button that stops it.
	f.happens("wait 1", 0)
	f.happens(f.until(2, "You", "stop "), 2)
	f.until(2, "You", "")
	require.Equal(t, "assistant: You ", history(t, m)[3])

	// A person says yes or no to the call of a tool.
	f.happens("refund", 0)
	yes, no, _ := strings.Cut(f.until(3, "refund {\"amount\":5}\nIt moves money.", "approve "), "|")
	require.True(t, strings.HasPrefix(no, "deny "), no)
	f.happens(yes, 3)
	f.until(3, "(approve)", "")
	f.until(4, "It is approve", "")

	// The next start goes on with what is open, in the same message; nothing is posted twice.
	f.happens("wait 2", 0)
	f.until(5, "You", "stop ")
	end()
	f.mu.Lock()
	f.taken-- // it had no time to confirm the update
	f.mu.Unlock()
	close(release)
	end = starts(t, f, m, open, 0)
	f.until(5, "You said wait 2", "")
	require.Len(t, history(t, m), 8)

	// What was said is forgotten after a yes.
	f.happens("/forget", 0)
	f.until(6, "Forget", "forget|keep")
	f.happens("keep", 6)
	f.until(6, "Nothing", "")
	require.Len(t, history(t, m), 8)
	f.happens("/forget", 0)
	f.until(7, "Forget", "forget|keep")
	f.happens("forget", 7)
	f.until(7, "All is forgotten.", "")
	require.Empty(t, history(t, m))
	end()
	left, err := filepath.Glob(filepath.Join(open, "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// With keys the bot comes with its own, which has the rights that the README names. Another one is refused in words
// that say so, and nothing is posted.
func TestBotWithAKey(t *testing.T) {
	m, key := newMemoryWithKey(t, scripted{}, access.Chat, access.MemoryRead, access.MemoryWrite, access.Approve)
	f := newTelegram(t)
	end := starts(t, f, m, t.TempDir(), 0, key)
	f.happens("Hi.", 0)
	f.until(1, "You said Hi.", "")
	f.happens("refund", 0)
	yes, _, _ := strings.Cut(f.until(2, "It moves money.", "approve "), "|")
	f.happens(yes, 2)
	f.until(3, "It is approve", "")
	f.happens("/forget", 0)
	f.happens(f.until(4, "Forget", "forget|keep")[:len("forget")], 4)
	f.until(4, "All is forgotten.", "")
	end()

	wrong := newTelegram(t)
	starts(t, wrong, m, t.TempDir(), 0, key+"x")
	wrong.happens("Hi.", 0)
	wrong.until(1, "This key is not known", "")
}

// An answer that is too long for a message has several, and is edited no more often than the pace allows.
func TestLimitsOfTelegram(t *testing.T) {
	m, f := newMemory(t, scripted{}), newTelegram(t)
	f.mu.Lock()
	f.slow = 2
	f.mu.Unlock()
	starts(t, f, m, t.TempDir(), time.Hour)
	f.happens("long", 0)
	f.until(3, "leave.", "")
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Equal(t, strings.TrimSpace(long), strings.Join(f.texts, "\n"))
	require.Equal(t, 4, f.calls, "one message while it is written, and three at its end")
}

// A bot answers once its webmemory is back, and strangers are not answered.
func TestTheMemoryIsAway(t *testing.T) {
	m, f := newMemory(t, scripted{}), newTelegram(t)
	var mu sync.Mutex
	away, asked := true, make(chan struct{}, 100)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked <- struct{}{}
		if away {
			api.WriteProblem(w, &api.Problem{Status: 503, Code: "memory_unavailable", Message: "Away.", Retryable: true})
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		req, _ := http.NewRequestWithContext(r.Context(), r.Method, m+r.URL.Path, r.Body)
		req.Header = r.Header
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(front.Close)
	starts(t, f, front.URL, t.TempDir(), time.Millisecond)
	f.happens("Hi.", 0)
	<-asked
	<-asked
	mu.Lock()
	away = false
	mu.Unlock()
	f.until(1, "You said Hi.", "")
	f.mu.Lock()
	f.updates = append(f.updates, strings.Replace(strings.Replace(f.updates[0], `"from":{"id":5`, `"from":{"id":6`, 1),
		`"update_id":1`, `"update_id":2`, 1))
	f.mu.Unlock()
	f.happens("Hello.", 0)
	f.until(2, "You said Hello.", "")
	require.Len(t, history(t, m), 4)
}
