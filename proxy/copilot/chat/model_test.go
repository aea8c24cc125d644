package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/copilottest"
	"mneme/internal/testtier"
	"mneme/proxy/copilot"
	"mneme/proxy/copilot/chat"
)

// piped is a connection to a CLI in memory.
type piped struct{ *copilot.Router }

// owners are kept in memory, as Redis would.
type owners struct {
	mu   sync.Mutex
	held map[chat.Scope]string // guarded by mu
	away atomic.Bool
}

func (o *owners) Claim(_ context.Context, s chat.Scope, owner string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away.Load() {
		return io.ErrUnexpectedEOF
	}
	o.held[s] = owner
	return nil
}

func (o *owners) Holders(_ context.Context, scopes []chat.Scope) (out []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.away.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	for _, s := range scopes {
		out = append(out, o.held[s])
	}
	return out, nil
}

func (o *owners) Disown(_ context.Context, tenant, conversation string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for s := range o.held {
		if s.Tenant == tenant && s.Conversation == conversation {
			delete(o.held, s)
		}
	}
	return nil
}

// bubble is a Model with time that passes as soon as nothing else happens.
type bubble struct {
	*testing.T
	cli    *copilottest.Server
	model  *chat.Model
	owners *owners

	mu        sync.Mutex
	forgotten []string // sessions; guarded by mu
}

func (b *bubble) forget(_ context.Context, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgotten = append(b.forgotten, id)
	return nil
}

func (b *bubble) forgot() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.forgotten)
}

func inBubble(t *testing.T, limits chat.Limits, f func(*bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, cli: copilottest.New(t), owners: &owners{held: map[chat.Scope]string{}}}
		b.cli.Script(obey)
		router, err := copilot.NewRouter(t.Context(), b.cli.Pipe(), copilot.RouterConfig{})
		require.NoError(t, err)
		b.model = chat.New(piped{router}, chat.Config{Owners: b.owners, Limits: limits, Forget: b.forget})
		t.Cleanup(func() { _ = b.model.Close() })
		f(b)
		require.NoError(t, b.model.Close())
		require.Equal(t, uint64(0), router.Stats().Orphans)
		require.Empty(t, b.cli.Live())
	})
}

// dialogue is one conversation with a Model.
type dialogue struct {
	*bubble
	scope    chat.Scope
	minted   bool
	messages []chatMessage
}

func (b *bubble) dialogue(conversation string) *dialogue {
	return &dialogue{bubble: b, scope: chat.Scope{Tenant: "t", Route: "main", Conversation: conversation}}
}

func (d *dialogue) say(role, text, call string) chatMessage {
	d.Helper()
	d.messages = append(d.messages, chatMessage{Role: role, Content: text, ID: call})
	return d.ask()
}

func (d *dialogue) ask() chatMessage {
	d.Helper()
	resp, err := d.model.RoundTrip(d.request(d.Context()))
	require.NoError(d, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(d, err)
	require.Equal(d, 200, resp.StatusCode, "%s", body)
	var a struct {
		Choices []struct{ Message chatMessage }
	}
	require.NoError(d, json.Unmarshal(body, &a))
	d.messages = append(d.messages, a.Choices[0].Message)
	return a.Choices[0].Message
}

func (d *dialogue) request(ctx context.Context) *http.Request {
	d.Helper()
	messages, err := json.Marshal(d.messages)
	require.NoError(d, err)
	body := fmt.Sprintf(`{"model":"m","messages":%s,"tools":[{"type":"function","function":{"name":"a"}}]}`, messages)
	r, err := http.NewRequestWithContext(chat.In(ctx, d.scope, d.minted, false), http.MethodPost,
		"http://copilot/chat/completions", strings.NewReader(body))
	require.NoError(d, err)
	return r
}

// later lets time pass, and what it brings about happen.
func (b *bubble) later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAParkedTurnExpires(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		d := b.dialogue("c")
		call := d.say("user", "CALL a", "").Calls[0].ID
		b.later(9 * time.Minute)
		require.Equal(b, 1, b.model.Stats().Parked)
		again := *d
		require.Equal(b, "They gave: r/success", again.say("tool", "r", call).Content, "in time")

		d = b.dialogue("d")
		call = d.say("user", "CALL a", "").Calls[0].ID
		b.later(11 * time.Minute)
		require.Equal(b, 0, b.model.Stats().Parked)
		require.Len(b, b.cli.Calls("session.abort"), 1)
		require.Len(b, b.cli.Calls("session.delete"), 1)
		require.Contains(b, d.say("tool", "late", call).Content, "late", "and a fresh session is told all of it")
		require.Equal(b, uint64(1), b.model.Stats().Replayed)
	})
}

