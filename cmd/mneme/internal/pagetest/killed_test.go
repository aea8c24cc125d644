package pagetest

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mneme/internal/freeport"
	"mneme/internal/redistest"
	"mneme/internal/stack"
)

// others are the services beside webmemory, and the Redis, that its processes share.
type others struct {
	file    string
	environ []string
}

func apart(t *testing.T, m *model) *others {
	t.Helper()
	file := configuration(t)
	proxy := run(t, "proxy", file, m.environ(t)...).Proxy
	redis := "MNEME_REDIS_URL=" + redistest.Start(t).URL()
	agents := run(t, "apiserver", file, redis, "MNEME_APISERVER_PROXY=http://"+proxy).Apiserver
	return &others{file, []string{redis, "MNEME_WEBMEMORY_APISERVER=http://" + agents,
		asService + "=webmemory", "PAGETEST_CONFIG=" + file, "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"TMPDIR=" + os.TempDir()}}
}

// webmemory starts a process and waits until it is ready. It is killed at the test's end, also if it was started
// again: behind the end of the tabs that were opened after this, to which its end would be a fault.
func (o *others) webmemory(t *testing.T, addr string) *stack.Process {
	t.Helper()
	data := "MNEME_DATA_DIR=" + filepath.Join(filepath.Dir(o.file), addr)
	p := stack.Mneme(os.Args[0], "webmemory", t.TempDir(), stack.Addrs{Webmemory: addr},
		append(slices.Clip(o.environ), data)...)
	p.Args = p.Args[:1]
	t.Cleanup(func() { p.Kill() })
	again(t, p)
	return p
}

// again starts a process, with the data of the one before, and waits until it is ready.
func again(t *testing.T, p *stack.Process) {
	t.Helper()
	require.NoError(t, p.Start())
	require.NoError(t, p.Await(patience))
}

// curl reads a run's stream of events up to the first that contains a text, or to its end, and says the number
// of the last event and what was said in pieces.
func curl(t *testing.T, req *http.Request, until string) (lastID, said string) {
	t.Helper()
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		line := lines.Text()
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			lastID = id
			if until != "" && strings.Contains(said, until) {
				return lastID, said
			}
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"role":"assistant_delta"`) {
			_, piece, _ := strings.Cut(data, `"text":"`)
			piece, _, _ = strings.Cut(piece, `"`)
			said += piece
		}
	}
	return lastID, said
}

// Two browsers and a curl look at one answer while webmemory is killed and started again: in the end all three
// have the same.
func TestWebmemoryIsKilled(t *testing.T) {
	t.Parallel()
	m := &model{}
	a := apart(t, m)
	addr := freeport.Addr(t)
	web := a.webmemory(t, addr)
	s := service{t, "http://" + addr}
	s.say("7", "Before it")
	one, other := newTab(t, s.url), newTab(t, s.url)
	for _, p := range []*tab{one, other} {
		p.open("#/chats/7")
		p.sees("You said: Before it")
	}
	m.hold()
	req, err := http.NewRequest("POST", s.url+"/v1/chats/7/messages", strings.NewReader(`{"message": "Say it slowly"}`))
	require.NoError(t, err)
	lastID, said := curl(t, req, "up to the")
	for _, p := range []*tab{one, other} {
		p.sees("up to the")
		p.seesNo("second half")
	}
	var open struct{ Run string }
	s.get("/v1/chats/7", &open)

	for _, p := range []*tab{one, other} {
		p.excuse("ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED", "ERR_NETWORK", "ERR_EMPTY_RESPONSE", "status of 503")
	}
	web.Kill()
	again(t, web)
	m.release()
	for _, p := range []*tab{one, other} {
		p.sees(slowly)
		p.idle()
	}
	req, err = http.NewRequest("GET", fmt.Sprintf("%s/v1/chats/7/runs/%s/events", s.url, open.Run), nil)
	require.NoError(t, err)
	req.Header.Set("Last-Event-ID", lastID)
	_, rest := curl(t, req, "")
	require.Equal(t, slowly, said+rest)
	told := []string{"Before it", "You said: Before it", "Say it slowly", slowly}
	require.Equal(t, told, s.told("7"))
	for _, p := range []*tab{one, other} {
		p.until("the same in both", func() bool {
			return evaluate[string](p, `[...document.querySelectorAll(".bubble, .message .md")].map(e => e.innerText).join("|")`) ==
				strings.Join(told, "|")
		})
	}
}

// Of two processes over one Redis each shows what is said at the other, as it comes, and answers what a run of the
// other waits for.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	m := &model{}
	a := apart(t, m)
	var tabs []*tab
	for range 2 {
		addr := freeport.Addr(t)
		a.webmemory(t, addr)
		tabs = append(tabs, newTab(t, "http://"+addr))
	}
	one, other := tabs[0], tabs[1]
	one.open("#/chats/both")
	one.send("Said at the first")
	one.sees("You said: Said at the first")
	one.idle()
	other.open("#/chats/both")
	other.sees("You said: Said at the first")
	m.hold()
	other.send("Say it slowly")
	one.sees("Say it slowly", "up to the")
	one.seesNo("second half")
	m.release()
	for _, p := range tabs {
		p.sees(slowly)
		p.idle()
	}
	one.send("refund my ticket")
	other.sees("The run waits for you")
	other.click("radio", "Yes, do it")
	other.click("button", "Answer")
	for _, p := range tabs {
		p.sees("They say: Done: ")
		p.seesNo("The run waits for you")
	}
	require.Len(t, service{t, other.origin}.told("both"), 6)
}
