package webmemory_test

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
	"mneme/memory"
	"mneme/webmemory"
)

// relay passes connections on to an address, and cuts each after a while.
type relay struct {
	at   string // its own
	away atomic.Bool
	cut  atomic.Int64 // connections that it has cut
}

func newRelay(t *testing.T, to string, after time.Duration) *relay {
	l, err := listen("127.0.0.1:0")
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

// through is a webmemory that reaches the apiserver through a relay.
func (w *world) through(r *relay, change ...func(*webmemory.Config)) string {
	before := w.api.URL
	w.api.URL = "http://" + r.at
	defer func() { w.api.URL = before }()
	return w.process(change...)
}

func impatient(c *webmemory.Config) { c.Patience = 3 * time.Second }

// A quiet run with connections that break again and again is a living one, however long
// its model thinks.
func TestAQuietRunBehindARelayThatCuts(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent)
	r := newRelay(t, w.api.Listener.Addr().String(), 200*time.Millisecond)
	w.on(w.through(r, impatient), func() {
		s.let(memory.MustChat("1"), 1)
		tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
		tr.until("run_started")
		before := r.cut.Load()
		// 20 cuts take longer than the patience.
		eventually(t, "many connections were cut", func() bool { return r.cut.Load() >= before+20 })
		s.let(memory.MustChat("1"), scriptEvents)
		roles := tr.roles()
		require.Len(t, roles, scriptEvents-1)
		require.NotContains(t, roles, "error")
	})
	chat, _ := whole("hi")
	require.Equal(t, chat, w.stored("chat_history:1"))
}

// A run with an apiserver that is out of reach for longer than the patience is closed,
// and stopped there once that can be reached again.
func TestARunThatIsClosedIsStoppedWhereItIs(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	s := newScript()
	w := newWorld(t, s.agent)
	r := newRelay(t, w.api.Listener.Addr().String(), 200*time.Millisecond)
	w.on(w.through(r, impatient), func() {
		s.let(memory.MustChat("1"), 1)
		tr := w.open("POST", "/v1/chats/1/messages", message{"hi"})
		tr.until("run_started")
		r.away.Store(true)
		require.Equal(t, []string{"error", "run_finished"}, tr.roles())
		r.away.Store(false)
		run := tr.resp.Header.Get("Mneme-Run-Id")
		eventually(t, "it is stopped there", func() bool {
			resp, err := http.Get(w.api.URL + "/v1/runs/" + run + "/events")
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
