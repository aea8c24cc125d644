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

	"mneme/internal/webmemorytest"

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
			w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), sixAtHand, webmemorytest.ShortenLease)
			talk(t, w, "c", 0, 8)
			to, before := messageID(t, w, "c", 5), exportChat(t, w, "c")
			path, body, chat := "/v1/chats/c/rewind", `{"to":"`+to+`"}`, "c"
			id := rewindChat(t, w, "c", to).ID
			after := exportChat(t, w, "c")
			switch name {
			case "restore":
				before, after = after, before
			case "fork":
				chat, body = "fork", `{"as":"fork"}`
				before = ""
			default:
				restoreAside(t, w, "c", id, http.StatusOK)
			}
			seen, whole := map[string]bool{}, false
			for n := int64(1); !whole; n += 4 + n/2 {
				switch name {
				case "restore":
					path, body = "/v1/chats/c/set-aside/"+id+"/restore", ""
				case "fork":
					path = "/v1/chats/c/fork"
				}
				way := newCutter(t, w.RedisServer.Addr)
				settings := w.ChildConfig()
				settings.Redis = []string{way.addr}
				child, process := w.StartChild(settings)
				answered := make(chan webmemorytest.Response, 1)
				w.Target(child, func() {
					require.Equal(t, 200, w.Do("GET", "/v1/chats/c", nil).Status)
					req := w.NewRequest("POST", path, body)
					way.left.Store(n)
					way.armed.Store(true)
					go func() { answered <- sendQuietly(w, req) }()
				})
				select {
				case a := <-answered:
					require.Less(t, a.Status, 300, string(a.Body))
					whole = true
				case <-way.reached:
				}
				process.Kill()
				webmemorytest.Eventually(t, "the change is over", func() bool {
					meta, ctx := "{chat_history:"+chat+"}:meta", t.Context()
					return !w.Redis.HExists(ctx, meta, "pending").Val() &&
						w.Redis.Exists(ctx, "{chat_history:c}:turn", "{chat_history:"+chat+"}:turn").Val() == 0
				})
				got := exportChat(t, w, chat)
				require.Contains(t, []string{before, after}, got, "after %d requests", n)
				seen[got] = true
				// Once more from where it began.
				switch {
				case name == "fork":
					require.Equal(t, 200, w.Do("DELETE", "/v1/chats/fork", nil).Status)
				case got == before && name == "rewind":
					require.Empty(t, listAsides(t, w, "c"), "nothing was taken back, after %d requests", n)
				case got == before:
				case name == "restore":
					id = rewindChat(t, w, "c", to).ID
				default:
					asides := listAsides(t, w, "c")
					require.Len(t, asides, 1)
					restoreAside(t, w, "c", asides[0].ID, http.StatusOK)
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
	w := webmemorytest.NewWorld(t, webmemorytest.Answers("hello"), webmemorytest.ShortenLease)
	for n, whole := int64(0), false; !whole; n++ {
		way := newCutter(t, w.RedisServer.Addr)
		settings := w.ChildConfig()
		settings.Redis = []string{way.addr}
		child, process := w.StartChild(settings)
		chat, answered := fmt.Sprint("k", n), make(chan webmemorytest.Response, 1)
		post := func() *http.Request {
			req := w.NewRequest("POST", "/v1/chats/"+chat+"/messages", webmemorytest.Message("hi"))
			req.Header.Set("Idempotency-Key", chat)
			return req
		}
		w.Target(child, func() {
			require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat, nil).Status)
			req := post()
			way.left.Store(n)
			way.armed.Store(true)
			go func() { answered <- sendQuietly(w, req) }()
		})
		select {
		case a := <-answered:
			require.Equal(t, 200, a.Status, string(a.Body))
			whole = true
		case <-way.reached:
		}
		process.Kill()
		again := make(chan webmemorytest.Response, 1)
		go func() {
			a := sendQuietly(w, post())
			for range 3 { // as clients do: a run of which nothing was shown is begun anew
				if a.Status == 502 {
					a = sendQuietly(w, post())
				}
			}
			again <- a
		}()
		select {
		case a := <-again:
			require.Equal(t, 200, a.Status, "killed after %d requests: %s", n, a.Body)
		case <-time.After(time.Minute):
			t.Fatalf("killed after %d requests: the post is not answered", n)
		}
		// Another process may finish the run, which is in its log first.
		webmemorytest.Eventually(t, "its messages are stored", func() bool {
			return len(w.History("chat_history:"+chat)) >= 2
		})
		require.Len(t, w.History("chat_history:"+chat), 2, "killed after %d requests", n)
	}
	require.Positive(t, w.Metric(`mneme_faults_total{fault="dead_post"}`), "it is told")
}

