// Package stack starts what a mneme consists of as processes: its services, redis-server and what else may stand
// beside them. Tests, measurements and soaks start them by it, end them, and start them again. It owns no folder, and no
// port but those of balancers, and needs Linux: the kernel kills what it started when the process that uses it ends.
package stack

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that is started, ended and started again. What may be set is
// set before the first start, but for Args, which may change while it is down.
type Process struct {
	Name   string
	Args   []string // the program first
	Env    []string // besides Environ
	Dir    string   // where it runs
	Log    string   // the file that gets its output, all lives in one; empty for none
	Ready  func() error
	OnExit func(err error, expected bool) // called at each end of the process, before waiters return; nil for none

	mu   sync.Mutex
	life *life // guarded by mu; nil while it is down
}

// life is one run of the program.
type life struct {
	process  *os.Process
	done     chan struct{} // closed when it has
	expected bool          // guarded by Process.mu: its end was asked for
}

// Environ is the environment without settings for services of this machine, and without keys.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(v, "MNEME_") || strings.HasPrefix(v, "GATEWAY_") ||
			strings.HasPrefix(v, "STATE_MACHINE_") || strings.HasSuffix(name, "_API_KEY")
	})
}

// Start starts the program if it is down. The kernel kills it with this process.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil {
		return nil
	}
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env, cmd.Dir = append(Environ(), p.Env...), p.Dir
	if p.Log != "" {
		log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	l := &life{process: cmd.Process, done: make(chan struct{})}
	p.life = l
	go func() { // ends with the process
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.life = nil
		if p.OnExit != nil {
			p.OnExit(err, l.expected)
		}
		close(l.done)
	}()
	return nil
}

// Await waits until the program says that it is ready.
func (p *Process) Await(timeout time.Duration) error {
	for until := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		err := p.Ready()
		if err == nil {
			return nil
		}
		if up := p.Pid() != 0; !up || time.Now().After(until) {
			output, _ := os.ReadFile(p.Log)
			return fmt.Errorf("%s is not ready (running: %t): %w; its log ends with …%s", p.Name, up, err,
				output[max(0, len(output)-2000):])
		}
	}
}

// Pid is the process's number, 0 while it is down.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return 0
	}
	return p.life.process.Pid
}

// Signal sends a signal. The channel is closed when the process has ended; it is nil if
// the process was down.
func (p *Process) Signal(s syscall.Signal) (done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life == nil {
		return nil
	}
	p.life.expected = p.life.expected || s == syscall.SIGKILL || s == syscall.SIGTERM
	_ = p.life.process.Signal(s)
	return p.life.done
}

// Pause stops the process with SIGSTOP and waits until it has stopped. SIGCONT continues it.
func (p *Process) Pause() {
	for p.Signal(syscall.SIGSTOP) != nil {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil || strings.Contains(string(stat), ") T ") { // only Linux has the file
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Kill kills the process, waits for its end and says whether it was up.
func (p *Process) Kill() bool {
	done := p.Signal(syscall.SIGKILL)
	if done != nil {
		<-done
	}
	return done != nil
}

// Stop ends the process as an operator would, and kills it if that takes too long.
func (p *Process) Stop(timeout time.Duration) (killed bool) {
	done := p.Signal(syscall.SIGTERM)
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	case <-time.After(timeout):
		return p.Kill()
	}
}
