package webmemory_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/master"
	"mneme/memory/event"
	"mneme/webmemory"
)

// waiting posts messages that have to wait, and gives their answers once all are there.
func (w *world) waiting(n int, body func(i int) any) (answers func() []answer) {
	out := make([]answer, n)
	var all sync.WaitGroup
	for i := range n {
		req := w.request("POST", "/v1/chats/1/messages", body(i))
		all.Go(func() { out[i] = w.send(req) })
	}
	return func() []answer {
		all.Wait()
		return out
	}
}

// waitFor waits until so many messages wait in the process that is asked.
func (w *world) waitFor(n int) {
	w.t.Helper()
	eventually(w.t, "messages wait", func() bool {
		return strings.Contains(string(w.do("GET", "/metrics", nil).body), fmt.Sprintf("\nmneme_waiting_messages %d\n", n))
	})
}

// An erasure goes before all waiters and stops what runs: it does not wait for answers
// that have lost their use, in whichever process they are.
func TestErasureGoesFirst(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"a chat": "/v1/chats/1", "its history": "/v1/chats/1/history",
		"a subagent's history": "/v1/chats/1/subagents/analytic/history",
	} {
		for _, elsewhere := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, run elsewhere: %v", name, elsewhere), func(t *testing.T) {
				w := newWorld(t, waits(nil)) // no run ends by itself
				url := w.url
				if elsewhere {
					url, _ = w.child()
				}
				var running *transcript
				var answers func() []answer
				w.on(url, func() {
					running = w.open("POST", "/v1/chats/1/messages", message{"first"})
					running.until("subagent_delegation")
					answers = w.waiting(3, func(i int) any { return message{fmt.Sprint("waits ", i)} })
					w.waitFor(3)
				})
				got := w.do("DELETE", path, nil)
				require.Equal(t, 200, got.status, string(got.body))
				for _, a := range answers() {
					require.Equal(t, 409, a.status, string(a.body))
					require.Equal(t, "chat_erased", a.problem(t).Code)
					require.True(t, a.problem(t).Retryable)
					require.NotEmpty(t, a.header.Get("Retry-After"))
				}
				if name != "a subagent's history" {
					require.Nil(t, w.stored("chat_history:1"))
				}
				if name != "its history" {
					require.Nil(t, w.stored("subagent:analytic:1"))
				}
				next := w.open("POST", "/v1/chats/1/messages", message{"afterwards"})
				next.until("run_started")
				require.Contains(t, w.stored("chat_history:1"), "user: afterwards")
			})
		}
	}
}

// An erasure that was asked for is done, though its client does not wait for it.
func TestErasureGoesOnWithoutItsClient(t *testing.T) {
	told, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		<-ctx.Done()
		close(told)
		<-release // a model that is slow to end
		emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
	})
	tr := w.open("POST", "/v1/chats/1/messages", message{"secret"})
	tr.until("run_started")
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(w.request("DELETE", "/v1/chats/1", nil).WithContext(ctx))
		left <- err
	}()
	<-told
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.NotNil(t, w.stored("chat_history:1"))
	close(release)
	eventually(t, "it is erased", func() bool { return w.stored("chat_history:1") == nil })
}

// What a post wants done while its chat is busy is its own to say.
func TestOnBusy(t *testing.T) {
	t.Parallel()
	type body struct {
		Message string `json:"message"`
		OnBusy  string `json:"on_busy"`
	}
	const path = "/v1/chats/1/messages"
	t.Run("reject", func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, waits(release))
		require.NotEmpty(t, w.open("POST", path, body{"first", "reject"}).until("subagent_delegation"),
			"an idle chat is not busy")
		for _, url := range []string{w.url, w.process()} {
			w.on(url, func() {
				got := w.do("POST", path, body{"second", "reject"})
				require.Equal(t, 409, got.status, string(got.body))
				require.Equal(t, "chat_busy", got.problem(t).Code)
				require.NotEmpty(t, got.header.Get("Retry-After"))
			})
		}
		close(release)
		eventually(t, "the chat is free again", func() bool {
			return w.do("POST", path, body{"third", "reject"}).status == 200
		})
		require.Equal(t, []string{"user: first", "assistant: answer to first", "user: third", "assistant: answer to third"},
			w.stored("chat_history:1"))
	})
	for _, where := range []struct{ run, wait bool }{{false, false}, {true, true}, {true, false}} {
		t.Run(fmt.Sprintf("interrupt, elsewhere: %+v", where), func(t *testing.T) {
			release := make(chan struct{})
			w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
				if r.Message == "first" {
					waits(nil)(ctx, r, emit)
					return
				}
				waits(release)(ctx, r, emit)
			}, func(c *webmemory.Config) { c.QueueLimit = 4 })
			run, wait := w.url, w.url
			if where.run {
				run, _ = w.child()
			}
			if where.wait {
				wait = run
			}
			var first *transcript
			var answers func() []answer
			w.on(run, func() {
				first = w.open("POST", path, message{"first"})
				first.until("subagent_delegation")
			})
			w.on(wait, func() {
				answers = w.waiting(3, func(i int) any { return message{fmt.Sprint("waits ", i)} })
				if run == wait {
					w.waitFor(3)
				} else {
					w.waitFor(2) // the third stands before all others, and waits for the lease
				}
			})
			next := w.open("POST", path, body{"now", "interrupt"})
			require.JSONEq(t, `"stopped"`, field(t, first.until("run_finished"), "outcome"))
			next.until("run_started")
			require.Equal(t, []string{"user: first", "assistant: answer to first", "user: now"}, w.stored("chat_history:1"),
				"what was shown is kept, and who waits goes on waiting")
			close(release)
			require.JSONEq(t, `"completed"`, field(t, next.until("run_finished"), "outcome"))
			for _, a := range answers() {
				require.Equal(t, 200, a.status, string(a.body))
			}
			require.Len(t, w.stored("chat_history:1"), 10)
		})
	}
	t.Run("interrupts in a row", func(t *testing.T) {
		release := make(chan struct{})
		w := newWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
			if r.Message != "third" {
				waits(nil)(ctx, r, emit)
				return
			}
			waits(release)(ctx, r, emit)
		})
		w.open("POST", path, body{"first", "interrupt"}).until("subagent_delegation")
		w.open("POST", path, body{"second", "interrupt"}).until("subagent_delegation")
		close(release)
		require.Equal(t, 200, w.do("POST", path, body{"third", "interrupt"}).status)
		require.Len(t, w.stored("chat_history:1"), 6)
	})
}
