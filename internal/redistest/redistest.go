// Package redistest starts real redis-server processes for tests; REDIS_SERVER=valkey-server in the environment has them
// use that in its place.
package redistest

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"mneme/internal/freeport"
	"mneme/internal/stack"
)

// Server is one redis-server on loopback. Dir is where it keeps its files.
type Server struct {
	*stack.Process
	Addr string

	t testing.TB
}

// Start returns an empty redis-server for this test alone. It stores nothing on disk unless args say so. Without args it
// may be the server of a test that has ended (see reusable). Without redis-server on the PATH the test fails, or is
// skipped if SKIP_WITHOUT_REDIS is set.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if len(args) == 0 && canMove() {
		return startOrReuse(t)
	}
	s := start(t, func(dir, addr string) (*stack.Process, error) { return stack.Redis(dir, addr, args...), nil })
	t.Cleanup(func() { s.Kill() })
	return s
}

// start starts a process on a port that is reserved until the end of the test. The caller registers its end.
func start(t testing.TB, process func(dir, addr string) (*stack.Process, error)) *Server {
	t.Helper()
	if _, err := exec.LookPath(stack.RedisServer()); err != nil {
		if os.Getenv("SKIP_WITHOUT_REDIS") != "" {
			t.Skip(stack.RedisServer() + " is not installed")
		}
		t.Fatal(stack.RedisServer() + " is not installed; ./scripts/test installs it")
	}
	s := &Server{Addr: freeport.Addr(t), t: t}
	var err error
	if s.Process, err = process(t.TempDir(), s.Addr); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(); err != nil {
		s.Kill()
		t.Fatal(err)
	}
	return s
}

// Run starts the process, again after Kill, and waits until it answers.
func (s *Server) Run() error { return errors.Join(s.Process.Start(), s.Await(time.Minute)) }

// Client is a new client of the server; it is closed with the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ContextTimeoutEnabled: true})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// URL is what a configuration names the server by.
func (s *Server) URL() string { return "redis://" + s.Addr }

// UserURL returns the URL for the user mneme, to whom it gives these ACL rules.
func (s *Server) UserURL(rules ...any) string {
	s.t.Helper()
	user := append([]any{"ACL", "SETUSER", "mneme", "reset", "on", ">secret"}, rules...)
	if err := s.Client().Do(s.t.Context(), user...).Err(); err != nil {
		s.t.Fatal(err)
	}
	return "redis://mneme:secret@" + s.Addr
}
