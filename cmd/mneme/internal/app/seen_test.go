package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/access/tally"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/copilottest"
	"mneme/internal/redistest"
	"mneme/internal/testtier"
	"mneme/internal/upstreamtest"
	"mneme/memory/telemetry"
)

// seen is a whole mneme with a log that is kept from level info on, with two vendors of
// either dialect: the master's model delegates to analytic, which the other answers.
type seen struct {
	*up
	services         map[string]*telemetry.Service
	claude, teammate *upstreamtest.Server
	gate             sync.Mutex // while it is held the master's model thinks
}

func startSeen(t *testing.T, environ ...string) *seen {
	t.Helper()
	s := &seen{up: &up{t: t}}
	s.claude = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Anthropic,
		Answer: func(r *upstreamtest.Request) *upstreamtest.Answer {
			s.gate.Lock()
			defer s.gate.Unlock()
			return clerk(r)
		}})
	s.teammate = upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat, Answer: clerk})
	claude, teammate := httptest.NewServer(s.claude), httptest.NewServer(s.teammate)
	t.Cleanup(claude.Close)
	t.Cleanup(teammate.Close)
	cfg, err := config.Load("", mergeBackends(append([]string{
		"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_WEBMEMORY_LISTEN=127.0.0.1:0", "MNEME_APISERVER_LISTEN=127.0.0.1:0",
		"MNEME_PROXY_LISTEN=127.0.0.1:0", "MNEME_REDIS_EMBEDDED_LISTEN=127.0.0.1:0",
		"MNEME_LOG_REQUESTS=all", "MNEME_PROXY_ACTIVE=claude",
		backend("claude", "anthropic", claude.URL, `model_map: {"*": claude-opus-5-5}`),
		"MNEME_PROXY_TEAMMATE_BACKEND=gpt", backend("gpt", "openai", teammate.URL+"/v1"),
	}, environ...)))
	require.NoError(t, err)
	services := make(chan map[string]*telemetry.Service, 1)
	s.addrs, s.stop = running(t, app.UpSeen(services), cfg, app.Options{Out: io.Discard,
		Log: zerolog.New(io.MultiWriter(os.Stderr, &s.log))})
	s.services = <-services
	return s
}

// post sends a message and gives the answer's status, the run and the body.
func (s *seen) post(path, body string, header ...string) (status int, run, answer string) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url(path), strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, resp.Header.Get("Mneme-Run-Id"), string(b)
}

// lines are the log's, of one service.
func (s *seen) lines(service string) (lines []map[string]any) {
	for text := range strings.Lines(s.log.String()) {
		var line map[string]any
		require.NoError(s.t, json.Unmarshal([]byte(text), &line), text)
		if line["service"] == service {
			lines = append(lines, line)
		}
	}
	return lines
}

// until waits for a state.
func until(t *testing.T, what string, state func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !state(); time.Sleep(10 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "waited for %s", what)
	}
}

