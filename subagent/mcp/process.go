package mcp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"mneme/memory/processgroup"
	"mneme/memory/secrets"
)

// Times that a program has to end after its input was closed, and after it was asked to; and
// that its output has to end behind it.
var (
	leaveTime  = 500 * time.Millisecond
	stopTime   = 3 * time.Second
	outputTime = time.Second
)

// standardPath is the PATH of programs where none is given.
const standardPath = "/usr/local/bin:/usr/bin:/bin"

// process is a server that this process runs.
type process struct {
	cmd    *exec.Cmd
	in     *os.File // its standard input
	out    *os.File // its standard output
	exited chan struct{}
}

// start runs a server's program in a process group of its own. The goroutine that calls it must
// outlive the program, on a thread of its own: the program is killed when the thread ends.
func start(c ServerConfig, log zerolog.Logger) (*process, error) {
	dir, err := filepath.Abs(c.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of its program: %w", err)
	}
	cmd := exec.Command(c.Command[0], c.Command[1:]...)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + cmp.Or(c.Path, standardPath), "HOME=" + dir}, c.Env...)
	cmd.Stderr, cmd.WaitDelay = &stderr{log: log, secrets: hidden(c)}, outputTime
	processgroup.Prepare(cmd)
	p := &process{cmd: cmd, exited: make(chan struct{})}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		_, _ = theirIn.Close(), in.Close()
		return nil, err
	}
	p.in, p.out, cmd.Stdin, cmd.Stdout = in, out, theirIn, theirOut
	err = cmd.Start()
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		p.closePipes()
		return nil, fmt.Errorf("its program cannot be started: %w", err)
	}
	go func() { // ends with the program, which stop ends
		err := cmd.Wait()
		log.Debug().AnErr("exit", err).Msg("the program of an MCP server has ended")
		processgroup.Kill(cmd) // what it has left behind in its group
		// A process that has left the group may hold the output open.
		time.AfterFunc(outputTime, func() { _ = out.Close() })
		close(p.exited)
	}()
	return p, nil
}

// stop ends the program, and what it has started in its group.
func (p *process) stop(log zerolog.Logger) {
	_ = p.in.Close()
	if !p.endsWithin(leaveTime) {
		processgroup.Terminate(p.cmd)
		if !p.endsWithin(stopTime) {
			log.Warn().Int("pid", p.cmd.Process.Pid).Msg("the program of an MCP server did not end when asked to and is killed")
			processgroup.Kill(p.cmd)
			<-p.exited
		}
	}
	p.closePipes()
}

func (p *process) endsWithin(d time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(d):
		return false
	}
}

func (p *process) closePipes() { _, _ = p.in.Close(), p.out.Close() }

// writeTime is how long a program may leave its input unread.
const writeTime = 10 * time.Second

// input is a program's standard input for the SDK. A program that does not read it is broken.
type input struct {
	f      *os.File
	broken func(error)
}

func (i input) Write(b []byte) (int, error) {
	_ = i.f.SetWriteDeadline(time.Now().Add(writeTime)) // one that knows no deadline is closed with the session
	n, err := i.f.Write(b)
	switch {
	case errors.Is(err, syscall.EPIPE):
		i.broken(errEnded)
	case err != nil && !errors.Is(err, os.ErrClosed):
		i.broken(fmt.Errorf("its program does not read: %w", err))
	}
	return n, err
}

func (i input) Close() error { return i.f.Close() }

// Bounds of what a program's standard error puts into the log.
const (
	maxLogLine  = 1 << 10 // bytes of one line
	maxLogLines = 1000    // of one process
)

// stderr writes lines into the log, for debugging.
type stderr struct {
	log     zerolog.Logger
	secrets *secrets.Set
	mu      sync.Mutex
	line    []byte
	lines   int
}

func (s *stderr) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range b {
		if c == '\n' {
			s.flush()
		} else if len(s.line) < maxLogLine {
			s.line = append(s.line, c)
		}
	}
	return len(b), nil
}

func (s *stderr) flush() {
	if s.lines++; s.lines <= maxLogLines && len(bytes.TrimSpace(s.line)) > 0 {
		s.log.Debug().Bytes("line", s.secrets.Strike(s.line)).Msg("an MCP server says")
	}
	s.line = s.line[:0]
}
