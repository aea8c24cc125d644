package webmemory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/memory"
	"mneme/webmemory"
)

// patient is a lease for which no test waits.
const patient = 20 * time.Minute

func patiently(c *webmemory.Config) { c.Lease = patient }

// ended waits until no run of the chat is open, and looks that it was completed.
func (w *world) ended(chat string) {
	w.t.Helper()
	eventually(w.t, "the run is over", func() bool {
		return errors.Is(w.look.ZScore(context.Background(), "turns:open", chat).Err(), redis.Nil) &&
			len(w.stored("chat_history:"+chat)) > 1
	})
	wantChat, wantAnalytic := whole("hi")
	require.Equal(w.t, wantChat, w.stored("chat_history:"+chat))
	require.Equal(w.t, wantAnalytic, w.stored("subagent:analytic:"+chat))
}

// A process on the disk of one that was killed does not wait for its lease.
func TestALeaseOfTheDeadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	began := func(t *testing.T) (w *world, s *script, kill func(), settings childSettings) {
		s = newScript()
		w = newWorld(t, s.agent, patiently, apart(t))
		settings = w.settings()
		settings.Lease = patient
		other, process := w.start(settings)
		w.on(other, func() {
			s.let(memory.MustChat("1"), 2)
			w.open("POST", "/v1/chats/1/messages", message{"hi"}).until("subagent_delegation")
		})
		return w, s, func() { process.Kill() }, settings
	}
	t.Run("by one that starts", func(t *testing.T) {
		w, s, kill, settings := began(t)
		kill()
		s.let(memory.MustChat("1"), scriptEvents)
		require.Greater(t, w.look.PTTL(ctx, "{chat_history:1}:turn").Val(), patient/2)
		w.start(settings)
		w.ended("1")
	})
	t.Run("by one beside it", func(t *testing.T) {
		w, s, kill, settings := began(t)
		w.start(settings)
		kill()
		s.let(memory.MustChat("1"), scriptEvents)
		w.ended("1")
	})
	t.Run("by a message", func(t *testing.T) {
		w, s, kill, settings := began(t)
		// As if the process had died before it noted its run.
		require.NoError(t, w.look.ZRem(ctx, "turns:open", "1").Err())
		require.NoError(t, w.look.HDel(ctx, "{chat_history:1}:meta", "open").Err())
		kill()
		beside, _ := w.start(settings)
		s.let(memory.MustChat("1"), 2*scriptEvents)
		w.on(beside, func() {
			got := w.do("POST", "/v1/chats/1/messages", message{"again"})
			require.Equal(t, 200, got.status, string(got.body))
		})
	})
	t.Run("by nobody while it lives", func(t *testing.T) {
		w, s, _, settings := began(t)
		beside, _ := w.start(settings)
		w.on(beside, func() {
			require.Equal(t, 409, w.do("POST", "/v1/chats/1/messages", `{"message":"again","on_busy":"reject"}`, "Content-Type",
				"application/json").status)
		})
		s.let(memory.MustChat("1"), scriptEvents)
		w.ended("1")
	})
}

// A turn that ended while Redis was away is given back when it returns.
func TestATurnIsGivenBackWhenRedisReturns(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newScript()
	w := newWorldOver(t, s.agent, []string{"--appendonly", "yes", "--appendfsync", "always"}, patiently)
	s.let(memory.MustChat("1"), 2)
	tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
	tr.until("subagent_delegation")
	w.redis.Kill()
	s.let(memory.MustChat("1"), scriptEvents)
	tr.until("run_finished")
	require.NoError(t, w.redis.Run())
	w.ended("1")
	s.let(memory.MustChat("1"), scriptEvents)
	require.Equal(t, 200, w.do("POST", "/v1/chats/1/messages", message{"again"}).status)
}
