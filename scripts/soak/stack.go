package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"mneme/internal/freeport"
	"mneme/internal/stack"
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
	apiA, apiB   = "apiserver-a", "apiserver-b" // of approvals, each of the webmemory of its letter; or of a fleet
)

// masterName is what the sentinel calls its master.
const masterName = "soak"

// testbed is the processes under test, each on a port that it keeps.
type testbed struct {
	services map[string]*service
	order    []string            // to start in
	disks    map[string][]string // data folders, each with the processes that use it
	*fleet                       // nil for none
}

// service is one process over all its lives.
type service struct {
	*stack.Process
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
type span struct{ start, end time.Time }

func (s *span) covers(t time.Time) bool {
	return !t.Before(s.start) && (s.end.IsZero() || t.Before(s.end))
}

// life is the one in which the service was up, and not paused, all the time between
// two points; nil if there is none.
func (v *service) life(start, end time.Time) *span {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pauses {
		if p.covers(start) || p.covers(end) || start.Before(p.start) && p.start.Before(end) {
			return nil
		}
	}
	i := slices.IndexFunc(v.lives, func(l *span) bool { return l.covers(start) && l.covers(end) })
	if i < 0 {
		return nil
	}
	return v.lives[i]
}

func (v *service) isRedis() bool {
	return strings.HasPrefix(v.name, redisName) || v.name == sentinelName
}

// start begins a life unless one goes on. It is for the goroutine that holds fault.
func (v *service) start() error {
	if v.Pid() != 0 {
		return nil
	}
	v.mu.Lock()
	v.lives = append(v.lives, &span{start: time.Now()})
	v.mu.Unlock() // ended takes it while the process is locked
	return v.Start()
}

// onExit handles the end of a process.
func (v *service) onExit(err error, expected bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.lives[len(v.lives)-1].end = now
	if !expected {
		v.crashes = append(v.crashes, fmt.Sprintf("%s %s ended by itself: %v", stamp(now), v.name, err))
	}
}

// newStack makes the processes of a soak; none is started.
func newStack(o options) (*testbed, error) {
	s := &testbed{services: map[string]*service{}, disks: map[string][]string{}, order: modes[o.mode].order}
	mneme, err := filepath.Abs(o.mneme)
	if o.mneme == "" {
		mneme, err = stack.Build(o.dir)
	}
	addrs := map[string]string{}
	for _, name := range append([]string{replicaName, sentinelName, proxyName, apiName}, s.order...) {
		var failed error
		addrs[name], _, failed = freeport.Claim()
		err = errors.Join(err, failed)
	}
	environ := []string{"MNEME_LOG_FORMAT=json", "MNEME_LOG_LEVEL=" + o.level, "MNEME_CONFIG=" + o.config,
		"MNEME_WEBMEMORY_MAX_HISTORY=0", // the histories must have all messages
		"MNEME_REDIS_URL=redis://" + addrs[redisName]}
	if o.fault == faultFailover {
		s.order = slices.Insert(slices.Clone(s.order), 1, replicaName, sentinelName)
		environ[4] = "MNEME_REDIS_ADDRS=[" + addrs[sentinelName] + "]"
		environ = append(environ, "MNEME_REDIS_MASTER_NAME="+masterName, fmt.Sprint("MNEME_REDIS_WAIT_REPLICAS=", o.wait))
	}
	if o.losesData() {
		environ = append(environ, "MNEME_RUN_TIMEOUT="+runTimeout.String())
	}
	if o.mode == "fleet" {
		var failed error
		if s.fleet, failed = newFleet(o, s, addrs); failed != nil {
			return nil, failed
		}
		environ = append(environ, s.fleet.environ...)
	}
	for _, name := range s.order {
		v, dir := &service{name: name, addr: addrs[name]}, filepath.Join(o.dir, name)
		err = errors.Join(err, os.MkdirAll(dir, 0o700))
		command, side, _ := strings.Cut(name, "-")
		switch {
		case name == sentinelName:
			var failed error
			v.Process, failed = stack.Sentinel(dir, v.addr, masterName, addrs[redisName], 1, 1500*time.Millisecond)
			err = errors.Join(err, failed)
		case v.isRedis():
			v.Process = stack.Redis(dir, v.addr, "--appendonly", "yes", "--appendfsync", "always",
				"--auto-aof-rewrite-percentage", "0", "--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0")
			switch {
			case s.fleet != nil:
				v.Args = append(v.Args, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
			case name == replicaName:
				v.follow(addrs[redisName])
			}
		default:
			disk := name
			if o.fault == faultKills {
				disk = command // one for both webmemories, as on one machine
			}
			data := filepath.Join(o.dir, disk+"-data")
			s.disks[data] = append(s.disks[data], name)
			endpoints := stack.Addrs{Webmemory: v.addr, Apiserver: addrs[apiName], Proxy: addrs[proxyName]}
			if s.fleet != nil {
				endpoints = stack.Addrs{Webmemory: v.addr, Apiserver: v.addr, Proxy: v.addr} // environ says what is reached
			}
			if agents := addrs[apiName+"-"+side]; agents != "" {
				endpoints.Apiserver = agents
			}
			v.Process = stack.Mneme(mneme, command, dir, endpoints, append(slices.Clip(environ), "MNEME_DATA_DIR="+data)...)
			var failed error
			v.client, failed = api.New("http://" + v.addr)
			err = errors.Join(err, failed)
		}
		if v.isRedis() {
			v.redis = redis.NewClient(redisOptions(v.addr))
		}
		v.Name, v.OnExit, v.Log = name, v.onExit, filepath.Join(dir, "log")
		s.services[name] = v
	}
	return s, err
}

// follow makes a Redis that is down the replica of another one.
func (v *service) follow(master string) {
	host, port, _ := net.SplitHostPort(master)
	v.Args = append(slices.Clip(v.Args), "--replicaof", host+" "+port)
}

// namesOf are the names of the processes of a kind, in order.
func (s *testbed) namesOf(kind string) (names []string) {
	for _, name := range s.order {
		if base, _, _ := strings.Cut(name, "-"); base == kind {
			names = append(names, name)
		}
	}
	return names
}

// redisClient is a client of the one Redis, of whichever is the master, or of the Cluster.
func (s *testbed) redisClient() redis.UniversalClient {
	if s.fleet != nil {
		return s.cluster
	}
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

// other is a webmemory that web is not, the next one.
func (s *testbed) other(web *service) *service {
	webs := s.webs()
	return webs[(slices.Index(webs, web)+1)%len(webs)]
}

// webs are the webmemory processes.
func (s *testbed) webs() (webs []*service) {
	for _, name := range s.namesOf("webmemory") {
		webs = append(webs, s.services[name])
	}
	return webs
}

// startAll starts what is down, in order, and waits for all. Only the first time is redis
// the master: one of the two that comes back follows the other.
func (s *testbed) startAll() error {
	for _, name := range s.order {
		v := s.services[name]
		if err := v.start(); err != nil {
			return err
		}
		if err := v.Await(time.Minute); err != nil {
			return err
		}
		if s.fleet != nil && name == fleetNodes[len(fleetNodes)-1] {
			if err := s.form(); err != nil {
				return err
			}
		}
	}
	if s.fleet != nil {
		return nil
	}
	if replica := s.services[replicaName]; replica != nil && !slices.Contains(s.services[redisName].Args, "--replicaof") {
		s.services[redisName].follow(replica.addr)
	}
	return nil
}

func (s *testbed) killAll() {
	for _, v := range s.services {
		v.Kill()
	}
}

func stamp(t time.Time) string { return t.Format("15:04:05.000") }
