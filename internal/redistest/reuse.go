package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"mneme/internal/freeport"
	"mneme/internal/stack"
)

// idle has the servers that ended tests left. A start takes 45 ms of processor time, and the tests of one package need
// up to 400 servers.
var idle struct {
	sync.Mutex
	servers []*reusable
}

// reusable is a server that serves one test after another. Each test gets its own port, so a client that an ended test
// left open reaches nothing.
type reusable struct {
	process  *stack.Process
	addr     string
	pid      int    // of its first start: a server that a test has restarted is not used again
	settings string // after the first start: a server with other settings is not used again
}

// canMove reports whether a server can change its port and folder, as Redis 7 and Valkey can.
var canMove = sync.OnceValue(func() bool {
	version, _ := exec.Command(stack.RedisServer(), "--version").Output()
	return regexp.MustCompile(`v=([7-9]|\d\d)`).Match(version)
})

// startOrReuse moves an idle server to a new port, or starts one.
func startOrReuse(t testing.TB) *Server {
	t.Helper()
	s := &Server{Addr: freeport.Addr(t), t: t}
	dir := t.TempDir()
	for r := takeIdle(); r != nil; r = takeIdle() {
		if err := r.move(dir, s.Addr); err == nil {
			s.Process = r.process
			t.Cleanup(r.release)
			return s
		}
		r.process.Kill()
	}
	s = start(t, func(dir, addr string) (*stack.Process, error) {
		return stack.Redis(dir, addr, "--enable-protected-configs", "local"), nil // for CONFIG SET dir
	})
	r := &reusable{process: s.Process, addr: s.Addr, pid: s.Pid()}
	var err error
	if r.settings, err = r.readSettings(patience); err != nil {
		r.process.Kill()
		t.Fatal(err)
	}
	t.Cleanup(r.release)
	return s
}

func takeIdle() *reusable {
	idle.Lock()
	defer idle.Unlock()
	last := len(idle.servers) - 1
	if last < 0 {
		return nil
	}
	r := idle.servers[last]
	idle.servers = idle.servers[:last]
	return r
}

// release makes the server available to other tests, or kills it if it cannot be used again.
func (r *reusable) release() {
	if settings, err := r.readSettings(time.Second); err != nil || settings != r.settings || r.process.Pid() != r.pid {
		r.process.Kill()
		return
	}
	idle.Lock()
	defer idle.Unlock()
	idle.servers = append(idle.servers, r)
}

// readSettings returns the configuration and the users, without the port and the folder.
func (r *reusable) readSettings(timeout time.Duration) (string, error) {
	client, ctx, done := r.connect(timeout)
	defer done()
	config, err := client.ConfigGet(ctx, "*").Result()
	if err != nil {
		return "", err
	}
	delete(config, "port")
	delete(config, "dir")
	users, err := client.Do(ctx, "ACL", "LIST").StringSlice()
	return fmt.Sprint(config, users), err
}

// move makes r an empty server in another folder, at another address and without clients.
func (r *reusable) move(dir, addr string) error {
	client, ctx, done := r.connect(time.Second)
	defer done()
	_, port, _ := net.SplitHostPort(addr)
	_, err := client.Pipelined(ctx, func(c redis.Pipeliner) error {
		c.ConfigSet(ctx, "port", port) // before FLUSHALL, which clients of the old port cannot follow with a write then
		c.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		c.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub")
		c.FlushAll(ctx)
		c.ScriptFlush(ctx)
		c.FunctionFlush(ctx)
		c.ConfigSet(ctx, "dir", dir)
		c.ConfigResetStat(ctx)
		return nil
	})
	if err != nil {
		return err
	}
	stack.MoveRedis(r.process, dir, addr)
	r.addr = addr
	return r.process.Ready()
}

// connect returns a client whose commands fail after timeout. done closes it.
func (r *reusable) connect(timeout time.Duration) (client *redis.Client, ctx context.Context, done func()) {
	client = redis.NewClient(&redis.Options{Addr: r.addr, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
		ReadTimeout: timeout, WriteTimeout: timeout, DialTimeout: timeout})
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	return client, ctx, func() { cancel(); _ = client.Close() }
}

// IgnoreIdle makes goleak ignore the servers that wait for another test. Each has one goroutine until the tests end.
func IgnoreIdle() goleak.Option {
	return goleak.IgnoreAnyFunction("mneme/internal/stack.(*Process).Start.func1")
}
