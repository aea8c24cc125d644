package runs_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webmemorytest"
	"mneme/webmemory"
)

// relay passes connections on to an address, and cuts each after a while.
type relay struct {
	at   string // its own
	away atomic.Bool
	cut  atomic.Int64 // connections that it has cut
}

func newRelay(t *testing.T, to string, after time.Duration) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{at: l.Addr().String()}
	var pipes sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	pipes.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if r.away.Load() {
				_ = in.Close()
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			pipes.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			pipes.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			pipes.Go(func() {
				select {
				case <-time.After(after):
				case <-ctx.Done():
				}
				r.cut.Add(1)
				_ = in.Close()
				_ = out.Close()
			})
		}
	})
	t.Cleanup(func() { end(); _ = l.Close(); pipes.Wait() })
	return r
}

// startBehindRelay starts a replica that reaches the apiserver through a relay.
func startBehindRelay(w *webmemorytest.World, r *relay, change ...func(*webmemory.Config)) string {
	before := w.Apiserver.URL
	w.Apiserver.URL = "http://" + r.at
	defer func() { w.Apiserver.URL = before }()
	return w.StartReplica(change...)
}

func impatient(c *webmemory.Config) { c.Patience = 3 * time.Second }

// A quiet run with connections that break again and again is a living one, however long
// its model thinks.
func TestAQuietRunBehindARelayThatCuts(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	r := newRelay(t, w.Apiserver.Listener.Addr().String(), 200*time.Millisecond)
	w.Target(startBehindRelay(w, r, impatient), func() {
		s.Allow("1", 1)
		tr := w.PostStream("1", "hi")
		tr.Until("run_started")
		before := r.cut.Load()
		// 20 cuts take longer than the patience.
		webmemorytest.Eventually(t, "many connections were cut", func() bool { return r.cut.Load() >= before+20 })
		s.Allow("1", webmemorytest.ScriptEvents)
		roles := tr.Roles()
		require.Len(t, roles, webmemorytest.ScriptEvents-1)
		require.NotContains(t, roles, "error")
	})
	chat, _ := webmemorytest.ScriptHistories("hi")
	require.Equal(t, chat, w.History("chat_history:1"))
}

// A run with an apiserver that is out of reach for longer than the patience is closed,
// and stopped there once that can be reached again.
func TestARunThatIsClosedIsStoppedWhereItIs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := &webmemorytest.Script{}
	w := webmemorytest.NewWorld(t, s.Play)
	r := newRelay(t, w.Apiserver.Listener.Addr().String(), 200*time.Millisecond)
	w.Target(startBehindRelay(w, r, impatient), func() {
		s.Allow("1", 1)
		tr := w.PostStream("1", "hi")
		tr.Until("run_started")
		r.away.Store(true)
		require.Equal(t, []string{"error", "run_finished"}, tr.Roles())
		r.away.Store(false)
		run := tr.RunID()
		webmemorytest.Eventually(t, "it is stopped there", func() bool {
			resp, err := http.Get(w.Apiserver.URL + "/v1/runs/" + run + "/events")
			require.NoError(t, err)
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusNotFound {
				return true // over, and told to be stored
			}
			body, err := io.ReadAll(resp.Body) // ends with the run
			return err == nil && strings.Contains(string(body), `"stopped"`)
		})
	})
}
