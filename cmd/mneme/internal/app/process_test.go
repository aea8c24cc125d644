package app_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/internal/dnstest"
	"mneme/internal/freeport"
	"mneme/internal/redistest"
	processes "mneme/internal/stack"
)

// built is the folder of binary; empty until it is built.
var built string

// binary is mneme as users run it, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mneme")
	if err != nil {
		return "", err
	}
	built = dir
	return processes.Build(dir, buildFlags...)
})

// program is the path of mneme as users run it.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds mneme and runs it as processes")
	}
	path, err := binary()
	require.NoError(t, err)
	return path
}

// TestMain clears the environment of what mneme reads: neither the services in this
// process nor those that it starts may depend on the caller's settings and keys.
func TestMain(m *testing.M) {
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "MNEME_") || strings.HasSuffix(name, "_API_KEY") ||
			strings.HasPrefix(name, "GATEWAY_") || strings.HasPrefix(name, "STATE_MACHINE_") {
			os.Unsetenv(name)
		}
	}
	dnstest.Use()
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// stack is mneme as processes on ports of their own.
type stack struct {
	t       *testing.T
	at      processes.Addrs
	environ []string
	web     string // host:port
	files   int    // at most so many descriptors for each process; 0 for the caller's limit
	running map[string]*processes.Process
}

func newStack(t *testing.T, environ ...string) *stack {
	t.Helper()
	program(t)
	at, err := processes.Claim()
	require.NoError(t, err)
	s := &stack{t: t, at: at, web: at.Webmemory, running: map[string]*processes.Process{}}
	data := t.TempDir()
	sharePDF(t, data)
	s.environ = append(at.Environ(), "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "TMPDIR="+os.TempDir(),
		"MNEME_DATA_DIR="+data, "MNEME_REDIS_EMBEDDED_LISTEN="+freeport.Addr(t))
	s.environ = append(s.environ, environ...)
	t.Cleanup(func() {
		for service := range s.running {
			s.kill(service)
		}
	})
	return s
}

// start runs a command of mneme and waits until it is ready.
func (s *stack) start(service string) {
	s.t.Helper()
	p := processes.Mneme(program(s.t), service, s.t.TempDir(), s.at, s.environ...)
	if service == "up" && s.setting("MNEME_PROXY_ACTIVE") == "" {
		p.Args = append(p.Args, "--offline") // the machine may have a model server
	}
	if s.files > 0 {
		p.Args = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, s.files)}, p.Args...)
	}
	require.NoError(s.t, p.Start())
	s.running[service] = p
	require.NoError(s.t, p.Await(3*time.Minute))
}

func (s *stack) setting(name string) string {
	for _, e := range s.environ {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// kill is kill -9.
func (s *stack) kill(service string) {
	s.running[service].Kill()
	delete(s.running, service)
}

// say posts a message and gives the answer's text.
func (s *stack) say(chat, message string) string {
	s.t.Helper()
	body, err := json.Marshal(map[string]string{"message": message})
	require.NoError(s.t, err)
	for try := 0; ; try++ {
		resp, err := http.Post("http://"+s.web+"/v1/chats/"+chat+"/messages", "application/json", bytes.NewReader(body))
		require.NoError(s.t, err)
		raw, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(s.t, err)
		if resp.StatusCode == http.StatusConflict && try < 3 {
			continue // the lease of a process that was killed has to run out
		}
		require.Equal(s.t, http.StatusOK, resp.StatusCode, string(raw))
		var answer struct{ Content string }
		require.NoError(s.t, json.Unmarshal(raw, &answer))
		return answer.Content
	}
}

// The scenarios with the three services as processes over a real Redis, each of
// them killed in between.
func TestServicesAsProcesses(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newStack(t, introduction("Oyuna").environ(t, "MNEME_REDIS_URL="+redis.URL())...)
	services := []string{"proxy", "apiserver", "webmemory"}
	for _, service := range services {
		s.start(service)
	}
	require.Contains(t, s.say("12345", "Introduce me"), "Oyuna")
	for _, service := range services {
		s.kill(service)
		s.start(service)
		require.Contains(t, s.say("12345", "What is my name?"), "Oyuna", "after %s was killed", service)
	}
	require.NotContains(t, s.say("other", "What is my name?"), "Oyuna")
}

// The README's promise, with the offline model: one process over the embedded store,
// killed at once after an answer.
func TestUpSurvivesKill(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	for i, name := range []string{"Oyuna", "Tuya", "Saran"} {
		s.start("up")
		chat := fmt.Sprint(i)
		s.say(chat, "My name is "+name)
		s.kill("up")
		s.start("up")
		require.Contains(t, s.say(chat, "What is my name?"), name)
		s.kill("up")
	}
}

func TestWrongStartsAreOneSentence(t *testing.T) {
	t.Parallel()
	path := program(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("webmemory:\n  listn: x\n"), 0o600))
	for name, test := range map[string]struct {
		args    []string
		environ string
		code    int
		want    string
	}{
		"a taken port": {[]string{"up", "--offline"}, "MNEME_PROXY_LISTEN=" + taken.Addr().String(), 1,
			taken.Addr().String() + " is taken"},
		"an unwritable data folder": {[]string{"up", "--offline"}, "MNEME_DATA_DIR=/proc/nowhere", 1, "/proc/nowhere"},
		"a bad config file":         {[]string{"up", "--config", bad}, "", 1, "bad.yaml:2"},
		"a missing config file":     {[]string{"up", "--config", bad + "x"}, "", 1, "bad.yamlx"},
		"an unknown command":        {[]string{"upp"}, "", 2, "mneme --help"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t)
			cmd := exec.Command(path, test.args...)
			cmd.Dir = t.TempDir()
			if cmd.Env = s.environ; test.environ != "" {
				cmd.Env = append(cmd.Env, test.environ)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, test.code, exit.ExitCode(), stderr.String())
			require.Contains(t, stderr.String(), test.want)
			require.Equal(t, 1, strings.Count(stderr.String(), "\n"), "one line: %s", stderr.String())
		})
	}
}
