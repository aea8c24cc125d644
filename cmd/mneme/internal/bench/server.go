package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var noMaintenance = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// server is a redis-server on loopback that keeps nothing on disk.
type server struct {
	addr   string
	dir    string
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended and output is whole
	output bytes.Buffer  // read it after exited only
}

func (s *server) url() string { return "redis://" + s.addr }

// startServer starts the redis-server of the PATH. It ends with ctx or by stop,
// which must be called in any case.
func startServer(ctx context.Context) (*server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("there is no redis-server on the PATH; install one (its package is called redis-server or redis), or name a Redis with --redis redis://127.0.0.1:6379/9")
	}
	for range 5 { // a free port may be taken before the server gets to it
		var s *server
		if s, err = launch(ctx, program); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func launch(ctx context.Context, program string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mneme-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for redis-server: %w", err)
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", port), dir: dir, exited: make(chan struct{})}
	s.cmd = exec.CommandContext(ctx, program, "--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning")
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	dieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("starting redis-server: %w", err)
	}
	go func() { // ends with the process
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.ready(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ready waits until this very process answers.
func (s *server) ready(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, MaintNotificationsConfig: noMaintenance})
	defer client.Close()
	for range 1000 {
		info, err := client.InfoMap(ctx, "server").Result()
		if err == nil && info["Server"]["process_id"] == strconv.Itoa(s.cmd.Process.Pid) {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("redis-server ended at once: %s", bytes.TrimSpace(s.output.Bytes()))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("redis-server on %s did not answer", s.addr)
}

// stop ends the process and removes its directory.
func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	<-s.exited
	os.RemoveAll(s.dir)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