// One id joins what the three services say of a run, and the vendor gets none of it
// but the trace.
func TestARunIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	s := startSeen(t)
	status, run, answer := s.post("/v1/chats/tg:quagga:Ana/messages", `{"message":"How much is 6 times 7?"}`,
		"traceparent", "00-"+trace+"-00f067aa0ba902b7-01", "tracestate", "shop=cart9", "baggage", "customer=ana",
		"X-AG-Chat-Id", "other")
	require.Equal(t, http.StatusOK, status, answer)
	require.NotEmpty(t, run)

	for _, service := range []string{"webmemory", "apiserver", "proxy"} {
		until(t, "the last line of "+service, func() bool {
			last := map[string]string{"webmemory": "request", "apiserver": "run finished", "proxy": "model call"}[service]
			return slices.ContainsFunc(s.lines(service), func(l map[string]any) bool {
				return l["message"] == last && l["run"] == run
			})
		})
		of := 0
		for _, line := range s.lines(service) {
			if line["run"] == nil && line["chat"] == nil && line["trace_id"] == nil {
				continue // of the start
			}
			of++
			require.Equal(t, run, line["run"], "%v", line)
			require.Equal(t, "tg:quagga:Ana", line["chat"], "%v", line)
			require.Equal(t, trace, line["trace_id"], "%v", line)
		}
		require.GreaterOrEqual(t, of, 2, service)
	}
	var finished map[string]any
	for _, line := range s.lines("webmemory") {
		if line["message"] == "run finished" {
			require.Nil(t, finished, "one line")
			finished = line
		}
	}
	require.Equal(t, "completed", finished["outcome"])
	for _, field := range []string{"took", "first_event", "first_text", "events", "input_tokens", "output_tokens"} {
		require.Positive(t, finished[field], field)
	}

	asked := append(s.claude.Requests(), s.teammate.Requests()...)
	require.GreaterOrEqual(t, len(asked), 3, "the master twice, the subagent once")
	spans := map[string]bool{}
	for _, r := range asked {
		require.Regexp(t, "^00-"+trace+"-[0-9a-f]{16}-01$", r.Header.Get("Traceparent"))
		spans[r.Header.Get("Traceparent")] = true
		for name, values := range r.Header {
			require.NotRegexp(t, "(?i)^(x-ag-|tracestate|baggage|mneme)", name)
			require.NotContains(t, strings.Join(values, " "), run)
			require.NotContains(t, strings.Join(values, " "), "quagga")
		}
		require.NotContains(t, string(r.Body), run)
		require.NotContains(t, string(r.Body), "quagga")
	}
	require.Len(t, spans, len(asked), "each request has a parent of its own")

	var page tally.Page
	until(t, "the usage names the chat", func() bool {
		resp, err := http.Get("http://" + s.addrs.Webmemory + "/v1/usage?by=chat")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&page))
		return len(page.Rows) == 1 && page.Rows[0].Calls == int64(len(asked))
	})
	require.Equal(t, "tg:quagga:Ana", page.Rows[0].Name)
}

// A trace is made where none comes, or what comes is none.
func TestATraceIsMadeWhereNoneComes(t *testing.T) {
	t.Parallel()
	s := startSeen(t)
	for _, header := range []string{"", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "a doctor's letter"} {
		before := s.claude.Count()
		status, run, answer := s.post("/v1/chats/1/messages", `{"message":"How much is 6 times 7?"}`, "traceparent", header)
		require.Equal(t, http.StatusOK, status, answer)
		var trace string
		until(t, "the run's line", func() bool {
			for _, line := range s.lines("webmemory") {
				if line["message"] == "run finished" && line["run"] == run {
					trace, _ = line["trace_id"].(string)
				}
			}
			return trace != ""
		})
		require.Regexp(t, "^[0-9a-f]{32}$", trace)
		require.Greater(t, s.claude.Count(), before)
		require.Contains(t, s.claude.Last().Header.Get("Traceparent"), trace)
	}
	require.NotContains(t, s.log.String(), "doctor")
}

