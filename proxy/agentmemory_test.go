package proxy_test

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/freeport"
	"mneme/internal/testtier"
	"mneme/proxy"
)

// A turn is recorded although webmemory restarts at its end.
func TestATurnIsRecordedAcrossARestart(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	v := vendor(t, says("application/json", `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,`+
		`"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],`+
		`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`))
	for name, first := range map[string]int{"it listens later": 0, "it drains first": 2} {
		var heard, refused atomic.Int32
		refused.Store(int32(first))
		webmemory := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case !strings.HasSuffix(r.URL.Path, "/heard"):
				w.WriteHeader(http.StatusServiceUnavailable)
			case refused.Add(-1) >= 0:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				heard.Add(1)
				w.WriteHeader(http.StatusNoContent)
			}
		})}
		addr := freeport.Addr(t)
		time.AfterFunc(time.Second, func() {
			if l, err := net.Listen("tcp", addr); err == nil {
				_ = webmemory.Serve(l)
			}
		})
		c := to(v, proxy.KindOpenAI)
		c.Memory = proxy.AgentMemory{URL: "http://" + addr, Wait: 50 * time.Millisecond, Transport: http.DefaultTransport}
		url, log := logged(t, c)
		got := call(t, "POST", url+"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
			"Content-Type", "application/json", "X-AG-Memory", "laptop")
		require.Equal(t, http.StatusOK, got.status, got.body)
		require.Eventually(t, func() bool { return heard.Load() == 1 }, time.Minute, 10*time.Millisecond, name)
		require.NotContains(t, log.String(), "is not remembered")
		require.NoError(t, webmemory.Close())
	}
}
