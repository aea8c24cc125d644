package app_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// The Python of TUTORIAL.md is a bot that needs no package: it shows an answer once and whole though the connection
// breaks before the first event, within an event and between two, and its message is stored once.
func TestThePythonOfTheTutorial(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed: the snippet of TUTORIAL.md is not run")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "TUTORIAL.md"))
	require.NoError(t, err)
	snippet := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, snippet)
	require.LessOrEqual(t, strings.Count(string(snippet[1]), "\n"), 25, "the lines of the snippet")

	s := newStack(t)
	s.start("up")
	target, err := neturl.Parse("http://" + s.web)
	require.NoError(t, err)
	var calls atomic.Int32
	cut := []int64{10, 900, 2500} // bytes after which the first connections break
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(r *http.Response) error {
		if n := int(calls.Add(1)); n <= len(cut) {
			r.Body = breaking{io.LimitReader(r.Body, cut[n-1]), r.Body}
		}
		return nil
	}
	between := httptest.NewServer(proxy)
	defer between.Close()
	file := filepath.Join(t.TempDir(), "bot.py")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(snippet[1]), "http://127.0.0.1:8080", between.URL,
		1)), 0o600))
	ask := func(chat, message string) (string, error) {
		out, err := exec.Command(python, file, chat, message).CombinedOutput()
		return string(out), err
	}
	said, err := ask("7", "Tell the analytic subagent that my name is Aliya, then ask it what my name is")
	require.NoError(t, err, said)
	require.Equal(t, "Understood: your name is Aliya. Your name is Aliya.", said)
	require.Greater(t, int(calls.Load()), len(cut), "the connection broke as often")
	resp, err := http.Get("http://" + s.web + "/v1/chats/7/history")
	require.NoError(t, err)
	defer resp.Body.Close()
	history, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Len(t, gjson.GetBytes(history, `messages.#(role=="user")#`).Array(), 1, string(history))
	said, err = ask("not/a/chat", "hello")
	require.Error(t, err, "a refusal is not tried again")
	require.Contains(t, said, "HTTP Error 404")
}

// breaking is a body that ends with an error after a while.
type breaking struct {
	io.Reader
	io.Closer
}

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
