package copilot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/processgroup"
)

// Command runs a CLI. It gets the arguments that make it a server, and nothing of
// this process's environment, in which a GitHub token may lie.
type Command struct {
	Path string
	Args []string // before those of a server
	// Env is the whole environment, NAME=value. COPILOT_CONNECTION_TOKEN is added.
	Env []string
	Dir string // empty: that of this process
}

// serverArgs make a CLI listen on a free port of loopback.
var serverArgs = []string{"--headless", "--no-auto-update", "--no-auto-login"}

// Times that a CLI has to end after it was asked to, and that its output has to
// end behind it.
const (
	stopTime   = 5 * time.Second
	outputTime = time.Second
)

// child is a CLI that listens.
type child struct {
	addr  string
	token string
	stop  func() // ends it and waits
}

// start runs the CLI until it listens; ctx bounds that only. ErrStart comes with
// the end of what it said on its standard error.
func (c *Command) start(ctx context.Context, log zerolog.Logger) (*child, error) {
	ports, tail := &portReader{port: make(chan string, 1)}, &tailWriter{}
	ch := &child{token: rand.Text()}
	cmd := exec.Command(c.Path, slices.Concat(c.Args, serverArgs)...)
	cmd.Env = append(slices.Clone(c.Env), "COPILOT_CONNECTION_TOKEN="+ch.token, "COPILOT_AUTO_UPDATE=false")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.Dir, ports, tail, outputTime
	processgroup.Prepare(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	exited := make(chan struct{})
	var exit error
	go func() { // ends with the process, which stop ends
		exit = cmd.Wait()
		close(exited)
	}()
	ch.stop = func() {
		processgroup.Terminate(cmd)
		select {
		case <-exited:
		case <-time.After(stopTime):
			log.Warn().Int("pid", cmd.Process.Pid).Msg("the Copilot CLI did not end when asked to and is killed")
		}
		processgroup.Kill(cmd) // also what it has left behind
		<-exited
	}
	select {
	case port := <-ports.port:
		ch.addr = net.JoinHostPort("127.0.0.1", port)
		return ch, nil
	case <-exited:
		processgroup.Kill(cmd)
		exit = cmp.Or(exit, errors.New("exit status 0"))
		return nil, fmt.Errorf("%w: it ended before it listened (%w): %s", ErrStart, exit, tail)
	case <-ctx.Done():
		ch.stop()
		return nil, fmt.Errorf("%w: it did not say its port: %w: %s", ErrStart, context.Cause(ctx), tail)
	}
}

// portLine is what a CLI says when it listens.
var portLine = regexp.MustCompile(`listening on port (\d+)`)

// portReader looks for the port in what is written to it. It keeps nothing once
// it has found it.
type portReader struct {
	port chan string // has room for the one port
	buf  []byte
	done bool
}

// maxSeen is how much a CLI may say before its port, in bytes.
const maxSeen = 64 << 10

func (p *portReader) Write(b []byte) (int, error) {
	if p.done {
		return len(b), nil
	}
	p.buf = append(p.buf, b...)
	// The line must be whole: the port may still grow.
	if end := bytes.LastIndexByte(p.buf, '\n'); end >= 0 {
		if m := portLine.FindSubmatch(p.buf[:end]); m != nil {
			p.port <- string(m[1])
			p.buf, p.done = nil, true
		}
	}
	if len(p.buf) > maxSeen {
		p.buf = slices.Clone(p.buf[len(p.buf)-maxSeen/2:])
	}
	return len(b), nil
}

// maxTail is how much of its standard error explains a failure, in bytes.
const maxTail = 2 << 10

// tailWriter keeps the end of what is written to it.
type tailWriter struct {
	mu   sync.Mutex
	tail []byte
}

func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tail = append(t.tail, b...)
	if len(t.tail) > maxTail {
		t.tail = slices.Clone(t.tail[len(t.tail)-maxTail:])
	}
	return len(b), nil
}

func (t *tailWriter) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tail := strings.TrimSpace(string(t.tail)); tail != "" {
		return tail
	}
	return "it said nothing"
}
