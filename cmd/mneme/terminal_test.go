package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"mneme/internal/testtier"
	"mneme/internal/webtest"
)

// asProgram makes the test binary run the command line of its arguments.
const asProgram = "MNEME_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Unsetenv(asProgram) // which is no setting of mneme
		main()
	}
	os.Exit(m.Run())
}

// typist is a person at a terminal in which mneme runs.
type typist struct {
	t        *testing.T
	terminal *os.File
	cmd      *exec.Cmd
	mu       sync.Mutex
	screen   bytes.Buffer // guarded by mu
	seen     int          // of screen
}

func sitDown(t *testing.T, home string, args ...string) *typist {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &typist{t: t, cmd: exec.Command(self, args...)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm", "HOME="+home, "XDG_STATE_HOME=", "NO_COLOR=1")
	p.terminal, err = pty.StartWithSize(p.cmd, &pty.Winsize{Rows: 24, Cols: 40})
	require.NoError(t, err)
	read := make(chan struct{})
	go func() { // ends with the terminal
		defer close(read)
		chunk := make([]byte, 4096)
		for {
			n, err := p.terminal.Read(chunk)
			p.mu.Lock()
			p.screen.Write(chunk[:n])
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.terminal.Close()
		<-read
	})
	return p
}

// sees waits for a text behind what was seen before.
func (p *typist) sees(text string) {
	p.t.Helper()
	var shown string
	require.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		shown = p.screen.String()[p.seen:]
		at := strings.Index(shown, text)
		if at >= 0 {
			p.seen += at + len(text)
		}
		return at >= 0
	}, time.Minute, time.Millisecond, "waiting for %q", text)
}

func (p *typist) types(keys string) {
	p.t.Helper()
	_, err := p.terminal.WriteString(keys)
	require.NoError(p.t, err)
}

// answered waits for a text and for the prompt behind it. What is typed before the
// prompt is there meets a terminal that is not in its mode yet: a Ctrl-C is a signal
// then, which stops an answer, and takes along what was typed before it.
func (p *typist) answered(text string) {
	p.t.Helper()
	p.sees(text)
	p.sees("> ")
}

// leaves waits for the program's end.
func (p *typist) leaves() {
	p.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }() // ends at the latest with the test, which kills the program
	select {
	case err := <-ended:
		require.NoError(p.t, err)
	case <-time.After(time.Minute):
		p.t.Fatal("the program does not end")
	}
}

const (
	up    = "\x1b[A"
	left  = "\x1b[D"
	ctrlA = "\x01"
	ctrlC = "\x03"
	ctrlD = "\x04"
)

// The chat at a real terminal: editing of wide letters and long lines, Ctrl-C, and the history of an earlier process.
func TestChatAtATerminal(t *testing.T) {
	s := webtest.New(t, remembering(t).Play)
	home := t.TempDir()
	chat := func() *typist {
		p := sitDown(t, home, "chat", "--chat", "t", "--url", s.URL)
		p.answered("chat t: Ctrl-C")
		return p
	}
	p := chat()
	p.types("Меня завут Алия" + strings.Repeat(left, 8) + "\x7fо\r")
	p.answered("You said: Меня зовут Алия\r\n")
	p.types("日本XX語" + left + "\x7f\x7f\r")
	p.answered("You said: 日本語\r\n")
	long := strings.Repeat("long words ", 12)
	p.types(long + "end" + ctrlA + "Z\r")
	p.answered("You said: Z" + long + "end\r\n")
	p.types("half a line" + ctrlC)
	p.leaves()
	require.Equal(t, 3, s.Posts())

	info, err := os.Stat(filepath.Join(home, ".local", "state", "mneme", "chat_history"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	p = chat()
	p.types(strings.Repeat(up, 2) + "!\r")
	p.answered("You said: 日本語!\r\n")
	p.types(ctrlD)
	p.leaves()
	p = chat()
	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	p.leaves()
}

// On a terminal, Enter accepts the model that mneme up offers.
func TestEnterAcceptsTheOfferedModel(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "right", "OPENAI_BASE_URL": vendor(t, "gpt-4.1"), "MNEME_DATA_DIR": t.TempDir(),
		"MNEME_WEBMEMORY_LISTEN": "127.0.0.1:0", "MNEME_APISERVER_LISTEN": "127.0.0.1:0",
		"MNEME_PROXY_LISTEN": "127.0.0.1:0", "MNEME_REDIS_EMBEDDED_LISTEN": "127.0.0.1:0",
	} {
		t.Setenv(name, value)
	}
	p := sitDown(t, t.TempDir(), "up")
	p.sees("OPENAI_API_KEY found: use it with gpt-4.1? [Y/n] ")
	p.types("\r")
	p.sees("Wrote mneme.yaml: gpt-4.1 answers, of backend openai.")
	p.sees("Model: gpt-4.1, of backend openai.")
	p.sees("claude mcp add")
	p.types(ctrlC)
	p.leaves()
}

// What a shell with the completion script offers, asked as readline asks.
func TestCompletionInBash(t *testing.T) {
	testtier.Slow(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	bin := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "mneme")))
	cmd := exec.Command(bash, "--norc", "-c", `source <(mneme completion bash)
COMP_WORDS=(mneme memory "") COMP_CWORD=2; _mneme; echo "${COMPREPLY[*]}"
COMP_WORDS=(mneme ingest x --col) COMP_CWORD=3; _mneme; echo "${COMPREPLY[*]}"
COMP_WORDS=(mneme restore "") COMP_CWORD=2; _mneme; echo "${#COMPREPLY[@]}"`)
	cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "ls get search note export import fork rewind redact rm\n--collection\n0\n",
		string(out))
}
