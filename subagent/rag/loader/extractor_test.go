package loader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mneme/subagent/rag/chunk"
)

func read(e Extractor, name, content string, limits Limits) (chunk.Document, error) {
	l := Loader{Limits: limits, Extractors: map[string]Extractor{extensionOf(name): e}}
	return l.Load(context.Background(), name, "", strings.NewReader(content))
}

func shell(script string) Command { return Command{Args: []string{"sh", "-c", script}} }

func TestCommand(t *testing.T) {
	d, err := read(Command{Args: []string{"cat"}}, "a.png", "one\r\n\n\n\u200btwo", Limits{})
	require.NoError(t, err)
	require.Equal(t, "one\n\ntwo", d.Text)
	require.Empty(t, d.Sections)

	d, err = read(shell(`printf 'first\fsecond\f\f'`), "a.pdf", makePDF(page("x")), Limits{})
	require.NoError(t, err)
	require.Equal(t, []string{"page 1: first", "page 2: second"}, outline(d))
	require.Equal(t, 2, d.Sections[1].Page)

	// A PDF is one by its content too, and a picture by its type.
	d, err = Loader{Extractors: map[string]Extractor{".pdf": shell("echo by the command")}}.Load(context.Background(),
		"report", "", strings.NewReader(makePDF(page("x"))))
	require.NoError(t, err)
	require.Equal(t, "by the command", d.Text)
	d, err = Loader{Extractors: map[string]Extractor{".png": shell("echo by the command")}}.Load(context.Background(),
		"scan", "image/png", strings.NewReader("\x89PNG"))
	require.NoError(t, err)
	require.Equal(t, "by the command", d.Text)
}

func TestCommandFailures(t *testing.T) {
	for _, c := range []struct {
		name     string
		command  Command
		code     Code
		sentence string
		cause    string
	}{
		{"it dies", shell("echo 'one' >&2; echo 'cannot open /srv/secret' >&2; exit 3"), ExtractorFailed,
			"the program that reads files of this type failed", "cannot open /srv/secret"},
		{"it kills itself", shell("kill -9 $$"), ExtractorFailed, "the program that reads files of this type failed",
			"killed"},
		{"it is not there", Command{Args: []string{"/nowhere/at/all"}}, ExtractorFailed,
			"the program that reads files of this type failed", "no such file"},
		{"it hangs", Command{Args: []string{"sleep", "600"}, Time: 50 * time.Millisecond}, ExtractorFailed,
			"takes longer than 50ms", ""},
		{"its child hangs", Command{Args: []string{"sh", "-c", "sleep 600 & wait"}, Time: 50 * time.Millisecond},
			ExtractorFailed, "takes longer than 50ms", ""},
		{"it floods", Command{Args: []string{"yes", "a line"}}, TooLarge, "more than 100000 bytes of text", ""},
		{"it complains without end", shell("echo y >&2; yes >&2 & sleep 0.1; kill $!; exit 1"), ExtractorFailed, "failed",
			": y"},
		{"it gives bytes", shell(`printf '\377\376\200\201'`), ExtractorFailed, "gave no UTF-8", ""},
		{"it gives nothing", shell("true"), Empty, "the file holds no text", ""},
		{"it gives a garbled text", shell(`echo 'Ïðàâîïèñ íàóê Óêðà¿íè, ²íñòèòóò ìîâîçíàâñòâà ³ìåí³ Ïîòåáí³, âèäàííÿ ñüîìå'`),
			Illegible, "not legible", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(c.command, "a.pdf", makePDF(page("x")), Limits{Text: 100_000})
			require.Equal(t, c.code, CodeOf(err), "%v", err)
			require.ErrorContains(t, err, c.sentence)
			require.NotContains(t, err.Error(), "/srv")
			if c.cause != "" {
				require.ErrorContains(t, func() *Error {
					target := &Error{}
					_ = errors.As(err, &target)
					return target
				}().Err, c.cause)
			}
		})
	}
}

