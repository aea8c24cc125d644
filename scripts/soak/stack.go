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
	redisName    = "redis"
	replicaName  = "redis-2" // with Sentinel only; which of the two is the master changes
	sentinelName = "sentinel"
	proxyName    = "proxy"
	apiName      = "apiserver"
	webA         = "webmemory-a"
	webB         = "webmemory-b"
)

// masterName is what the sentinel calls its master.
const masterName = "soak"

// stack is the processes under test, each on a port that it keeps.
type stack struct {
	dir      string
	services map[string]*service
	order    []string            // to start in
	disks    map[string][]string // data folders, each with the processes that use it
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
	lives   []*span  // guarded by mu: from each start to its end
	pauses  []*span  // guarded by mu
	crashes []string // guarded by mu: ends that nobody here caused
}

// span is a stretch of time; one that goes on has no end.
type span struct{ from, to time.Time }

func (s *span) covers(at time.Time) bool {
	return !at.Before(s.from) && (s.to.IsZero() || at.Before(s.to))
}

// beginPause enters a pause, which goes on until it gets an end.
func (v *service) beginPause() *span {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pauses = append(v.pauses, &span{from: time.Now()})
	return v.pauses[len(v.pauses)-1]
}

// life is the one in which the service was up, and not paused, all the time between
// two points; nil if there is none.
func (v *service) life(from, to time.Time) *span {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pauses {
		if p.covers(from) || p.covers(to) || from.Before(p.from) && p.from.Before(to) {
			return nil
		}
	}
	for _, l := range v.lives {
		if l.covers(from) && l.covers(to) {
			return l
		}
	}
	return nil
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
	mneme := o.mneme
	if mneme == "" {
		mneme = filepath.Join(o.dir, "mneme")
		if out, err := exec.Command("go", "build", "-o", mneme, "./cmd/mneme").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building mneme, from the root of the repository: %w: %s", err, out)
		}
	} else if mneme, err = filepath.Abs(mneme); err != nil {
		return nil, err
	}
	s := &stack{dir: o.dir, services: map[string]*service{}, disks: map[string][]string{}, order: []string{
		redisName, proxyName, apiName, webA, webB,
	}}
	if o.fault == faultFailover {
		s.order = append([]string{redisName, replicaName, sentinelName}, s.order[1:]...)
	}
	addrs, err := freeAddrs(len(s.order))
	if err != nil {
		return nil, err
	}
	at := map[string]string{}
	for i, name := range s.order {
		at[name] = addrs[i]
	}
	store := []string{"MNEME_REDIS_URL=redis://" + at[redisName]}
	if o.fault == faultFailover {
		store = []string{"MNEME_REDIS_ADDRS=" + at[sentinelName], "MNEME_REDIS_MASTER_NAME=" + masterName,
			fmt.Sprintf("MNEME_REDIS_WAIT_REPLICAS=%d", o.wait)}
	}
	if o.fault != faultKills {
		store = append(store, "MNEME_RUN_TIMEOUT="+runTimeout.String())
	}
	for _, name := range s.order {
		v := &service{name: name, addr: at[name], dir: filepath.Join(o.dir, name), env: os.Environ()}
		if err := os.MkdirAll(v.dir, 0o700); err != nil {
			return nil, err
		}
		s.services[name] = v
		_, port, _ := net.SplitHostPort(v.addr)
		switch name {
		case redisName, replicaName:
			v.args = []string{server, "--port", port, "--bind", "127.0.0.1", "--dir", v.dir, "--save", "",
				"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
				"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"}
			if name == replicaName {
				v.args = follow(v.args, at[redisName])
			}
			continue
		case sentinelName:
			v.args = []string{server, filepath.Join(v.dir, "sentinel.conf"), "--sentinel"}
			if err := sentinelConfig(v, at[redisName]); err != nil {
				return nil, err
			}
			continue
		}
		command, _, _ := strings.Cut(name, "-")
		disk := name
		if o.fault == faultKills {
			disk = command // one for both webmemories, as on one machine
		}
		data := filepath.Join(o.dir, disk+"-data")
		s.disks[data] = append(s.disks[data], name)
		v.args = []string{mneme, command}
		v.env = append(append(v.env, store...),
			"MNEME_DATA_DIR="+data, "MNEME_LOG_FORMAT=json", "MNEME_LOG_LEVEL="+o.level,
			"MNEME_WEBMEMORY_MAX_HISTORY=0", "MNEME_WEBMEMORY_LISTEN="+v.addr,
			"MNEME_PROXY_LISTEN="+at[proxyName], "MNEME_APISERVER_PROXY=http://"+at[proxyName],
			"MNEME_APISERVER_LISTEN="+at[apiName], "MNEME_WEBMEMORY_APISERVER=http://"+at[apiName])
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
	if sentinel := s.services[sentinelName]; sentinel != nil {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: masterName, SentinelAddrs: []string{sentinel.addr}, ContextTimeoutEnabled: true, MaxRetries: -1,
			DialTimeout: time.Second,
		})
	}
	return redis.NewClient(redisOptions(s.services[redisName].addr))
}

func redisOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
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
	v.lives = append(v.lives, &span{from: time.Now()})
	go func() { // ends with the process
		err := cmd.Wait()
		v.mu.Lock()
		defer v.mu.Unlock()
		if !p.wanted {
			v.crashes = append(v.crashes, fmt.Sprintf("%s %s ended by itself: %v", time.Now().Format("15:04:05.000"), v.name,
				err))
		}
		v.process = nil
		v.lives[len(v.lives)-1].to = time.Now()
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

func (v *service) isRedis() bool {
	return v.name == redisName || v.name == replicaName || v.name == sentinelName
}

func (v *service) answers() bool {
	if v.isRedis() {
		return plain(v.addr, func(r *redis.Client) bool { return r.Ping(context.Background()).Err() == nil })
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
		v.kill()
	}
}

// kill kills the process, if it is up, and waits for its end.
func (v *service) kill() (killed bool) {
	p := v.signal(syscall.SIGKILL)
	if p != nil {
		<-p.ended
	}
	return p != nil
}
