package app_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/internal/dnstest"
	"mneme/internal/redistest"
	processes "mneme/internal/stack"
)

// Messages spread over the apiservers that a name stands for at that moment. When one of them is killed, none fails
// that was posted after it; one that is added gets some.
func TestMessagesSpreadOverApiservers(t *testing.T) {
	t.Parallel()
	const name = "apiservers.test"
	redis := "MNEME_REDIS_URL=" + redistest.Start(t).URL()
	gateway := serve(t, app.Proxy, redis, "MNEME_PROXY_LISTEN=127.0.0.1:0")
	base := newStack(t, redis, "MNEME_APISERVER_PROXY=http://"+gateway.Proxy)
	_, port, err := net.SplitHostPort(base.at.Apiserver)
	require.NoError(t, err)
	named := "MNEME_WEBMEMORY_APISERVER=http://" + net.JoinHostPort(name, port)
	var all []*stack
	var addrs []string
	begin := func() *stack {
		addr := fmt.Sprintf("127.0.0.%d", len(all)+2)
		l, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			t.Skipf("this machine has no such address of loopback to itself: %v", err)
		}
		require.NoError(t, l.Close())
		s := *base
		s.at.Apiserver = net.JoinHostPort(addr, port)
		s.running = map[string]*processes.Process{}
		s.environ = append(s.environ[:len(s.environ):len(s.environ)], named, "MNEME_APISERVER_LISTEN="+s.at.Apiserver)
		t.Cleanup(func() {
			if s.running["apiserver"] != nil {
				s.kill("apiserver")
			}
		})
		s.start("apiserver")
		all, addrs = append(all, &s), append(addrs, addr)
		dnstest.Set(name, addrs...)
		return &s
	}
	for range 3 {
		begin()
	}
	web := serve(t, app.Webmemory, redis, "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", named)
	var chats atomic.Int64
	say := func() (status int, body string) {
		url := fmt.Sprintf("http://%s/v1/chats/c%d/messages", web.Webmemory, chats.Add(1))
		resp, err := http.Post(url, "application/json", strings.NewReader(`{"message":"Hello."}`))
		if !assert.NoError(t, err) {
			return 0, ""
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		return resp.StatusCode, string(raw)
	}
	good := func() {
		status, body := say()
		assert.Equal(t, http.StatusOK, status, body)
	}
	for range 45 {
		good()
	}
	for _, s := range all {
		require.GreaterOrEqual(t, started(t, s.at.Apiserver), 3, s.at.Apiserver)
	}

	var crowd sync.WaitGroup
	var killed atomic.Bool
	half := make(chan struct{}, 40)
	for range 4 {
		crowd.Go(func() {
			for range 20 {
				after := killed.Load()
				if status, body := say(); after {
					assert.Equal(t, http.StatusOK, status, body)
				}
				if len(half) < cap(half) {
					half <- struct{}{}
				}
			}
		})
	}
	for range 20 {
		<-half
	}
	all[0].kill("apiserver")
	killed.Store(true)
	crowd.Wait()
	for range 20 { // its address is still there
		good()
	}
	dnstest.Set(name, addrs[1:]...)
	added := begin()
	for range 100 {
		good()
		if started(t, added.at.Apiserver) > 0 {
			break
		}
	}
	require.Positive(t, started(t, added.at.Apiserver))
}

var startedRuns = regexp.MustCompile(`(?m)^mneme_apiserver_runs_started_total (\d+)$`)

// started is how many runs an apiserver has begun.
func started(t *testing.T, addr string) int {
	t.Helper()
	found := startedRuns.FindStringSubmatch(metrics(t, addr))
	require.NotNil(t, found)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}