func TestTooManyParkedTurns(t *testing.T) {
	inBubble(t, chat.Limits{MaxParked: 2}, func(b *bubble) {
		var all []*dialogue
		for i := range 3 {
			d := b.dialogue(fmt.Sprint(i))
			d.minted = true
			d.say("user", "CALL a", "")
			all = append(all, d)
			b.later(time.Second)
		}
		require.Equal(b, 2, b.model.Stats().Parked)
		for i, d := range all {
			d.scope.Conversation = fmt.Sprint("another id ", i)
			got := d.say("tool", "r", d.messages[1].Calls[0].ID)
			require.Equal(b, i > 0, got.Content == "They gave: r/success", "the oldest is gone: %s", got.Content)
		}
		require.Equal(b, uint64(1), b.model.Stats().Replayed)
		b.later(0)
		require.Empty(b, b.cli.Live(), "nothing stays of answered turns without a conversation")
	})
}

// Another tenant, or another route, does not find a parked turn by its calls.
func TestCallsBelongToTheirCaller(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		d := b.dialogue("x")
		d.minted = true
		call := d.say("user", "CALL a", "").Calls[0].ID
		for _, scope := range []chat.Scope{{Tenant: "u", Route: "main", Conversation: "y"},
			{Tenant: "t", Route: "teammate/a", Conversation: "y"}} {
			other := *d
			other.scope, other.messages = scope, slices.Clone(d.messages)
			require.NotEqual(b, "They gave: r/success", other.say("tool", "r", call).Content)
		}
		require.Equal(b, "They gave: r/success", d.say("tool", "r", call).Content)
	})
}

// A session that is not needed for a while is closed, and resumed when a request needs
// it; after the conversation's time it is deleted.
func TestAnIdleSessionRests(t *testing.T) {
	testtier.Slow(t)
	inBubble(t, chat.Limits{}, func(b *bubble) {
		d := b.dialogue("c")
		d.say("user", "hello", "")
		b.later(11 * time.Minute)
		require.Equal(b, 1, b.model.Stats().Dormant)
		require.Empty(b, b.cli.Live())
		require.Equal(b, "echo: world", d.say("user", "world", "").Content)
		require.Len(b, b.cli.Calls("session.resume"), 1)
		require.Zero(b, b.model.Stats().Replayed)

		b.later(11 * time.Minute)
		d.messages[0].Content = "edited"
		require.Equal(b, "echo: again", d.say("user", "again", "").Content, "one that is not gone on from is not resumed")
		require.Len(b, b.cli.Calls("session.resume"), 1)
		require.Equal(b, uint64(1), b.model.Stats().Replayed)

		b.later(11 * time.Minute)
		require.Equal(b, "echo: once more", d.say("user", "once more", "").Content)
		resumed := b.cli.Calls("session.resume")
		require.Len(b, resumed, 2)
		require.Contains(b, string(resumed[1].Params), "edited", "what it was told it is told again")
		require.NotContains(b, string(resumed[1].Params), "again", "what it lived through it is not")

		b.later(25 * time.Hour)
		require.Equal(b, chat.Stats{Replayed: 1}, b.model.Stats())
		require.Len(b, b.cli.Calls("session.delete"), 2)
	})
}

// What the CLI has lost meanwhile is told again.
func TestASessionThatTheCLIForgot(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		d := b.dialogue("c")
		d.say("user", "hello", "")
		b.cli.Handle("session.send", func(c *copilottest.Conn, m copilottest.Message) {
			c.Forget(b.cli.Live()[0])
			b.cli.Handle("session.send", b.cli.Default)
			b.cli.Handle("session.resume", func(c *copilottest.Conn, m copilottest.Message) {
				c.Refuse(m, -32603, "Session not found: "+m.Session())
			})
			b.cli.Default(c, m)
		})
		require.Equal(b, "echo: world", d.say("user", "world", "").Content)
		require.Equal(b, uint64(1), b.model.Stats().Replayed)
	})
}

func TestTooManyIdleSessions(t *testing.T) {
	inBubble(t, chat.Limits{MaxIdle: 2, MaxDormant: 1}, func(b *bubble) {
		for i := range 4 {
			b.dialogue(fmt.Sprint(i)).say("user", "hello", "")
			b.later(10 * time.Second)
		}
		s := b.model.Stats()
		require.Equal(b, 2, s.Idle)
		require.Equal(b, 1, s.Dormant)
		require.Len(b, b.cli.Calls("session.delete"), 1)
	})
}

// One conversation may carry a main dialogue and others, each with its own session,
// up to a number.
func TestBranchesOfAConversation(t *testing.T) {
	inBubble(t, chat.Limits{MaxBranch: 3}, func(b *bubble) {
		d := b.dialogue("c")
		d.say("user", "the main one", "")
		side := b.dialogue("c")
		side.say("user", "make a title", "")
		d.say("user", "goes on", "")
		side.say("user", "and on", "")
		require.Len(b, b.cli.Calls("session.create"), 2)
		for i := range 5 {
			b.dialogue("c").say("user", fmt.Sprint("another ", i), "")
		}
		require.Equal(b, 3, b.model.Stats().Idle)
	})
}

