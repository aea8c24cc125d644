package app_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
)

// A gateway that is stopped lets the answers of models that are under way come to their end, for as long as drain_timeout
// says: past the 10 s that it has by default, and the 5 s that open connections have behind that.
func TestAStopWaitsForAnswersOfModels(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until the defaults are over")
	}
	t.Parallel()
	g := newGate(t)
	u := startOnly(t, app.Proxy, "MNEME_DATA_DIR="+t.TempDir(), "MNEME_DRAIN_TIMEOUT=5m", "MNEME_PROXY_ACTIVE=slow",
		backend("slow", "openai", g.url))
	said := make(chan string, 1)
	go func() {
		defer close(said)
		resp, err := http.Post("http://"+u.addrs.Proxy+"/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"master","messages":[{"role":"user","content":"When does the heron nest?"}]}`))
		if assert.NoError(t, err) {
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			assert.NoError(t, err)
			said <- string(body)
		}
	}()
	<-g.asked
	stopped := make(chan struct{})
	go func() { defer close(stopped); u.stop() }()
	require.Eventually(t, func() bool { // it takes no more
		conn, err := net.Dial("tcp", u.addrs.Proxy)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond)
	time.AfterFunc(16*time.Second, g.open)
	require.Contains(t, <-said, "the heron nests in May")
	<-stopped
}