// A process is killed at every few of the requests that an erasure makes of Redis. The chat is whole then, or without
// that it is asked for once more all of it goes, its documents too.
func TestAKilledErasureIsFinished(t *testing.T) {
	t.Parallel()
	w := newLibraryWorld(t, webmemorytest.ShortenLease)
	begun := 0
	for n, whole := int64(0), false; !whole; n += 1 + n/4 {
		chat := fmt.Sprint("e", n)
		talk(t, w, chat, 0, 2)
		req := w.NewRequest("PUT", "/v1/chats/"+chat+"/documents/a.txt", nil)
		req.Header.Set("Content-Type", "text/plain")
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("The lamp burns oil.")), -1
		require.Equal(t, 201, sendQuietly(w, req).Status)
		before := exportChat(t, w, chat)
		way := newCutter(t, w.RedisServer.Addr)
		settings := w.ChildConfig()
		settings.Redis = []string{way.addr}
		child, process := w.StartChild(settings)
		answered := make(chan webmemorytest.Response, 1)
		w.Target(child, func() {
			require.Equal(t, 200, w.Do("GET", "/v1/chats/"+chat, nil).Status)
			req := w.NewRequest("DELETE", "/v1/chats/"+chat, nil)
			way.left.Store(n)
			way.armed.Store(true)
			go func() { answered <- sendQuietly(w, req) }()
		})
		select {
		case a := <-answered:
			require.Equal(t, 200, a.Status, string(a.Body))
			whole = true
		case <-way.reached:
		}
		process.Kill()
		documents := func() string { return string(w.Do("GET", "/v1/chats/"+chat+"/documents", nil).Body) }
		webmemorytest.Eventually(t, "nothing is pending", func() bool {
			return !w.Redis.HExists(t.Context(), "{chat_history:"+chat+"}:meta", "pending").Val() &&
				w.Redis.Exists(t.Context(), "{chat_history:"+chat+"}:turn", "{chat_history:"+chat+"}:first").Val() == 0
		})
		if !whole && exportChat(t, w, chat) == before {
			require.Contains(t, documents(), "a.txt", "killed after %d requests: a part of a chat is gone", n)
			continue
		}
		begun++
		require.NotContains(t, documents(), "a.txt", "killed after %d requests: %s %s", n, before, exportChat(t, w, chat))
		for _, key := range w.Redis.Keys(t.Context(), "*"+chat+"*").Val() {
			if !strings.HasSuffix(key, ":meta") { // the tombstone
				t.Errorf("killed after %d requests: %s is left", n, key)
			}
		}
		require.NotContains(t, string(w.Do("GET", "/v1/chats", nil).Body), `"`+chat+`"`)
	}
	require.Greater(t, begun, 5)
	require.Positive(t, w.Metric(`mneme_faults_total{fault="half_change"}`), "it is told")
}

// sendQuietly sends a request to a server that may die. It then returns the status 599.
func sendQuietly(w *webmemorytest.World, req *http.Request) webmemorytest.Response {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return webmemorytest.Response{Status: 599}
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return webmemorytest.Response{Status: resp.StatusCode, Header: resp.Header, Body: raw}
}
