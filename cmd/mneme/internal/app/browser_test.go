package app_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
)

// browserTime bounds a test with a browser, on a machine that has much else to do.
const browserTime = 4 * time.Minute

// newBrowser is a tab of a real Chromium, for which evil.test means this machine.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{os.Getenv("CHROME_BIN"), "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		t.Skip("no browser is installed (chromium, chromium-browser, google-chrome or CHROME_BIN), " +
			"so what pages can do was not tried")
	}
	ctx, cancel := context.WithTimeout(context.Background(), browserTime)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP evil.test 127.0.0.1"))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank")))
	return ctx
}

// open shows a page and gives its status.
func open(t *testing.T, ctx context.Context, url string) int64 {
	t.Helper()
	resp, err := chromedp.Run(ctx, chromedp.NavigateResponse(url))
	require.NoError(t, err, url)
	return resp.Status
}

// evaluate calls a function of the hostile script in the page that is open.
func evaluate[T any](t *testing.T, ctx context.Context, function string, argument any) T {
	t.Helper()
	got, err := chromedp.Run(ctx, chromedp.Evaluate[T](script(t, function, argument), chromedp.EvalAwaitPromise))
	require.NoError(t, err, function)
	return got
}

// pageScript are the functions that the pages call.
//
//go:embed testdata/page.js
var pageScript string

// script calls a function of page.js; the braces let a page be given it twice.
func script(t *testing.T, function string, arguments ...any) string {
	t.Helper()
	text, err := json.Marshal(arguments)
	require.NoError(t, err)
	return fmt.Sprintf("{ %s\n%s(...%s) }", pageScript, function, text)
}

// page serves an empty page: its origin is what counts.
func page(t *testing.T) (port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(blank))
	t.Cleanup(s.Close)
	return s.URL[strings.LastIndexByte(s.URL, ':')+1:]
}

func blank(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(w, "<!doctype html><title>page</title><body></body>")
}

// tap stands before a service, hands on everything as it is and notes it. At
// /rebound lies a page of its own: what a page is after DNS rebinding, one of the
// same host and port as the service.
type tap struct {
	port string

	mu     sync.Mutex
	visits []visit
}

// visit is a request as it came to the service, and how it was answered.
type visit struct {
	try                  string // of the query: what the page called it
	method, origin, site string
	status               int
}

func newTap(t *testing.T, service string) *tap {
	t.Helper()
	to, err := url.Parse("http://" + service)
	require.NoError(t, err)
	p := &tap{}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			r := resp.Request
			p.visits = append(p.visits, visit{r.URL.Query().Get("try"), r.Method, r.Header.Get("Origin"),
				r.Header.Get("Sec-Fetch-Site"), resp.StatusCode})
			return nil
		},
		FlushInterval: -1,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/rebound" {
			blank(w, r)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	p.port = s.URL[strings.LastIndexByte(s.URL, ':')+1:]
	return p
}

func (p *tap) url() string { return "http://127.0.0.1:" + p.port }

// of are the visits of one try since the last look.
func (p *tap) of(try string) (all []visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.visits {
		if v.try == try {
			all = append(all, v)
		}
	}
	return all
}

func (p *tap) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visits = nil
}

func (x *target) taps() map[string]*tap {
	return map[string]*tap{
		"webmemory": newTap(x.t, x.addrs.Webmemory), "apiserver": newTap(x.t, x.addrs.Apiserver),
		"proxy": newTap(x.t, x.addrs.Proxy),
	}
}