// What goes wrong names its run, wherever it is told.
func TestErrorsNameTheirRun(t *testing.T) {
	t.Parallel()
	s := startSeen(t)
	s.claude.Fail(upstreamtest.Fault{Status: 401}, upstreamtest.Fault{Status: 401})
	status, run, answer := s.post("/v1/chats/9/messages", `{"message":"Hello"}`, "Idempotency-Key", "k1")
	require.Equal(t, http.StatusBadGateway, status)
	var body struct {
		Error struct {
			Code  string `json:"code"`
			RunID string `json:"run_id"`
		} `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &body))
	require.NotEmpty(t, run)
	require.Equal(t, run, body.Error.RunID, answer)
	refused := false
	for _, line := range s.lines("proxy") {
		if line["message"] == "model call" {
			require.Equal(t, run, line["run"])
			require.Equal(t, "key_refused", line["reason"])
			refused = true
		}
	}
	require.True(t, refused)
	_, again, repeated := s.post("/v1/chats/9/messages", `{"message":"Hello"}`, "Idempotency-Key", "k1")
	require.Equal(t, run, again)
	require.JSONEq(t, answer, repeated)

	// Of another service's client too.
	for addr, path := range map[string]string{s.addrs.Apiserver: "/v1/runs/NO-SUCH/stop",
		s.addrs.Webmemory: "/v1/chats/9/runs/NO-SUCH/stop"} {
		resp, err := http.Post("http://"+addr+path, "application/json", nil)
		require.NoError(t, err)
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "unknown_run", body.Error.Code)
		require.Equal(t, "NO-SUCH", body.Error.RunID)
	}
	call := func(run string) (int, string) {
		r, err := http.NewRequest(http.MethodPost, "http://"+s.addrs.Proxy+"/v1/chat/completions", strings.NewReader("{"))
		require.NoError(t, err)
		r.Header.Set("X-AG-Run-Id", run)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	status, answer = call("RUN1")
	require.Equal(t, 400, status)
	require.Contains(t, answer, `"run_id":"RUN1"`)
	status, answer = call("no run's id")
	require.Equal(t, 400, status)
	require.Contains(t, answer, "X-AG-Run-Id must be")
}

// of counts the lines with a message.
func (s *seen) of(service, message string) (n int) {
	for _, line := range s.lines(service) {
		if line["message"] == message {
			n++
		}
	}
	return n
}

// What an operator watches of runs moves with them.
func TestRunsAreSeenInMetrics(t *testing.T) {
	t.Parallel()
	s := startSeen(t, "MNEME_RECALL_AUTO=off") // searches use the cache too
	has := func(addr, line string) func() bool {
		return func() bool { return strings.Contains(metrics(t, addr), "\n"+line+"\n") }
	}
	web, agents, gateway := s.addrs.Webmemory, s.addrs.Apiserver, s.addrs.Proxy
	require.True(t, has(web, `mneme_runs_total{outcome="failed"} 0`)(), "what has not happened is 0, not absent")
	s.gate.Lock()
	var posts sync.WaitGroup
	for range 2 {
		posts.Go(func() { s.post("/v1/chats/1/messages", `{"message":"How much is 6 times 7?","stream":true}`) })
	}
	for addr, lines := range map[string][]string{
		web: {"mneme_runs_running 1", "mneme_waiting_messages 1", "mneme_event_streams 1",
			"mneme_http_requests_in_flight 3"},
		agents: {"mneme_apiserver_runs_running 1", "mneme_apiserver_event_streams 1"},
	} {
		for _, line := range lines {
			until(t, line, has(addr, line))
		}
	}
	s.gate.Unlock()
	posts.Wait()
	for addr, lines := range map[string][]string{
		web: {
			"mneme_runs_running 0", "mneme_waiting_messages 0", "mneme_event_streams 0",
			`mneme_runs_total{outcome="completed"} 2`,
			`mneme_run_duration_seconds_count{outcome="completed"} 2`, "mneme_run_first_event_seconds_count 2",
			"mneme_run_first_text_seconds_count 2",
			`mneme_http_requests_total{method="POST",route="/v1/chats/:chat/messages",status="200"} 2`,
			`mneme_client_requests_total{status="202",to="apiserver"} 2`, "mneme_cache_entries 2", "mneme_cache_hits_total 2",
		},
		agents: {`mneme_client_requests_total{status="200",to="proxy"} 8`,
			`mneme_http_requests_total{method="POST",route="/v1/runs",status="202"} 2`},
		gateway: {`mneme_proxy_upstream_first_byte_seconds_count{backend="claude"} 4`,
			`mneme_proxy_circuit_open{backend="claude"} 0`},
	} {
		for _, line := range lines {
			until(t, line, has(addr, line))
		}
	}
	require.NotContains(t, metrics(t, web), "mneme_event_log_bytes_total 0\n")
	page, err := http.NewRequest(http.MethodGet, s.url("/v1/chats"), nil)
	require.NoError(t, err)
	page.Header.Set("Origin", "https://evil.example")
	resp, err := http.DefaultClient.Do(page)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.True(t, has(web, `mneme_http_requests_total{method="GET",route="(refused)",status="403"} 1`)())
}

// A vendor that refuses everything fills no log, and each request is in it all the same.
func TestAVendorThatGoesOnRefusing(t *testing.T) {
	t.Parallel()
	s := startSeen(t)
	const posts = 7
	for range posts {
		s.claude.Fail(upstreamtest.Fault{Status: 401})
		status, _, _ := s.post("/v1/chats/1/messages", `{"message":"Hello"}`)
		require.Equal(t, http.StatusBadGateway, status)
	}
	require.Equal(t, 3, s.of("proxy", "the backend refused a request (claude: key_refused)"))
	require.Equal(t, posts, s.of("proxy", "model call"))
	for _, line := range s.lines("proxy") {
		if line["message"] == "model call" {
			require.Equal(t, "key_refused", line["reason"])
		}
	}
	require.Equal(t, posts, s.of("webmemory", "run finished"))
}

// Redis goes and comes back: said once by each service that needs it, and in /readyz
// with the reason.
func TestARedisThatIsAwayIsSeen(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	s := startSeen(t, "MNEME_REDIS_URL="+server.URL())
	ready := func(addr string) telemetry.Readiness {
		resp, err := http.Get("http://" + addr + "/readyz")
		require.NoError(t, err)
		defer resp.Body.Close()
		var out telemetry.Readiness
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
		return out
	}
	for _, addr := range []string{s.addrs.Webmemory, s.addrs.Apiserver, s.addrs.Proxy} {
		until(t, "ready", func() bool { return ready(addr).Status == "ready" })
		require.Empty(t, ready(addr).Reasons)
	}
	server.Kill()
	for _, addr := range []string{s.addrs.Webmemory, s.addrs.Proxy} {
		until(t, "degraded", func() bool { return ready(addr).Status == "degraded" })
		require.Len(t, ready(addr).Reasons, 1)
		require.Contains(t, ready(addr).Reasons[0], "Redis does not answer")
	}
	require.Contains(t, metrics(t, s.addrs.Proxy), "\nmneme_proxy_store_away 1\n")
	require.NotContains(t, metrics(t, s.addrs.Webmemory), "\nmneme_redis_away_seconds 0\n")
	for range 5 {
		status, run, answer := s.post("/v1/chats/1/messages", `{"message":"Hello"}`)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Empty(t, run)
		require.Contains(t, answer, `"run_id":"`)
	}
	require.NoError(t, server.Run())
	for _, addr := range []string{s.addrs.Webmemory, s.addrs.Proxy} {
		until(t, "ready again", func() bool { return ready(addr).Status == "ready" })
	}
	require.Equal(t, 1,
		s.of("webmemory", "Redis does not answer: new messages are refused, running answers are kept in the spool"))
	until(t, "said", func() bool { return s.of("webmemory", "Redis answers again") == 1 })
	refused := 0
	for _, line := range s.lines("webmemory") {
		if line["path"] == "/v1/chats/1/messages" && line["status"] == 503.0 {
			require.NotEmpty(t, line["run"])
			require.NotEmpty(t, line["causes"])
			refused++
		}
	}
	require.Equal(t, 5, refused, "each request that failed has its line")
}

