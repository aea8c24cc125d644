package app_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"mneme/access"
	"mneme/internal/freeport"
	processes "mneme/internal/stack"
	"mneme/internal/testtier"
	"mneme/memory"
)

// nextExample builds deploy/examples/next and serves it, before a chat of a service. Its packages are where somebody has
// installed them: not in the repository.
func nextExample(t *testing.T, source string, environ ...string) (url string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	modules := filepath.Join(cache, "mneme-next")
	next := filepath.Join(modules, "node_modules", "next", "dist", "bin", "next")
	node, err := exec.LookPath("node")
	if _, missing := os.Stat(next); err != nil || missing != nil {
		t.Skip("the Next example was not tried: it needs node, and its packages in " + modules +
			" (copy deploy/examples/next/package.json there, and npm install)")
	}
	dir := filepath.Join(modules, "test") // beside what it imports: its bundler follows no link out of there
	require.NoError(t, os.RemoveAll(dir))
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.CopyFS(dir, os.DirFS(source)))
	build := exec.Command(node, next, "build")
	build.Dir, build.Env = dir, append(processes.Environ(), "NEXT_TELEMETRY_DISABLED=1")
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))
	addr := freeport.Addr(t)
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	p := &processes.Process{Name: "next", Args: []string{node, next, "start", "-H", "127.0.0.1", "-p", port}, Dir: dir,
		Env: append(environ, "NEXT_TELEMETRY_DISABLED=1"), Log: filepath.Join(t.TempDir(), "log"), Ready: func() error {
			resp, err := http.Get("http://" + addr + "/api/none")
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}}
	t.Cleanup(func() { p.Kill() })
	require.NoError(t, p.Start())
	require.NoError(t, p.Await(time.Minute))
	return "http://" + addr
}

// A page over useChat, in a browser: it says, asks for a yes, goes on with a run when it is loaded anew in the middle
// of it, has an answer once more, and shows what is refused.
func TestTheNextExample(t *testing.T) {
	testtier.Slow(t)
	ctx := newBrowser(t)
	source, err := filepath.Abs(filepath.Join("..", "..", "..", "..", "deploy", "examples", "next"))
	require.NoError(t, err)
	d := withDesk(t)
	key := d.key("acme", access.Chat, access.Approve, access.MemoryRead)
	url := nextExample(t, source, "MNEME_URL="+d.url(""), "MNEME_KEY="+key, "CHAT=next")
	pays, paying := make(chan struct{}), make(chan struct{}, 9)
	d.paying = func() { paying <- struct{}{}; <-pays }

	shows := func(what string) {
		t.Helper()
		text, is := "", regexp.MustCompile(what)
		if !assert.Eventually(t, func() bool {
			got, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
			text = got
			return err == nil && is.MatchString(text)
		}, time.Minute, 50*time.Millisecond) {
			t.Fatalf("the page does not show %s, but:\n%s", what, text)
		}
	}
	does := func(script string) {
		t.Helper()
		_, err := chromedp.Run(ctx, chromedp.Evaluate[string](script+"; ''"))
		require.NoError(t, err, script)
	}
	says := func(text string) {
		does(fmt.Sprintf("document.querySelector('input').value = %q; document.querySelector('form').requestSubmit()", text))
	}
	click := func(button string) {
		does(fmt.Sprintf("[...document.querySelectorAll('button')].find((b) => b.textContent === %q).click()", button))
	}
	opens := func() { open(t, ctx, url+"/") }

	opens()
	shows("Again") // it is ready, and its scripts are there
	says(`use refund {"id":1}`)
	shows(`refund \{"id":1\}\s+Allow`)
	opens()
	shows(`refund \{"id":1\}\s+Allow`)
	click("Allow")
	<-paying
	opens()
	shows("desk, running")
	close(pays)
	shows("paid")
	shows("Again")
	history := func() int64 {
		status, got := ask(t, "GET", d.url("/v1/chats/next/history"), key, "")
		require.Equal(t, http.StatusOK, status, got)
		return gjson.Get(got, "total").Int()
	}
	require.Equal(t, int64(2), history())
	says("How are you?")
	require.Eventually(t, func() bool { return history() == 4 }, time.Minute, 20*time.Millisecond)
	shows("Again")
	click("Again")
	shows("Stop|Again")
	shows("Again")
	require.Equal(t, int64(4), history())
	says(strings.Repeat("x", memory.MaxMessage+1))
	shows("A message may have")
}
