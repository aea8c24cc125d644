package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/stack"
	"mneme/internal/upstreamtest"
)

// A panel that shows nothing on the day of a fault is worse than none. A real Prometheus reads the three services while
// the vendor fails and Redis is killed and comes back empty, and then has to have a series for each panel of the board.
func TestEachPanelShowsAFault(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("LEFT OUT: prometheus is not installed (apt install prometheus)")
	}
	if testing.Short() {
		t.Skip("scrapes for half a minute")
	}
	var down atomic.Bool // the vendor
	vendor := httptest.NewServer(upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, PromptCache: true,
		Fault: func(*upstreamtest.Request) *upstreamtest.Fault {
			if !down.Load() {
				return nil
			}
			return &upstreamtest.Fault{Status: http.StatusInternalServerError}
		},
		Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say("You said: " + r.User))
			if len(r.Results) == 0 && strings.Contains(r.User, "order") {
				a = upstreamtest.Reply(upstreamtest.Use("order_state", "{}"))
			}
			return &a
		}}))
	t.Cleanup(vendor.Close)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `"sent"`)
	}))
	t.Cleanup(shop.Close)
	file := filepath.Join(t.TempDir(), "mneme.yaml")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`
agents: {master: {tools: [{http: {name: order_state, description: How far an order is., url: %q}}]}}
`, shop.URL)), 0o600))
	redis := redistest.Start(t)
	environ := []string{"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_REDIS_URL=" + redis.URL(), "MNEME_PROXY_ACTIVE=scripted",
		`MNEME_PROXY_BACKENDS={scripted: {kind: openai, base_url: "` + vendor.URL + `/v1"}}`}
	for _, service := range []string{"WEBMEMORY", "APISERVER", "PROXY"} {
		environ = append(environ, "MNEME_"+service+"_LISTEN=127.0.0.1:0")
	}
	cfg, err := config.Load(file, environ)
	require.NoError(t, err)
	addrs, stop, err := app.Start(context.Background(), app.Up, cfg, app.Options{Out: io.Discard, Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })

	prometheus := startPrometheus(t, program, addrs.Webmemory, addrs.Apiserver, addrs.Proxy)
	call := func(method, path, body string, header ...string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addrs.Webmemory+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	const chat = "/v1/chats/observed"
	// work is what users do. A rate takes two scrapes, so that it is done until all is seen.
	work := func() {
		call("POST", chat+"/messages", `{"message": "My locker has the number 12."}`)
		call("POST", chat+"/messages", `{"message": "How far is my order?"}`)
		call("GET", chat+"/recall?query=locker", "")
		call("PUT", chat+"/documents/a.md", `{"text": "A ferry ticket costs 14 crowns."}`)
		call("POST", chat+"/messages", `{"message": "From another page."}`, "Origin", "http://elsewhere.example")
	}
	// What has been counted before the first scrape has not grown since.
	require.Eventually(t, func() bool { return series(t, prometheus, "mneme_redis_resets_total") > 0 }, time.Minute,
		100*time.Millisecond)
	work()
	down.Store(true)
	require.Equal(t, http.StatusBadGateway, call("POST", chat+"/messages", `{"message": "Nothing comes."}`))
	down.Store(false)
	require.True(t, redis.Kill())
	require.Equal(t, http.StatusServiceUnavailable, call("POST", chat+"/messages", `{"message": "Is it kept?"}`))
	require.NoError(t, redis.Run())

	// Without tls there is no certificate.
	missing := slices.DeleteFunc(queriesOfTheBoard(t), func(q query) bool {
		return strings.Contains(q.text, "certificate")
	})
	shows := func(q query) bool {
		return series(t, prometheus, strings.ReplaceAll(q.text, "$__rate_interval", "1m")) > 0
	}
	panels := map[string]bool{} // that show something
	for patience := time.Now().Add(90 * time.Second); len(missing) > 0 && time.Now().Before(patience); {
		work()
		missing = slices.DeleteFunc(missing, func(q query) bool {
			panels[q.where] = panels[q.where] || shows(q)
			return panels[q.where]
		})
	}
	require.Empty(t, missing)
	require.Eventually(t, func() bool {
		return series(t, prometheus, "sum(increase(mneme_redis_resets_total[24h])) > 0") > 0
	}, time.Minute, 100*time.Millisecond, "that Redis came back empty is told")
}

// startPrometheus has a Prometheus with the rules scrape targets each second, and gives its address.
func startPrometheus(t *testing.T, program string, targets ...string) (addr string) {
	t.Helper()
	dir := t.TempDir()
	rules, err := os.ReadFile(filepath.Join(rulesFolder, rulesFile))
	require.NoError(t, err)
	quick := strings.ReplaceAll(string(rules), "interval: 2m", "interval: 1s")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(quick), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yml]
scrape_configs:
- {job_name: mneme, static_configs: [{targets: ["%s"]}]}
`, strings.Join(targets, `", "`))), 0o600))
	addr = freeport.Addr(t)
	p := &stack.Process{Name: "prometheus", Dir: dir, Log: filepath.Join(dir, "log"), Args: []string{program,
		"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + addr}}
	p.Ready = func() error { _, err := stack.Get("http://" + addr + "/-/ready"); return err }
	require.NoError(t, p.Start())
	t.Cleanup(func() { p.Kill() })
	require.NoError(t, p.Await(time.Minute))
	return addr
}

// series is how many a query gives.
func series(t *testing.T, addr, text string) int {
	t.Helper()
	said, err := stack.Get("http://" + addr + "/api/v1/query?query=" + url.QueryEscape(text))
	require.NoError(t, err, text)
	var answer struct{ Data struct{ Result []any } }
	require.NoError(t, json.Unmarshal([]byte(said), &answer))
	return len(answer.Data.Result)
}
