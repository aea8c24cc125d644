package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"mneme/scripts/lab"
	"mneme/webmemory/api"
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
	apiA, apiB   = "apiserver-a", "apiserver-b" // of approvals, each of the webmemory of its letter
)

// masterName is what the sentinel calls its master.
const masterName = "soak"

// stack is the processes under test, each on a port that it keeps.
type stack struct {
	services map[string]*service
	order    []string            // to start in
	disks    map[string][]string // data folders, each with the processes that use it
	webAddr  string              // of webmemory-a, or of the one in mneme up
}

// service is one process over all its lives.
type service struct {
	*lab.Process
	name, addr string
	client     *api.Client   // of a webmemory
	redis      *redis.Client // of a Redis or a Sentinel itself, whatever its role
	fault      sync.Mutex    // held while something is done to it

	mu      sync.Mutex
	lives   []*span  // guarded by mu: from each start to its end
	pauses  []*span  // guarded by mu
	crashes []string // guarded by mu: ends that the soak did not cause
}

// span is a stretch of time; one that goes on has no end.
type span struct{ from, to time.Time }

func (s *span) covers(at time.Time) bool {
	return !at.Before(s.from) && (s.to.IsZero() || at.Before(s.to))
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
	i := slices.IndexFunc(v.lives, func(l *span) bool { return l.covers(from) && l.covers(to) })
	if i < 0 {
		return nil
	}
	return v.lives[i]
}

func (v *service) isRedis() bool {
	return v.name == redisName || v.name == replicaName || v.name == sentinelName
}

// start begins a life unless one goes on. It is for the goroutine that holds fault.
func (v *service) start() error {
	if v.Pid() != 0 {
		return nil
	}
	v.mu.Lock()
	v.lives = append(v.lives, &span{from: time.Now()})
	v.mu.Unlock() // ended takes it while the process is locked
	return v.Start()
}

// ended is told of the end of a life.
func (v *service) ended(err error, wanted bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.lives[len(v.lives)-1].to = now
	if !wanted {
		v.crashes = append(v.crashes, fmt.Sprintf("%s %s ended by itself: %v", stamp(now), v.name, err))
	}
}