// Nothing of a command outlives it, and its input may be longer than it reads.
func TestCommandLeavesNothingBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	for _, script := range []string{"sleep 600 >/dev/null 2>&1 & echo $! > %s; echo text",
		"sleep 600 & echo $! > %s; wait"} {
		ctx, cancel := context.WithCancel(context.Background())
		l := Loader{Extractors: map[string]Extractor{".png": shell(fmt.Sprintf(script, file))}}
		done := make(chan error)
		go func() {
			_, err := l.Load(ctx, "a.png", "", strings.NewReader(strings.Repeat("x", 1<<20)))
			done <- err
		}()
		var pid int
		require.Eventually(t, func() bool {
			text, _ := os.ReadFile(file)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			return pid > 0
		}, time.Minute, time.Millisecond)
		if strings.Contains(script, "wait") {
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
		} else {
			require.NoError(t, <-done)
			cancel()
		}
		require.Eventually(t, func() bool { return ended(pid) }, time.Minute, time.Millisecond)
		require.NoError(t, os.Remove(file))
	}
}

// ended says whether a process runs no more; it may still be waited for.
func ended(pid int) bool {
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(state), ") Z ")
}

func TestService(t *testing.T) {
	type asked struct{ method, accept, kind, body string }
	var got asked
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = asked{r.Method, r.Header.Get("Accept"), r.Header.Get("Content-Type"), string(body)}
		_, _ = io.WriteString(w, "first\ftext of page two\f")
	}))
	defer server.Close()
	defer extractorClient.CloseIdleConnections()
	service := Service{URL: server.URL + "/tika"}
	content := makePDF(page("x"))
	d, err := read(service, "a.pdf", content, Limits{})
	require.NoError(t, err)
	require.Equal(t, []string{"page 1: first", "page 2: text of page two"}, outline(d))
	require.Equal(t, asked{"PUT", "text/plain", "application/pdf", content}, got)

	for _, c := range []struct {
		name     string
		answer   http.HandlerFunc
		code     Code
		sentence string
	}{
		{"a refusal", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) },
			ExtractorFailed, "answered with status 422"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, ExtractorFailed, "answered with status 302"},
		{"no answer", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ExtractorFailed,
			"takes longer than 100ms"},
		{"a flood", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, strings.Repeat("text ", 1000))
			}
		}, TooLarge, "more than 100000 bytes of text"},
		{"half an answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, ExtractorFailed, "broke off"},
		{"no text", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, Empty,
			"the file holds no text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				c.answer(w, r)
			}))
			defer server.Close()
			_,
				err := read(Service{URL: server.URL, Time: map[bool]time.Duration{
				true: 100 * time.Millisecond,
			}[c.name == "no answer"]}, "a.pdf", content, Limits{Text: 100_000})
			require.Equal(t, c.code, CodeOf(err), "%v", err)
			require.ErrorContains(t, err, c.sentence)
		})
	}
	server.Close()
	_, err = read(service, "a.pdf", content, Limits{})
	require.Equal(t, ExtractorFailed, CodeOf(err))
	require.ErrorContains(t, err, "does not answer")
	require.NotContains(t, err.Error(), "127.0.0.1")
}

func TestIdentity(t *testing.T) {
	plain := Loader{}
	require.Equal(t, plain.Identity("a.pdf"), plain.Identity("b.txt"))
	l := Loader{Extractors: map[string]Extractor{".pdf": Command{Args: []string{"a", "b"}}, ".png": Service{
		URL: "http://x",
	}}}
	names := map[string]bool{l.Identity("a.txt"): true, l.Identity("A.PDF"): true, l.Identity("a.png"): true,
		Loader{Extractors: map[string]Extractor{".pdf": Command{Args: []string{"a b"}}}}.Identity("a.pdf"): true}
	require.Len(t, names, 4)
	require.Equal(t, plain.Identity("a.txt"), l.Identity("a.txt"))
	require.Contains(t, l.Extensions(), ".png")
	require.NotContains(t, plain.Extensions(), ".png")
}