// tableRow is a row of the metrics in docs/operation.md: name, services.
var tableRow = regexp.MustCompile("(?m)^\\| `((?:mneme_|go_|process_)[a-z_*]+)`[^|]*\\| ([^|]+) \\|")

// The table of all metrics says what /metrics of each service has.
// Each fault of the table names tests that there are, and metrics of the other table.
func TestTheTableOfFaults(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../../../docs/operation.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(docs), "### What goes wrong, and what tells of it")
	table, _, _ = strings.Cut(table, "\n###")
	tests := map[string]bool{}
	for _, folder := range []string{"webmemory", "webmemory/*", "access", "access/limit", "memory/journal",
		"memory/redisstore", "proxy", "cmd/mneme", "cmd/mneme/internal/app"} {
		files, err := filepath.Glob("../../../../" + folder + "/*_test.go")
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(string(source), -1) {
				tests[found[1]] = true
			}
		}
	}
	rows := regexp.MustCompile(`(?m)^\| .*`).FindAllString(table, -1)[1:]
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row, -1)
		require.NotEmpty(t, named, row)
		for _, name := range named {
			require.True(t, tests[name[1]], "there is no test %s: %s", name[1], row)
		}
		for _, metric := range regexp.MustCompile("`(mneme_\\w+)").FindAllStringSubmatch(row, -1) {
			require.Contains(t, string(docs), "\n| `"+metric[1]+"` |", row)
		}
	}
}