// The owner of a conversation's sessions frees them when another process has it.
func TestSessionsThatAreTakenOver(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		d, stays := b.dialogue("c"), b.dialogue("stays")
		d.say("user", "CALL a", "")
		stays.say("user", "hello", "")
		b.later(time.Minute)
		require.Len(b, b.cli.Live(), 2)
		b.owners.away.Store(true)
		b.later(time.Minute)
		require.Len(b, b.cli.Live(), 2, "nobody knows better")
		b.owners.away.Store(false)
		require.NoError(b, b.owners.Claim(b.Context(), d.scope, "somebody else"))
		b.later(4 * time.Second)
		require.Len(b, b.cli.Live(), 1)
		require.Equal(b, 1, b.model.Stats().Idle)
		require.Empty(b, b.forgot())
	})
}

// An erasure reaches every session that the conversation had, and what was kept of
// their model calls, also when another process was told of it.
func TestErasingReachesAllSessions(t *testing.T) {
	for name, erase := range map[string]func(*bubble){
		"here":      func(b *bubble) { require.NoError(b, b.model.Erase(b.Context(), "t", "c")) },
		"elsewhere": func(b *bubble) { require.NoError(b, b.owners.Disown(b.Context(), "t", "c")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, chat.Limits{}, func(b *bubble) {
				d, other := b.dialogue("c"), b.dialogue("other")
				other.say("user", "hello", "")
				d.say("user", "hello", "")
				d.messages = nil
				d.say("user", "hello", "") // supersedes the first
				slow := b.dialogue("c")
				slow.messages = []chatMessage{{Role: "user", Content: "SLOW x"}}
				ctx, cancel := context.WithCancel(b.Context())
				left := make(chan error)
				go func() {
					_, err := b.model.RoundTrip(slow.request(ctx))
					left <- err
				}()
				b.later(0)
				require.Equal(b, 1, b.model.Stats().Busy)
				erase(b)
				b.later(4 * time.Second)
				ids := created(b, b.cli)
				require.ElementsMatch(b, []string{ids[1].ID, ids[2].ID}, b.forgot())
				cancel()
				require.ErrorIs(b, <-left, context.Canceled)
				b.later(4 * time.Second)
				require.Equal(b, []string{ids[0].ID}, b.cli.Live())
				if name == "here" {
					require.Contains(b, b.forgot(), ids[3].ID, "the one that was busy, when it was done")
				}
			})
		})
	}
}

// A CLI that falls silent is given up, and says so with a status.
func TestACLIThatFallsSilent(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		b.cli.Script(func(t *copilottest.Turn) { <-t.Context().Done() })
		d := b.dialogue("c")
		d.messages = []chatMessage{{Role: "user", Content: "hello"}}
		resp, err := b.model.RoundTrip(d.request(b.Context()))
		require.NoError(b, err)
		require.Equal(b, 504, resp.StatusCode)
		b.cli.Script(obey)
		require.Equal(b, "echo: hello", d.ask().Content)
	})
}

// Close ends what is under way.
func TestClosing(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		d := b.dialogue("c")
		d.messages = []chatMessage{{Role: "user", Content: "SLOW x"}}
		failed := make(chan error)
		go func() {
			_, err := b.model.RoundTrip(d.request(b.Context()))
			failed <- err
		}()
		b.later(0)
		b.cli.Handle("session.delete", func(*copilottest.Conn, copilottest.Message) {}) // it never answers
		require.NoError(b, b.model.Close())
		require.Error(b, <-failed)
		_, err := b.model.RoundTrip(d.request(b.Context()))
		require.ErrorIs(b, err, chat.ErrClosed)
	})
}

func TestRequestsThatCannotBeRead(t *testing.T) {
	inBubble(t, chat.Limits{}, func(b *bubble) {
		for body, want := range map[string]int{
			`{`:                           400,
			`{"messages":[]}`:             400,
			`{"messages":[{"role":"x"}]}`: 400,
			`{"messages":[{"role":"user","content":7}]}`:      400,
			`{"messages":[{"role":"user","content":"  \n"}]}`: 400,
		} {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://copilot/chat/completions",
				strings.NewReader(body))
			require.NoError(b, err)
			resp, err := b.model.RoundTrip(r)
			require.NoError(b, err)
			require.Equal(b, want, resp.StatusCode, body)
		}
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://copilot/embeddings",
			strings.NewReader("{}"))
		require.NoError(b, err)
		resp, err := b.model.RoundTrip(r)
		require.NoError(b, err)
		require.Equal(b, 404, resp.StatusCode)
	})
}
