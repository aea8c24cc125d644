package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/upstreamtest"
)

// target is a whole mneme that web pages are after: it holds a chat, a document,
// two backends, and a vendor that counts the calls that were paid.
type target struct {
	*up
	vendor *upstreamtest.Server
}

// secret is told in the target's chat and stands in its document.
const secret = "Oyuna keeps the key under the stone lion"

func newTarget(t *testing.T, environ ...string) *target {
	t.Helper()
	x := &target{vendor: upstreamtest.New(upstreamtest.Config{Vendor: upstreamtest.Chat,
		Answer: func(*upstreamtest.Request) *upstreamtest.Answer {
			a := upstreamtest.Reply(upstreamtest.Say("I will remember it."))
			return &a
		}})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*") // some vendors do, for their own pages
		w.Header().Set("Vary", "Accept-Encoding")
		x.vendor.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	x.up = start(t, append([]string{
		"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_PROXY_ACTIVE=paid", backend("paid", "openai", server.URL+"/v1"),
		backend("spare", "offline", ""),
	}, environ...)...)
	x.load(map[string]string{"lion.md": secret})
	x.say("mine", secret)
	require.Eventually(t, func() bool { // the answer comes a moment before the turn is given back
		_, body := x.request("GET", "/v1/chats/mine", "", "")
		return !strings.Contains(body, `"run":`)
	}, time.Minute, 10*time.Millisecond)
	return x
}

// state is all that a page might change: what is remembered and kept, which backend
// is active, how often the vendor was asked.
func (x *target) state() string {
	x.t.Helper()
	var all strings.Builder
	for _, url := range []string{
		x.url("/v1/chats"), x.url("/v1/chats/mine"), x.url("/v1/chats/mine/history"), x.url("/v1/chats/mine/documents"),
		x.url("/v1/collections"), x.url("/v1/collections/docs/documents"), x.url("/v1/collections/docs/documents/lion.md"),
		"http://" + x.addrs.Proxy + "/admin/backend",
	} {
		resp, err := http.Get(url)
		require.NoError(x.t, err)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(x.t, err)
		require.Equal(x.t, http.StatusOK, resp.StatusCode, "%s: %s", url, body)
		fmt.Fprintf(&all, "%s\n%s\n", url, body)
	}
	fmt.Fprintf(&all, "%d calls", x.vendor.Count())
	return all.String()
}

// call is a request to one of the services.
type call struct{ service, method, path, kind, body string }

// calls are those that a page would want most.
var calls = []call{
	{"webmemory", "GET", "/v1/chats/mine/history", "", ""},
	{"webmemory", "POST", "/v1/chats/mine/messages", "application/json", `{"message":"planted"}`},
	{"webmemory", "POST", "/v1/chats/mine/messages", "text/plain", `{"message":"planted"}`},
	{"webmemory", "POST", "/chat", "application/x-www-form-urlencoded", `{"chat_id":"mine","message":"planted"}`},
	{"webmemory", "DELETE", "/v1/chats/mine", "", ""},
	{"webmemory", "POST", "/v1/collections/docs/documents", "text/plain", `{"id":"planted.md","text":"planted"}`},
	{"webmemory", "PUT", "/v1/collections/docs/documents/lion.md", "text/markdown", "planted"},
	{"webmemory", "DELETE", "/v1/collections/docs", "", ""},
	{"apiserver", "GET", "/v1/collections/docs/documents/lion.md", "", ""},
	{"apiserver", "POST", "/v1/collections/docs/documents", "", `{"id":"planted.md","text":"planted"}`},
	{"apiserver", "POST", "/v1/runs", "application/json", `{"run_id":"r1","message":"planted","chat_id":"mine"}`},
	{"apiserver", "DELETE", "/v1/collections/docs", "", ""},
	{"proxy", "GET", "/admin/backend", "", ""},
	{"proxy", "PUT", "/admin/backend", "text/plain", `{"active":"spare"}`},
	{"proxy", "POST", "/v1/chat/completions", "text/plain",
		`{"model":"m","messages":[{"role":"user","content":"spend"}]}`},
	{"proxy", "POST", "/v1/messages", "application/json",
		`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"spend"}]}`},
	{"proxy", "POST", "/teammate/analytic/v1/chat/completions", "",
		`{"model":"m","messages":[{"role":"user","content":"spend"}]}`},
}

func (x *target) addr(service string) string {
	return map[string]string{"webmemory": x.addrs.Webmemory, "apiserver": x.addrs.Apiserver,
		"proxy": x.addrs.Proxy}[service]
}

// send makes a call with headers as "Name: value".
func send(t *testing.T, addr string, c call, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(c.method, "http://"+addr+c.path, strings.NewReader(c.body))
	require.NoError(t, err)
	if c.kind != "" {
		req.Header.Set("Content-Type", c.kind)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// Whatever a hostile page's browser would send, no service does it, and each says
// so as it says its other errors.
func TestPagesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	x := newTarget(t, "MNEME_HTTP_ALLOWED_ORIGINS=[https://app.example]")
	before := x.state()
	for name, headers := range map[string][]string{
		"foreign origin":  {"Origin: https://evil.test"},
		"sandboxed frame": {"Origin: null", "Sec-Fetch-Site: cross-site"},
		"another port":    {"Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"},
		"image": {"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors",
			"Sec-Fetch-Dest: image"},
		"rebinding": {"Host: evil.test:8080"},
		"rebinding with the origin that fits": {"Host: evil.test", "Origin: http://evil.test",
			"Sec-Fetch-Site: same-origin"},
		"allowed origin, but by a foreign name": {"Host: evil.test", "Origin: https://app.example"},
	} {
		for _, c := range calls {
			for _, preflight := range []bool{false, true} {
				if preflight {
					headers = append(headers[:len(headers):len(headers)], "Access-Control-Request-Method: "+c.method)
					c.method, c.body = http.MethodOptions, ""
				}
				resp, body := send(t, x.addr(c.service), c, headers...)
				require.Equal(t, http.StatusForbidden, resp.StatusCode, "%s: %v: %s", name, c, body)
				require.Equal(t, "application/json", strings.Split(resp.Header.Get("Content-Type"), ";")[0])
				var told struct {
					Type  string
					Error struct{ Code, Type, Message string }
				}
				require.NoError(t, json.Unmarshal([]byte(body), &told), body)
				require.NotEmpty(t, told.Error.Message, "%s: %v", name, c)
				if c.path == "/v1/messages" {
					require.Equal(t, "error permission_error", told.Type+" "+told.Error.Type)
				} else {
					require.Contains(t, []string{"origin_not_allowed", "host_not_allowed", "cross_site"}, told.Error.Code)
				}
				require.NotContains(t, body, "stone lion")
			}
		}
	}
	require.Equal(t, before, x.state(), "nothing was written, read, erased, switched or spent")
}

// A refusal names the setting that allows what was refused, and tells a stranger nothing of what is allowed.
func TestARefusalNamesTheSettingThatAllows(t *testing.T) {
	t.Parallel()
	first := newTarget(t, "MNEME_HTTP_ALLOWED_HOSTS=[chat.example.org]",
		"MNEME_HTTP_ALLOWED_ORIGINS=[https://app.example]")
	read := calls[0]
	for _, c := range []struct{ header, setting, allow string }{
		{"Origin: http://[::1]:3000", "http.allowed_origins", `MNEME_HTTP_ALLOWED_ORIGINS=["http://[::1]:3000"]`},
		{"Host: webmemory.prod.svc.cluster.local:8080", "http.allowed_hosts",
			"MNEME_HTTP_ALLOWED_HOSTS=[webmemory.prod.svc.cluster.local]"},
	} {
		for _, service := range []string{first.addrs.Webmemory, first.addrs.Proxy} {
			resp, body := send(t, service, read, c.header)
			require.Equal(t, http.StatusForbidden, resp.StatusCode)
			require.Contains(t, body, c.setting)
			require.NotContains(t, body, "chat.example.org")
			require.NotContains(t, body, "app.example")
		}
		second := newTarget(t, c.allow)
		resp, body := send(t, second.addrs.Webmemory, read, c.header)
		require.Equal(t, http.StatusOK, resp.StatusCode, "%v: %s", c, body)
	}
}

// A page of an allowed origin uses all services; behind the first, webmemory's
// documents lie with the apiserver, which judges no origin a second time.
func TestPagesOfAllowedOrigins(t *testing.T) {
	t.Parallel()
	x := newTarget(t, "MNEME_HTTP_ALLOWED_ORIGINS=[https://app.example]")
	page := []string{"Origin: https://app.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"}
	for _, c := range []call{
		{"webmemory", "GET", "/v1/chats/mine/history", "", ""},
		{"webmemory", "PUT", "/v1/collections/docs/documents/new.txt", "text/plain", "a new one"},
		{"webmemory", "GET", "/v1/collections/docs/documents/new.txt", "", ""},
		{"webmemory", "POST", "/v1/collections/docs/documents?stream=true", "application/x-ndjson",
			`{"id":"more.md","text":"more"}`},
		{"apiserver", "GET", "/v1/subagents", "", ""},
		{"proxy", "GET", "/v1/models", "", ""},
		{"proxy", "POST", "/v1/chat/completions", "application/json",
			`{"model":"m","messages":[{"role":"user","content":"hello"}]}`},
		{"proxy", "PUT", "/admin/backend", "application/json", `{"active":"paid"}`},
	} {
		resp, body := send(t, x.addr(c.service), c, page...)
		require.Contains(t, []int{200, 201, 207}, resp.StatusCode, "%v: %s", c, body)
		require.Equal(t, []string{"https://app.example"}, resp.Header["Access-Control-Allow-Origin"], "%v", c)
		require.Equal(t, "*", resp.Header.Get("Access-Control-Expose-Headers"))
		require.Contains(t, resp.Header.Values("Vary"), "Origin")

		own := []string{"Origin: http://" + x.addr(c.service), "Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors"}
		resp, body = send(t, x.addr(c.service), c, own...)
		require.Contains(t, []int{200, 207}, resp.StatusCode, "the service's own page: %v: %s", c, body)
	}
	for _, r := range x.vendor.Requests() {
		require.Empty(t, r.Header["Origin"], "a vendor's client is the gateway, not a page")
		require.Empty(t, r.Header["Sec-Fetch-Site"])
	}
	resp, _ := send(t, x.addrs.Webmemory, call{method: "OPTIONS", path: "/v1/chats/mine"},
		append(page, "Access-Control-Request-Method: DELETE")...)
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	resp, body := send(t, x.addrs.Webmemory, call{method: "POST", path: "/chat", kind: "text/plain",
		body: `{"chat_id":"mine","message":"x"}`}, page...)
	require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode, body)
}

// Each service has the guard when it runs alone, too, and answers clients other than
// browsers by all the names of a compose project or a cluster.
func TestTheGuardOfEachServiceAlone(t *testing.T) {
	t.Parallel()
	const outside = "0.0.0.0:0"
	redis := redistest.Start(t)
	name := "localhost" // as a service of a compose project calls another by one label
	if host, err := os.Hostname(); err == nil && !strings.Contains(host, ".") {
		if _, err := net.LookupHost(host); err == nil {
			name = host
		}
	}
	at := func(addr string) string {
		_, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		return net.JoinHostPort(name, port)
	}
	apis := at(freeport.Addr(t))
	common := []string{
		"MNEME_DATA_DIR=" + t.TempDir(), "MNEME_REDIS_URL=" + redis.URL(), "MNEME_AUTH_MODE=none",
		"MNEME_WEBMEMORY_LISTEN=" + outside, "MNEME_APISERVER_LISTEN=" + apis, "MNEME_PROXY_LISTEN=" + outside,
		"MNEME_WEBMEMORY_APISERVER=http://" + apis, "MNEME_PROXY_ADVERTISE=http://gateway-1.agents.prod.svc:8082",
	}
	run := func(service func(context.Context, config.Config, app.Options) error, environ ...string) app.Addrs {
		return startOnly(t, service, append(common, environ...)...).addrs
	}
	gateway := at(run(app.Proxy).Proxy)
	run(app.Apiserver, "MNEME_APISERVER_PROXY=http://"+gateway)
	web := at(run(app.Webmemory).Webmemory)
	resp, body := send(t, web, call{method: "POST", path: "/v1/chats/1/messages", kind: "application/json",
		body: `{"message":"My name is Oyuna"}`})
	require.Equal(t, http.StatusOK, resp.StatusCode, "through all three, each by its name: %s", body)

	for addr, read := range map[string]call{
		gateway: {method: "GET", path: "/v1/models"}, apis: {method: "GET", path: "/v1/subagents"},
		web: {method: "GET", path: "/v1/chats"},
	} {
		for _, host := range []string{"webmemory:8080", "mneme-webmemory-2:8080", "10.1.2.3:8080", "[fd00::1]:8080",
			"localhost:9090", "api.localhost"} {
			resp, body := send(t, addr, read, "Host: "+host)
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", host, body)
		}
		for _, headers := range [][]string{{"Host: evil.test"}, {"Origin: https://evil.test"},
			{"Sec-Fetch-Site: cross-site"}} {
			resp, body := send(t, addr, read, headers...)
			require.Equal(t, http.StatusForbidden, resp.StatusCode, "%v: %s", headers, body)
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			resp, body := send(t, addr, call{method: "GET", path: path}, "Host: webmemory.prod.svc.cluster.local:8080")
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
		}
		_, port, _ := net.SplitHostPort(addr)
		for _, ip := range ownIPs(t) { // the kubelet's probe, and a bot elsewhere
			if addr == apis {
				continue // it listens on the one name only
			}
			resp, err := http.Get("http://" + net.JoinHostPort(ip, port) + read.path)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode, ip)
		}
	}
	resp, _ = send(t, gateway, call{method: "GET", path: "/health"}, "Host: gateway.example.org")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = send(t, gateway, call{method: "GET", path: "/v1/models"}, "Host: gateway-1.agents.prod.svc:8082")
	require.Equal(t, http.StatusOK, resp.StatusCode, "the name that it advertises is its own")
}

// ownIPs are this machine's addresses but loopback, as a pod has.
func ownIPs(t *testing.T) (ips []string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			ips = append(ips, n.IP.String())
		}
	}
	return ips
}

// The README's way in, by the real curl with the content type that it sets itself,
// to every name that a person types.
func TestCurlAndBotsGoOnWorking(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	x := newTarget(t)
	_, port, _ := net.SplitHostPort(x.addrs.Webmemory)
	for i, host := range []string{"127.0.0.1", "localhost"} {
		base := "http://" + host + ":" + port
		out, err := exec.Command(curl, "-sSN", base+fmt.Sprintf("/v1/chats/c%d/messages", i), "-H",
			"Accept: text/event-stream", "-d", `{"message":"hello"}`).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "event: run_finished")
		out, err = exec.Command(curl, "-sS", base+"/v1/collections/docs/documents", "--data-binary",
			`{"id":"by-curl.md","text":"curl was here"}`).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "by-curl.md")
	}
	out, err := exec.Command(curl, "-sS", "http://"+x.addrs.Proxy+"/v1/chat/completions", "-d",
		`{"model":"m","messages":[{"role":"user","content":"hello"}]}`).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "I will remember it.")
}
