package webmemory_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cutter is a way to Redis that ends in the middle: so many requests pass once it is armed, and the next
// one goes nowhere.
type cutter struct {
	addr    string
	left    atomic.Int64 // requests that pass; what is not armed lets all pass
	armed   atomic.Bool
	reached chan struct{}
	once    sync.Once
}

func newCutter(t *testing.T, to string) *cutter {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{addr: l.Addr().String(), reached: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(from, to)
		}
	}()
	return c
}

func (c *cutter) serve(from net.Conn, to string) {
	defer from.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(from, server) }()
	for b := make([]byte, 64<<10); ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if c.armed.Load() && c.left.Add(-1) < 0 {
			c.once.Do(func() { close(c.reached) })
			_, _ = io.Copy(io.Discard, from) // until its process is dead
			return
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

// A process is killed at every few of the requests that a change of the memory makes of Redis. A process that is left
// finishes the change, or it has never begun.
func TestAKilledProcessLeavesNoHalfOfAChange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rewind", "restore", "fork"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, answers("hello"), sixAtHand, lease)
			w.talk(t, "c", 0, 8)
			to, before := w.id(t, "c", 5), w.export(t, "c")
			path, body, chat := "/v1/chats/c/rewind", `{"to":"`+to+`"}`, "c"
			id := w.rewind(t, "c", to).ID
			after := w.export(t, "c")
			switch name {
			case "restore":
				before, after = after, before
			case "fork":
				chat, body = "fork", `{"as":"fork"}`
				before = ""
			default:
				w.restore(t, "c", id, http.StatusOK)
			}
			seen, whole := map[string]bool{}, false
			for n := int64(1); !whole; n += 4 + n/2 {
				switch name {
				case "restore":
					path, body = "/v1/chats/c/set-aside/"+id+"/restore", ""
				case "fork":
					path = "/v1/chats/c/fork"
				}
				way := newCutter(t, w.redis.Addr)
				settings := w.settings()
				settings.Redis, settings.Lease = way.addr, shortLease
				child, process := w.start(settings)
				answered := make(chan answer, 1)
				w.on(child, func() {
					require.Equal(t, 200, w.do("GET", "/v1/chats/c", nil).status)
					req := w.request("POST", path, body)
					way.left.Store(n)
					way.armed.Store(true)
					go func() { answered <- w.sendQuietly(req) }()
				})
				select {
				case a := <-answered:
					require.Less(t, a.status, 300, string(a.body))
					whole = true
				case <-way.reached:
				}
				process.Kill()
				eventually(t, "the change is over", func() bool {
					meta, ctx := "{chat_history:"+chat+"}:meta", t.Context()
					return !w.look.HExists(ctx, meta, "pending").Val() &&
						w.look.Exists(ctx, "{chat_history:c}:turn", "{chat_history:"+chat+"}:turn").Val() == 0
				})
				got := w.export(t, chat)
				require.Contains(t, []string{before, after}, got, "after %d requests", n)
				seen[got] = true
				// Once more from where it began.
				switch {
				case name == "fork":
					require.Equal(t, 200, w.do("DELETE", "/v1/chats/fork", nil).status)
				case got == before && name == "rewind":
					require.Empty(t, w.asides(t, "c"), "nothing was taken back, after %d requests", n)
				case got == before:
				case name == "restore":
					id = w.rewind(t, "c", to).ID
				default:
					asides := w.asides(t, "c")
					require.Len(t, asides, 1)
					w.restore(t, "c", asides[0].ID, http.StatusOK)
				}
			}
			require.Len(t, seen, 2)
		})
	}
}

