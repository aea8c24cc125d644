package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Names of the processes.
const (
	redisName = "redis"
	proxyName = "proxy"
	apiName   = "apiserver"
	webA      = "webmemory-a"
	webB      = "webmemory-b"
)

// stack is the processes under test, each on a port that it keeps.
type stack struct {
	dir      string
	services map[string]*service
	order    []string // to start in
}

// service is one process over all its lives.
type service struct {
	name string
	addr string
	args []string // of the command, its path first
	env  []string
	dir  string

	mu      sync.Mutex
	process *process // guarded by mu; nil while it is down
	busy    bool     // guarded by mu: a fault is being done to it
	starts  int      // guarded by mu
	crashes []string // guarded by mu: ends that nobody here caused
}

// process is one life of a service.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it has
	wanted bool          // guarded by service.mu: its end was ours
}

func newStack(o options) (*stack, error) {
	server, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("there is no redis-server on the PATH; ./scripts/test installs it")
	}
	mneme, err := exec.LookPath(o.mneme)
	if err != nil {
		return nil, fmt.Errorf("--mneme: %w", err)
	}
	if mneme, err = filepath.Abs(mneme); err != nil {
		return nil, err
	}
	addrs, err := freeAddrs(5)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addrs[0])
	s := &stack{dir: o.dir, services: map[string]*service{}, order: []string{redisName, proxyName, apiName, webA, webB}}
	for i, name := range s.order {
		v := &service{name: name, addr: addrs[i], dir: filepath.Join(o.dir, name)}
		command, _, _ := strings.Cut(name, "-")
		data := filepath.Join(o.dir, command+"-data") // one for both webmemories, as on one machine
		v.args = []string{mneme, command}
		v.env = append(os.Environ(),
			"MNEME_DATA_DIR="+data, "MNEME_LOG_FORMAT=json", "MNEME_LOG_LEVEL="+o.level,
			"MNEME_REDIS_URL=redis://"+addrs[0], "MNEME_WEBMEMORY_MAX_HISTORY=0", "MNEME_WEBMEMORY_LISTEN="+addrs[i],
			"MNEME_PROXY_LISTEN="+addrs[1], "MNEME_APISERVER_PROXY=http://"+addrs[1],
			"MNEME_APISERVER_LISTEN="+addrs[2], "MNEME_WEBMEMORY_APISERVER=http://"+addrs[2])
		if name == redisName {
			v.args = []string{server, "--port", port, "--bind", "127.0.0.1", "--dir", v.dir, "--save", "",
				"--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"}
			v.env = os.Environ()
		}
		if err := os.MkdirAll(v.dir, 0o700); err != nil {
			return nil, err
		}
		s.services[name] = v
	}
	return s, nil
}

// freeAddrs picks ports below those that the kernel gives to outgoing
// connections, so that a killed process finds its port free again.
func freeAddrs(n int) ([]string, error) {
	var addrs []string
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		defer l.Close()
		if addrs = append(addrs, addr); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, errors.New("no free ports from 20000 to 30000")
}

func (s *stack) redisClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.services[redisName].addr, ContextTimeoutEnabled: true, MaxRetries: -1,
		DialTimeout: time.Second, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// web is one of the two webmemory processes, other the other one.
func (s *stack) web(first bool) *service {
	if first {
		return s.services[webA]
	}
	return s.services[webB]
}

func (s *stack) other(web *service) *service { return s.web(web.name != webA) }

// startAll starts everything for the first time.
func (s *stack) startAll() error {
	for _, name := range s.order {
		v := s.services[name]
		if err := v.start(); err != nil {
			return err
		}
		if err := v.ready(30 * time.Second); err != nil {
			return err
		}
	}
	return nil
}

// start starts a service that is down; its log goes on.
func (v *service) start() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.process != nil {
		return nil
	}
	log, err := os.OpenFile(v.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(v.args[0], v.args[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = v.env, v.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", v.name, err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	v.process = p
	v.starts++
	go func() { // ends with the process
		err := cmd.Wait()
		v.mu.Lock()
		defer v.mu.Unlock()
		if !p.wanted {
			v.crashes = append(v.crashes, fmt.Sprintf("%s %s ended by itself: %v", time.Now().Format("15:04:05.000"), v.name, err))
		}
		v.process = nil
		close(p.ended)
	}()
	return nil
}

func (v *service) logPath() string { return filepath.Join(v.dir, "log") }

// ready waits until the service says that it is.
func (v *service) ready(within time.Duration) error {
	for until := time.Now().Add(within); ; {
		if v.answers() {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s is not ready after %v; see %s", v.name, within, v.logPath())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (v *service) answers() bool {
	if v.name == redisName {
		client := redis.NewClient(&redis.Options{Addr: v.addr, MaxRetries: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		defer client.Close()
		return client.Ping(context.Background()).Err() == nil
	}
	probe := http.Client{Timeout: 2 * time.Second}
	resp, err := probe.Get("http://" + v.addr + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// signal sends a signal to the process, if it is up.
func (v *service) signal(sig syscall.Signal) *process {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.process == nil {
		return nil
	}
	if sig == syscall.SIGKILL || sig == syscall.SIGTERM {
		v.process.wanted = true
	}
	_ = v.process.cmd.Process.Signal(sig)
	return v.process
}

// reserve takes a service that is up for one fault.
func (v *service) reserve() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy || v.process == nil {
		return false
	}
	v.busy = true
	return true
}

func (v *service) free() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy = false
}

// healAll brings everything up after the faults.
func (s *stack) healAll() error {
	for _, name := range s.order {
		v := s.services[name]
		if err := v.start(); err != nil {
			return err
		}
	}
	for _, name := range s.order {
		if err := s.services[name].ready(time.Minute); err != nil {
			return err
		}
	}
	return nil
}

func (s *stack) killAll() {
	for _, v := range s.services {
		if p := v.signal(syscall.SIGKILL); p != nil {
			<-p.ended
		}
	}
}