// A hostile page in a real browser tries everything that needs no user's help: from
// another port of the same address, from another local name and from a foreign one. Each
// try comes as far as the service and no further.
func TestHostilePagesInABrowser(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := newBrowser(t)
	x := newTarget(t)
	taps := x.taps()
	before := x.state()
	services := map[string]string{}
	for name, p := range taps {
		services[name] = p.url()
	}
	port := page(t)
	for _, host := range []string{"127.0.0.1", "localhost", "evil.test"} {
		hostile := "http://" + host + ":" + port
		require.EqualValues(t, 200, open(t, ctx, hostile))
		got := evaluate[map[string]string](t, ctx, "attack", services)
		require.Greater(t, len(got), 20)
		for try, read := range got {
			service, _, _ := strings.Cut(try, " ")
			require.Eventually(t, func() bool { return len(taps[service].of(try)) > 0 }, browserTime, 20*time.Millisecond,
				"%s from %s never came", try, host)
			for _, v := range taps[service].of(try) {
				require.Equal(t, http.StatusForbidden, v.status, "%s from %s: %+v", try, host, v)
			}
			require.NotContains(t, read, "stone lion", "%s from %s", try, host)
			require.NotContains(t, read, "200", "%s from %s", try, host)
		}
		require.Equal(t, before, x.state(), "from %s nothing was written, read, erased, switched or spent", host)

		// The same by going there, as a link and as a form.
		resp, err := chromedp.RunResponse(ctx, chromedp.Evaluate[chromedp.Void](
			script(t, "send", services["webmemory"]+"/v1/chats/mine/messages", "text/plain", "_self")))
		require.NoError(t, err)
		require.EqualValues(t, http.StatusForbidden, resp.Status)
		require.EqualValues(t, 200, open(t, ctx, hostile))
		resp,
			err = chromedp.RunResponse(ctx,
			chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.href = '%s/v1/chats'", services["webmemory"])))
		require.NoError(t, err)
		require.EqualValues(t, http.StatusOK, resp.Status, "a link may be followed")
		require.Equal(t, before, x.state(), "from %s nothing was sent by going there", host)
		for _, p := range taps {
			p.forget()
		}
	}
}

// A page with a name that suddenly means this machine is of the service's origin, as the
// browser sees it, and may send and read anything. It gets nothing but refusals.
func TestDNSRebindingInABrowser(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := newBrowser(t)
	x := newTarget(t)
	taps := x.taps()
	before := x.state()
	for name, p := range taps {
		require.EqualValues(t, 200, open(t, ctx, "http://evil.test:"+p.port+"/rebound"))
		var tries []map[string]string
		for _, c := range calls {
			if c.service == name {
				tries = append(tries, map[string]string{"method": c.method, "path": c.path, "kind": c.kind, "body": c.body})
			}
		}
		got := evaluate[[]string](t, ctx, "rebound", tries)
		require.Len(t, got, len(tries))
		for i, answer := range got {
			require.Regexp(t, `^403 .*evil\.test`, answer, "%v", tries[i])
		}
	}
	require.Equal(t, before, x.state(), "nothing was written, read, erased, switched or spent")
}

// A page of an allowed origin, and one of the service itself, does all that a bot can.
func TestAllowedPagesInABrowser(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	ctx := newBrowser(t)
	allowed := "http://localhost:" + page(t)
	x := newTarget(t, "MNEME_HTTP_ALLOWED_ORIGINS=["+allowed+"]")
	for name, test := range map[string]struct{ page, webmemory, proxy string }{
		"allowed": {allowed, x.url(""), "http://" + x.addrs.Proxy},
		"own":     {x.url("/healthz"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualValues(t, 200, open(t, ctx, test.page))
			got := evaluate[map[string]string](t, ctx, "use", map[string]string{"webmemory": test.webmemory, "proxy": test.proxy,
				"chat": name})
			require.NotEmpty(t, got["run"], "Mneme-Run-Id can be read")
			require.Contains(t, got["stream"], "event: run_finished")
			require.Contains(t, got["history"], "Hello from a page")
			require.Contains(t, got["resumed"], "event: run_finished")
			require.Contains(t, got["upload"], `"status":"new"`)
			require.Contains(t, got["form"], "415 ")
			require.Contains(t, got["erased"], "chat_history:"+name)
			if test.proxy != "" {
				require.Contains(t, got["completion"], "I will remember it.")
			}
		})
	}
}