// A process is killed at every one of the requests that a keyed post makes of Redis. The post that is sent again is
// answered, and the message is stored once.
func TestAKeyedPostIsAnsweredWhereverItsProcessDied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, answers("hello"), lease)
	for n, whole := int64(0), false; !whole; n++ {
		way := newCutter(t, w.redis.Addr)
		settings := w.settings()
		settings.Redis, settings.Lease = way.addr, shortLease
		child, process := w.start(settings)
		chat, answered := fmt.Sprint("k", n), make(chan answer, 1)
		post := func() *http.Request {
			req := w.request("POST", "/v1/chats/"+chat+"/messages", message{"hi"})
			req.Header.Set("Idempotency-Key", chat)
			return req
		}
		w.on(child, func() {
			require.Equal(t, 200, w.do("GET", "/v1/chats/"+chat, nil).status)
			req := post()
			way.left.Store(n)
			way.armed.Store(true)
			go func() { answered <- w.sendQuietly(req) }()
		})
		select {
		case a := <-answered:
			require.Equal(t, 200, a.status, string(a.body))
			whole = true
		case <-way.reached:
		}
		process.Kill()
		again := make(chan answer, 1)
		go func() {
			a := w.sendQuietly(post())
			for range 3 { // as clients do: a run of which nothing was shown is begun anew
				if a.status == 502 {
					a = w.sendQuietly(post())
				}
			}
			again <- a
		}()
		select {
		case a := <-again:
			require.Equal(t, 200, a.status, "killed after %d requests: %s", n, a.body)
		case <-time.After(time.Minute):
			t.Fatalf("killed after %d requests: the post is not answered", n)
		}
		// Another process may finish the run, which is in its log first.
		eventually(t, "its messages are stored", func() bool { return len(w.stored("chat_history:"+chat)) >= 2 })
		require.Len(t, w.stored("chat_history:"+chat), 2, "killed after %d requests", n)
	}
	require.Positive(t, w.metric(`mneme_faults_total{fault="dead_post"}`), "it is told")
}

// A process is killed at every few of the requests that an erasure makes of Redis. The chat is whole then, or without
// that it is asked for once more all of it goes, its documents too.
func TestAKilledErasureIsFinished(t *testing.T) {
	t.Parallel()
	w := newLibraryWorld(t, lease)
	begun := 0
	for n, whole := int64(0), false; !whole; n += 1 + n/4 {
		chat := fmt.Sprint("e", n)
		w.talk(t, chat, 0, 2)
		req := w.request("PUT", "/v1/chats/"+chat+"/documents/a.txt", nil)
		req.Header.Set("Content-Type", "text/plain")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("The lamp burns oil.")), -1
		require.Equal(t, 201, w.sendQuietly(req).status)
		before := w.export(t, chat)
		way := newCutter(t, w.redis.Addr)
		settings := w.settings()
		settings.Redis, settings.Lease = way.addr, shortLease
		child, process := w.start(settings)
		answered := make(chan answer, 1)
		w.on(child, func() {
			require.Equal(t, 200, w.do("GET", "/v1/chats/"+chat, nil).status)
			req := w.request("DELETE", "/v1/chats/"+chat, nil)
			way.left.Store(n)
			way.armed.Store(true)
			go func() { answered <- w.sendQuietly(req) }()
		})
		select {
		case a := <-answered:
			require.Equal(t, 200, a.status, string(a.body))
			whole = true
		case <-way.reached:
		}
		process.Kill()
		documents := func() string { return string(w.do("GET", "/v1/chats/"+chat+"/documents", nil).body) }
		eventually(t, "nothing is pending", func() bool {
			return !w.look.HExists(t.Context(), "{chat_history:"+chat+"}:meta", "pending").Val() &&
				w.look.Exists(t.Context(), "{chat_history:"+chat+"}:turn", "{chat_history:"+chat+"}:first").Val() == 0
		})
		if !whole && w.export(t, chat) == before {
			require.Contains(t, documents(), "a.txt", "killed after %d requests: a part of a chat is gone", n)
			continue
		}
		begun++
		require.NotContains(t, documents(), "a.txt", "killed after %d requests: %s %s", n, before, w.export(t, chat))
		for _, key := range w.look.Keys(t.Context(), "*"+chat+"*").Val() {
			if !strings.HasSuffix(key, ":meta") { // the tombstone
				t.Errorf("killed after %d requests: %s is left", n, key)
			}
		}
		require.NotContains(t, string(w.do("GET", "/v1/chats", nil).body), `"`+chat+`"`)
	}
	require.Greater(t, begun, 5)
	require.Positive(t, w.metric(`mneme_faults_total{fault="half_change"}`), "it is told")
}

// sendQuietly is send for a request to a server that may die.
func (w *world) sendQuietly(req *http.Request) answer {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{status: 599}
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, raw}
}
