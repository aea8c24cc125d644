// Package redistest starts real redis-server processes for tests.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/freeport"
)

// Server is one redis-server on loopback.
type Server struct {
	Addr string
	Dir  string // where it keeps its files

	t       testing.TB
	command func(port string) []string // its arguments
	cmd     *exec.Cmd
}

// Start starts a redis-server that keeps nothing, unless args say otherwise, and
// ends with the test. A machine without redis-server fails the test, since one that
// needs Redis and did not run has not passed; with SKIP_WITHOUT_REDIS in the
// environment it is skipped, as scripts/test has it where it can install none.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func(dir, port string) []string {
		return append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no"},
			args...)
	})
}

// start starts the process on a port that stays its own until the end of the test.
func start(t testing.TB, command func(dir, port string) []string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("SKIP_WITHOUT_REDIS") != "" {
			t.Skip("redis-server is not installed")
		}
		t.Fatal("redis-server is not installed; ./scripts/test installs it")
	}
	s := &Server{t: t, Addr: freeport.Addr(t), Dir: t.TempDir()}
	s.command = func(port string) []string { return command(s.Dir, port) }
	t.Cleanup(s.Kill)
	if err := s.Run(); err != nil {
		t.Fatalf("redis-server did not start: %v", err)
	}
	return s
}

// Run starts the process, again after Kill, and waits until it answers.
func (s *Server) Run() error {
	_, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = exec.Command("redis-server", s.command(port)...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	exited := make(chan error, 1)
	go func(cmd *exec.Cmd) { exited <- cmd.Wait() }(s.cmd) // ends with the process
	client := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer client.Close()
	for range 1000 {
		info, err := client.InfoMap(context.Background(), "server").Result()
		if err == nil && info["Server"]["process_id"] == strconv.Itoa(s.cmd.Process.Pid) {
			return nil
		}
		select {
		case err := <-exited:
			s.cmd = nil
			return fmt.Errorf("redis-server ended: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	s.Kill()
	return fmt.Errorf("redis-server on %s did not answer", s.Addr)
}

// Kill ends the process at once, like kill -9.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	for range 500 { // until the port is free: Run reaps the process
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			break
		}
		conn.Close()
		time.Sleep(2 * time.Millisecond)
	}
	s.cmd = nil
}

// Signal sends a signal, SIGSTOP say, to the process.
func (s *Server) Signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Client is a new client of the server; it is closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// URL is what a configuration names the server by.
func (s *Server) URL() string { return "redis://" + s.Addr }