func TestTheTableOfMetrics(t *testing.T) {
	t.Parallel()
	cli := copilottest.Start(t)
	s := startSeen(t,
		backend("cli", "copilot", "", "provider_backend: gpt", fmt.Sprintf("addr: %q", cli.Addr())))
	status, _, answer := s.post("/v1/chats/1/messages", `{"message":"How much is 6 times 7?"}`)
	require.Equal(t, http.StatusOK, status, answer)

	docs, err := os.ReadFile("../../../../docs/operation.md")
	require.NoError(t, err)
	table := map[string][]string{} // of each service
	for _, row := range tableRow.FindAllStringSubmatch(string(docs), -1) {
		services := strings.Split(row[2], ", ")
		if row[2] == "all" {
			services = []string{"webmemory", "apiserver", "proxy"}
		}
		for _, service := range services {
			require.NotContains(t, table[service], row[1], "docs/operation.md has two rows of one metric of the %s", service)
			table[service] = append(table[service], row[1])
		}
	}
	for service, addr := range map[string]string{"webmemory": s.addrs.Webmemory, "apiserver": s.addrs.Apiserver,
		"proxy": s.addrs.Proxy} {
		there := registered(s.services[service])
		for line := range strings.Lines(metrics(t, addr)) {
			if name, ok := strings.CutPrefix(line, "# HELP "); ok {
				name, _, _ = strings.Cut(name, " ")
				require.Contains(t, there, name)
			}
		}
		documented := func(name string) bool {
			return slices.ContainsFunc(table[service], func(row string) bool {
				prefix, all := strings.CutSuffix(row, "*")
				return row == name || all && strings.HasPrefix(name, prefix)
			})
		}
		for _, name := range slices.Sorted(maps.Keys(there)) {
			if !documented(name) {
				t.Errorf("/metrics of the %s has %s, which the table of metrics in docs/operation.md has not. Add this row, or "+
					"name the service in its second column:\n| `%s` | %s | %s |",
					service, name, name, service, there[name])
			}
			require.Regexp(t, "^(mneme|go|process)_[a-z0-9_]+$", name)
		}
		for _, row := range table[service] {
			if _, is := there[row]; !is && !strings.HasSuffix(row, "*") {
				t.Errorf("The table of metrics in docs/operation.md has %s of the %s, whose /metrics has no such metric. Take "+
					"the service out of the second column of that row, or remove the row.", row, service)
			}
		}
	}
}

// registered are all metrics by name, with their labels and their help as the table
// has them: also those that have no value yet, which /metrics leaves out until
// something is counted.
func registered(s *telemetry.Service) map[string]string {
	descs := make(chan *prometheus.Desc)
	go func() { s.Describe(descs); close(descs) }()
	out := map[string]string{}
	quoted := regexp.MustCompile(
		`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)".*constLabels: {([^}]*)}, variableLabels: {([^}]*)}`,
	)
	for d := range descs {
		m := quoted.FindStringSubmatch(d.String())
		var labels []string
		for _, label := range strings.Split(m[3]+","+m[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				labels = append(labels, "`"+name+"`")
			}
		}
		out[m[1]] = strings.Join(labels, " ") + " | " + m[2]
	}
	return out
}
