package turns_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
)

// patient is a lease for which no test waits.
const patient = 20 * time.Minute

func patiently(c *webmemory.Config) { c.Lease = patient }

// awaitEnd waits until the chat has no open run and requires that the last run is completed.
func awaitEnd(w *webmemorytest.World, chat string) {
	w.T.Helper()
	webmemorytest.Eventually(w.T, "the run is over", func() bool {
		return errors.Is(w.Redis.ZScore(context.Background(), "turns:open", chat).Err(), redis.Nil) &&
			len(w.History("chat_history:"+chat)) > 1
	})
	wantChat, wantAnalytic := webmemorytest.ScriptHistories("hi")
	require.Equal(w.T, wantChat, w.History("chat_history:"+chat))
	require.Equal(w.T, wantAnalytic, w.History("subagent:analytic:"+chat))
}

// A process on the disk of one that was killed does not wait for its lease.
func TestALeaseOfTheDeadIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	began := func(t *testing.T) (w *webmemorytest.World, s *webmemorytest.Script, kill func(),
		settings webmemorytest.ChildConfig) {
		s = &webmemorytest.Script{}
		w = webmemorytest.NewWorld(t, s.Play, patiently, webmemorytest.OwnDisk(t))
		settings = w.ChildConfig()
		settings.Lease = patient
		other, process := w.StartChild(settings)
		w.Target(other, func() {
			s.Allow("1", 2)
			w.PostStream("1", "hi").Until("subagent_delegation")
		})
		return w, s, func() { process.Kill() }, settings
	}
	t.Run("by one that starts", func(t *testing.T) {
		w, s, kill, settings := began(t)
		kill()
		s.Allow("1", webmemorytest.ScriptEvents)
		require.Greater(t, w.Redis.PTTL(ctx, "{chat_history:1}:turn").Val(), patient/2)
		w.StartChild(settings)
		awaitEnd(w, "1")
	})
	t.Run("by one beside it", func(t *testing.T) {
		w, s, kill, settings := began(t)
		w.StartChild(settings)
		kill()
		s.Allow("1", webmemorytest.ScriptEvents)
		awaitEnd(w, "1")
	})
	t.Run("by a message", func(t *testing.T) {
		w, s, kill, settings := began(t)
		// As if the process had died before it noted its run.
		require.NoError(t, w.Redis.ZRem(ctx, "turns:open", "1").Err())
		require.NoError(t, w.Redis.HDel(ctx, "{chat_history:1}:meta", "open").Err())
		kill()
		beside, _ := w.StartChild(settings)
		s.Allow("1", 2*webmemorytest.ScriptEvents)
		w.Target(beside, func() {
			got := w.Post("1", "again")
			require.Equal(t, 200, got.Status, string(got.Body))
		})
	})
	t.Run("by nobody while it lives", func(t *testing.T) {
		w, s, _, settings := began(t)
		beside, _ := w.StartChild(settings)
		w.Target(beside, func() {
			require.Equal(t, 409, w.Do("POST", "/v1/chats/1/messages", `{"message":"again","on_busy":"reject"}`, "Content-Type",
				"application/json").Status)
		})
		s.Allow("1", webmemorytest.ScriptEvents)
		awaitEnd(w, "1")
	})
}

// A turn that ended while Redis was away is given back when it returns.
func TestATurnIsGivenBackWhenRedisReturns(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewDurableWorld(t, s.Play, patiently)
	s.Allow("1", 2)
	tr := w.PostStream("1", "hi")
	tr.Until("subagent_delegation")
	w.RedisServer.Kill()
	s.Allow("1", webmemorytest.ScriptEvents)
	tr.Until("run_finished")
	require.NoError(t, w.RedisServer.Run())
	awaitEnd(w, "1")
	s.Allow("1", webmemorytest.ScriptEvents)
	require.Equal(t, 200, w.Post("1", "again").Status)
}
