package erase_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/internal/webmemorytest"
	"mneme/master"
	"mneme/memory/event"
	"mneme/webmemory"
)

// postQueued posts n messages at once. answers waits for all responses.
func postQueued(w *webmemorytest.World, n int, body func(i int) any) (answers func() []webmemorytest.Response) {
	out := make([]webmemorytest.Response, n)
	var all sync.WaitGroup
	for i := range n {
		req := w.NewRequest("POST", "/v1/chats/1/messages", body(i))
		all.Go(func() { out[i] = w.Send(req) })
	}
	return func() []webmemorytest.Response {
		all.Wait()
		return out
	}
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
				w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(nil)) // no run ends by itself
				url := w.URL
				if elsewhere {
					url, _ = w.StartChild(w.ChildConfig())
				}
				var running *webmemorytest.Stream
				var answers func() []webmemorytest.Response
				w.Target(url, func() {
					running = w.PostStream("1", "first")
					running.Until("subagent_delegation")
					answers = postQueued(w, 3, func(i int) any { return webmemorytest.Message(fmt.Sprint("waits ", i)) })
					webmemorytest.AwaitQueued(w, 3)
				})
				got := w.Do("DELETE", path, nil)
				require.Equal(t, 200, got.Status, string(got.Body))
				for _, a := range answers() {
					require.Equal(t, 409, a.Status, string(a.Body))
					require.Equal(t, "chat_erased", a.Problem(t).Code)
					require.True(t, a.Problem(t).Retryable)
					require.NotEmpty(t, a.Header.Get("Retry-After"))
				}
				if name != "a subagent's history" {
					require.Nil(t, w.History("chat_history:1"))
				}
				if name != "its history" {
					require.Nil(t, w.History("subagent:analytic:1"))
				}
				next := w.PostStream("1", "afterwards")
				next.Until("run_started")
				require.Contains(t, w.History("chat_history:1"), "user: afterwards")
			})
		}
	}
}

// An erasure that was asked for is done, though its client does not wait for it.
func TestErasureGoesOnWithoutItsClient(t *testing.T) {
	t.Parallel()
	told, release := make(chan struct{}), make(chan struct{})
	w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
		emit(event.Head{}, &event.RunStarted{ChatID: r.Chat, AgentVersion: r.AgentVersion, Message: r.Message})
		<-ctx.Done()
		close(told)
		<-release // a model that is slow to end
		emit(event.Head{}, &event.RunFinished{Outcome: event.Stopped})
	})
	tr := w.PostStream("1", "secret")
	tr.Until("run_started")
	ctx, leave := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(w.NewRequest("DELETE", "/v1/chats/1", nil).WithContext(ctx))
		left <- err
	}()
	<-told
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.NotNil(t, w.History("chat_history:1"))
	close(release)
	webmemorytest.Eventually(t, "it is erased", func() bool { return w.History("chat_history:1") == nil })
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
		w := webmemorytest.NewWorld(t, webmemorytest.AnswersAfter(release))
		require.NotEmpty(t, w.Stream("POST", path, body{"first", "reject"}).Until("subagent_delegation"),
			"an idle chat is not busy")
		for _, url := range []string{w.URL, w.StartReplica()} {
			w.Target(url, func() {
				got := w.Do("POST", path, body{"second", "reject"})
				require.Equal(t, 409, got.Status, string(got.Body))
				require.Equal(t, "chat_busy", got.Problem(t).Code)
				require.NotEmpty(t, got.Header.Get("Retry-After"))
			})
		}
		close(release)
		webmemorytest.Eventually(t, "the chat is free again", func() bool {
			return w.Do("POST", path, body{"third", "reject"}).Status == 200
		})
		require.Equal(t, []string{"user: first", "assistant: answer to first", "user: third", "assistant: answer to third"},
			w.History("chat_history:1"))
	})
	for _, where := range []struct{ run, wait bool }{{false, false}, {true, true}, {true, false}} {
		t.Run(fmt.Sprintf("interrupt, elsewhere: %+v", where), func(t *testing.T) {
			release := make(chan struct{})
			w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
				if r.Message == "first" {
					webmemorytest.AnswersAfter(nil)(ctx, r, emit)
					return
				}
				webmemorytest.AnswersAfter(release)(ctx, r, emit)
			}, func(c *webmemory.Config) { c.QueueLimit = 4 })
			run, wait := w.URL, w.URL
			if where.run {
				run, _ = w.StartChild(w.ChildConfig())
			}
			if where.wait {
				wait = run
			}
			var first *webmemorytest.Stream
			var answers func() []webmemorytest.Response
			w.Target(run, func() {
				first = w.Stream("POST", path, webmemorytest.Message("first"))
				first.Until("subagent_delegation")
			})
			w.Target(wait, func() {
				answers = postQueued(w, 3, func(i int) any { return webmemorytest.Message(fmt.Sprint("waits ", i)) })
				if run == wait {
					webmemorytest.AwaitQueued(w, 3)
				} else {
					webmemorytest.AwaitQueued(w, 2) // the third stands before all others, and waits for the lease
				}
			})
			next := w.Stream("POST", path, body{"now", "interrupt"})
			require.JSONEq(t, `"stopped"`, gjson.GetBytes(first.Until("run_finished"), "outcome").Raw)
			next.Until("run_started")
			require.Equal(t, []string{"user: first", "assistant: answer to first", "user: now"}, w.History("chat_history:1"),
				"what was shown is kept, and who waits goes on waiting")
			close(release)
			require.JSONEq(t, `"completed"`, gjson.GetBytes(next.Until("run_finished"), "outcome").Raw)
			for _, a := range answers() {
				require.Equal(t, 200, a.Status, string(a.Body))
			}
			require.Len(t, w.History("chat_history:1"), 10)
		})
	}
	t.Run("interrupts in a row", func(t *testing.T) {
		release := make(chan struct{})
		w := webmemorytest.NewWorld(t, func(ctx context.Context, r master.Request, emit func(event.Head, event.Payload)) {
			if r.Message != "third" {
				webmemorytest.AnswersAfter(nil)(ctx, r, emit)
				return
			}
			webmemorytest.AnswersAfter(release)(ctx, r, emit)
		})
		w.Stream("POST", path, body{"first", "interrupt"}).Until("subagent_delegation")
		w.Stream("POST", path, body{"second", "interrupt"}).Until("subagent_delegation")
		close(release)
		require.Equal(t, 200, w.Do("POST", path, body{"third", "interrupt"}).Status)
		require.Len(t, w.History("chat_history:1"), 6)
	})
}