func newStack(o options) (*stack, error) {
	mneme := o.mneme
	if mneme == "" {
		mneme = filepath.Join(o.dir, "mneme")
		if out, err := exec.Command("go", "build", "-o", mneme, "./cmd/mneme").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building mneme, from the root of the repository: %w: %s", err, out)
		}
	}
	mneme, err := filepath.Abs(mneme)
	if err != nil {
		return nil, err
	}
	s := &stack{services: map[string]*service{}, disks: map[string][]string{}}
	switch {
	case o.fault == faultFailover && o.mode == "approvals":
		s.order = []string{redisName, replicaName, sentinelName, proxyName, apiA, apiB, webA, webB}
	case o.fault == faultFailover:
		s.order = []string{redisName, replicaName, sentinelName, proxyName, apiName, webA, webB}
	case o.up:
		s.order = []string{redisName, apiName}
	case o.mode == "pass":
		s.order = []string{redisName, apiName, webA}
	case o.mode == "approvals":
		s.order = []string{redisName, proxyName, apiA, apiB, webA, webB}
	default:
		s.order = []string{redisName, proxyName, apiName, webA, webB}
	}
	at := map[string]string{}
	for _, name := range append([]string{proxyName, webA}, s.order...) {
		at[name] = lab.FreeAddr()
	}
	s.webAddr = at[webA]
	store := []string{"MNEME_REDIS_URL=redis://" + at[redisName]}
	if o.fault == faultFailover {
		store = []string{"MNEME_REDIS_ADDRS=" + at[sentinelName], "MNEME_REDIS_MASTER_NAME=" + masterName,
			fmt.Sprintf("MNEME_REDIS_WAIT_REPLICAS=%d", o.wait)}
	}
	if o.mode != "recall" && o.mode != "pass" && o.fault != faultKills {
		store = append(store, "MNEME_RUN_TIMEOUT="+runTimeout.String())
	}
	history := "0" // everything that was said must stand in the histories
	if o.mode == "recall" {
		history = "20"
	}
	for _, name := range s.order {
		dir := filepath.Join(o.dir, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		v := &service{name: name, addr: at[name]}
		v.Process = &lab.Process{Name: name, Dir: dir, Log: filepath.Join(dir, "log"), Ended: v.ended,
			Ready: lab.Ready(v.addr)}
		s.services[name] = v
		if v.isRedis() {
			v.redis = redis.NewClient(redisOptions(v.addr))
			v.Ready = func() error { return v.redis.Ping(context.Background()).Err() }
			if v.Args, err = redisArgs(name, dir, v.addr, at[redisName]); err != nil {
				return nil, err
			}
			continue
		}
		command, side, _ := strings.Cut(name, "-")
		agents := at[apiName]
		if o.mode == "approvals" {
			agents = at[apiName+"-"+cmp.Or(side, "a")]
		}
		disk := name
		if o.fault == faultKills {
			disk = command // one for both webmemories, as on one machine
		}
		data := filepath.Join(o.dir, disk+"-data")
		s.disks[data] = append(s.disks[data], name)
		v.Args, v.Env = []string{mneme, command}, append(slices.Clip(store),
			"MNEME_DATA_DIR="+data, "MNEME_LOG_FORMAT=json", "MNEME_LOG_LEVEL="+o.level,
			"MNEME_WEBMEMORY_MAX_HISTORY="+history, "MNEME_WEBMEMORY_LISTEN="+v.addr,
			"MNEME_PROXY_LISTEN="+at[proxyName], "MNEME_APISERVER_PROXY=http://"+at[proxyName],
			"MNEME_APISERVER_LISTEN="+agents, "MNEME_WEBMEMORY_APISERVER=http://"+agents)
		if o.config != "" {
			v.Args = append(v.Args, "--config", o.config)
		}
		if o.up {
			v.Args, v.Env = []string{mneme, "up", "--offline"}, append(v.Env, "MNEME_WEBMEMORY_LISTEN="+at[webA])
		}
		if v.client, err = api.New("http://" + v.addr); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func redisArgs(name, dir, addr, master string) ([]string, error) {
	_, port, _ := net.SplitHostPort(addr)
	host, of, _ := net.SplitHostPort(master)
	if name != sentinelName {
		args := []string{"redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
			"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0"}
		if name == replicaName {
			args = append(args, "--replicaof", host, of)
		}
		return args, nil
	}
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %[3]s %s %s 1\n"+
		"sentinel down-after-milliseconds %[3]s 1500\nsentinel failover-timeout %[3]s 3000\n",
		port, dir, masterName, host, of)
	return []string{"redis-server", file, "--sentinel"}, os.WriteFile(file, []byte(text), 0o600)
}

// redisClient is a client of the one Redis, or of whichever is the master.
func (s *stack) redisClient() *redis.Client {
	if sentinel := s.services[sentinelName]; sentinel != nil {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: masterName, SentinelAddrs: []string{sentinel.addr}, ContextTimeoutEnabled: true, MaxRetries: -1,
			DialTimeout: time.Second,
		})
	}
	return s.services[redisName].redis
}

func redisOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// other is the webmemory that web is not.
func (s *stack) other(web *service) *service {
	if web.name == webA {
		return s.services[webB]
	}
	return s.services[webA]
}

// webs are the two webmemory processes.
func (s *stack) webs() []*service { return []*service{s.services[webA], s.services[webB]} }

// startAll starts what is down, in order, and waits for all. Only the first time is redis
// the master: one of the two that comes back follows the other.
func (s *stack) startAll() error {
	for _, name := range s.order {
		v := s.services[name]
		if err := v.start(); err != nil {
			return err
		}
		if err := v.Await(time.Minute); err != nil {
			return err
		}
	}
	if replica := s.services[replicaName]; replica != nil && !slices.Contains(s.services[redisName].Args, "--replicaof") {
		host, port, _ := net.SplitHostPort(replica.addr)
		s.services[redisName].Args = append(slices.Clip(s.services[redisName].Args), "--replicaof", host, port)
	}
	return nil
}

func (s *stack) killAll() {
	for _, v := range s.services {
		v.Kill()
	}
}

func stamp(t time.Time) string { return t.Format("15:04:05.000") }
