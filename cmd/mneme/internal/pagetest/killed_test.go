package pagetest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/redistest"
)

// process is a service that can be killed.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// begin starts a service as a process and waits until it is ready.
func begin(t *testing.T, service, file, addr string, environ []string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + os.TempDir(),
		asService + "=" + service, "PAGETEST_CONFIG=" + file}, environ...)
	cmd.Dir, cmd.Stderr = t.TempDir(), os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	s := &process{cmd, make(chan struct{})}
	go func() { _ = cmd.Wait(); close(s.ended) }()
	t.Cleanup(s.kill)
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond, "%s is not ready", service)
	return s
}

// kill is kill -9.
func (s *process) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
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
	file := configuration(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	proxy := run(t, "proxy", file, m.environ(t)...).Proxy
	redis := "MNEME_REDIS_URL=" + redistest.Start(t).URL()
	agents := run(t, "apiserver", file, redis, "MNEME_APISERVER_PROXY=http://"+proxy).Apiserver
	environ := []string{redis, "MNEME_WEBMEMORY_LISTEN=" + addr, "MNEME_WEBMEMORY_APISERVER=http://" + agents,
		"MNEME_DATA_DIR=" + t.TempDir()}
	web := begin(t, "webmemory", file, addr, environ)
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

	web.kill()
	begin(t, "webmemory", file, addr, environ)
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
		p.forgive("ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED", "ERR_NETWORK", "ERR_EMPTY_RESPONSE", "503")
	}
}
