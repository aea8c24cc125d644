package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// What Redis is made to lose besides what is killed.
const (
	faultKills    = "kills"    // nothing
	faultFlush    = "flushall" // everything, by a command
	faultEmpty    = "empty"    // everything, by a start on an empty disk
	faultOldAOF   = "oldaof"   // the last seconds, by a start from an older file
	faultFailover = "failover" // the last seconds, by a replica that did not hear of them and becomes the master
)

var faultKinds = []string{faultKills, faultFlush, faultEmpty, faultOldAOF, faultFailover}

const (
	// runTimeout ends runs, and with them every stream, within the soak.
	runTimeout = time.Minute
	// restore is how long after a loss a process may need to write back what it has.
	restore = 10 * time.Second
)

// outage is one loss of data by Redis.
type outage struct {
	kept time.Time // what was written before is still there; zero: nothing is
	from time.Time
	up   time.Time // Redis answered again
}

// outages are those that happened, in order.
type outages struct {
	mu   sync.Mutex
	list []outage // guarded by mu
	done int      // guarded by mu: how many, also those that may have lost nothing
	now  bool     // guarded by mu: one is being done, or just was
}

func (o *outages) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = true
}

func (o *outages) end(x outage, loses bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done++
	if loses {
		o.list = append(o.list, x)
	}
}

func (o *outages) rest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = false
}

// state is how many there were and whether one is going on, or things are still
// being written back.
func (o *outages) state() (done int, now bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.done, o.now
}

// lose makes Redis lose data again and again until ctx ends.
func (c *chaos) lose(ctx context.Context, s *soak, rng *rand.Rand) {
	for s.fault != faultKills && s.losses > 0 {
		wait := time.Duration(rng.ExpFloat64() * float64(max(s.losses-restore, 0)))
		if !sleep(ctx, restore+min(wait, 4*s.losses)) {
			return
		}
		s.outages.begin()
		x, err := c.loseOnce(s, rng)
		if err != nil {
			s.ledger.violate(violation{kind: unsettled, what: fmt.Sprintf("Redis did not come back after %s: %v", s.fault, err)})
		}
		// With replicas waited for, a failover loses nothing that was acknowledged.
		s.outages.end(x, s.fault != faultFailover || s.wait == 0)
		sleep(ctx, restore)
		s.outages.rest()
	}
}

// loseOnce is one loss. A process that is killed in its window, every third time,
// takes what only it had with it.
func (c *chaos) loseOnce(s *soak, rng *rand.Rand) (outage, error) {
	lag := time.Duration(500+rng.IntN(4000)) * time.Millisecond
	var victims []*service
	for _, name := range map[int][]string{0: {webA}, 1: {webB}, 2: {webA, webB}}[rng.IntN(9)] {
		if v := s.stack.services[name]; v.reserve() {
			victims = append(victims, v)
		}
	}
	defer func() {
		for _, v := range victims {
			c.log.add(v.name, "start")
			_ = v.start() // revive tries again
			v.free()
		}
	}()
	die := func() {
		for _, v := range victims {
			c.kill(v)
		}
	}
	for _, v := range s.stack.services {
		if v.isRedis() && v.reserve() { // or revive would start it too early
			defer v.free()
		}
	}
	x := outage{}
	var err error
	switch s.fault {
	case faultFlush:
		die()
		x.from = time.Now()
		c.log.add(redisName, s.fault)
		err = s.reads.redis.FlushAll(context.Background()).Err()
	case faultFailover:
		x, err = c.failover(s, lag, die)
	default:
		v := s.stack.services[redisName]
		var sizes map[string]int64
		if s.fault == faultOldAOF {
			x.kept = time.Now()
			if sizes, err = filesOf(v.dir); err != nil {
				return x, err
			}
			time.Sleep(lag)
		}
		die()
		x.from = time.Now()
		c.log.add(redisName, s.fault)
		c.kill(v)
		if err = cutBack(v.dir, sizes); err != nil {
			return x, err
		}
		time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		if err = v.start(); err == nil {
			err = v.ready(time.Minute)
		}
	}
	x.up = time.Now()
	c.log.add(redisName, "back after "+s.fault)
	return x, err
}

// filesOf gives the sizes of the files of the append-only log in a folder.
func filesOf(dir string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(filepath.Join(dir, "appendonlydir"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sizes[path] = info.Size()
		}
		return err
	})
	return sizes, err
}

// cutBack makes the log of a Redis that is down what it was; the log only grows, so
// a copy would hold the same. Without sizes the log goes.
func cutBack(dir string, sizes map[string]int64) error {
	if sizes == nil {
		return os.RemoveAll(filepath.Join(dir, "appendonlydir"))
	}
	var failed error
	for path, size := range sizes {
		failed = errors.Join(failed, os.Truncate(path, size))
	}
	return failed
}

// follow is the command of a Redis that follows another.
func follow(args []string, master string) []string {
	host, port, _ := net.SplitHostPort(master)
	return append(lead(args), "--replicaof", host+" "+port)
}

// lead is the command of a Redis that follows none.
func lead(args []string) []string {
	if i := slices.Index(args, "--replicaof"); i >= 0 {
		args = args[:i]
	}
	return slices.Clone(args)
}

func sentinelConfig(v *service, master string) error {
	host, port, _ := net.SplitHostPort(master)
	_, own, _ := net.SplitHostPort(v.addr)
	lines := []string{
		"port " + own, "bind 127.0.0.1", "dir " + v.dir,
		"sentinel monitor " + masterName + " " + host + " " + port + " 1",
		"sentinel down-after-milliseconds " + masterName + " 1500",
		"sentinel failover-timeout " + masterName + " 3000",
	}
	return os.WriteFile(filepath.Join(v.dir, "sentinel.conf"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// failover cuts the replica off, kills the master some time after and waits until
// the replica is the master and the other one, emptied, follows it.
func (c *chaos) failover(s *soak, lag time.Duration, die func()) (outage, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	x := outage{}
	master, replica := s.stack.services[redisName], s.stack.services[replicaName]
	if !plain(master.addr, func(r *redis.Client) bool { return role(ctx, r) == "master" }) {
		master, replica = replica, master
	}
	if err := synced(ctx, master.addr); err != nil {
		return x, err
	}
	x.kept = time.Now()
	c.log.add(replica.name, "cut off")
	replica.signal(syscall.SIGSTOP)
	// Without this the kernel would keep what is written for it to read later.
	plain(master.addr, func(r *redis.Client) bool {
		return r.ClientKillByFilter(ctx, "TYPE", "replica").Err() == nil
	})
	time.Sleep(lag)
	die()
	x.from = time.Now()
	c.kill(master)
	replica.signal(syscall.SIGCONT)
	for !plain(replica.addr, func(r *redis.Client) bool { return role(ctx, r) == "master" }) {
		if !sleep(ctx, 50*time.Millisecond) {
			return x, errors.New("the sentinel has not made the replica the master")
		}
	}
	c.log.add(replica.name, "is master")
	x.up = time.Now()
	if err := cutBack(master.dir, nil); err != nil {
		return x, err
	}
	master.mu.Lock()
	master.args = follow(master.args, replica.addr)
	master.mu.Unlock()
	replica.mu.Lock()
	replica.args = lead(replica.args)
	replica.mu.Unlock()
	if err := master.start(); err != nil {
		return x, err
	}
	return x, synced(ctx, replica.addr)
}

// synced waits until a replica follows the master at addr and has all it wrote
// before. While much is written its offset is always a little behind.
func synced(ctx context.Context, addr string) error {
	for want := int64(-1); ; {
		var at, has int64
		plain(addr, func(r *redis.Client) bool {
			info, err := r.InfoMap(ctx, "replication").Result()
			if err == nil {
				_, _ = fmt.Sscan(info["Replication"]["master_repl_offset"], &at)
				if _, rest, ok := strings.Cut(info["Replication"]["slave0"], "state=online,offset="); ok {
					_, _ = fmt.Sscanf(rest, "%d", &has)
				}
			}
			return true
		})
		if want < 0 && has > 0 {
			want = at
		}
		if want >= 0 && has >= want {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("no replica of %s caught up: it is at %d of %d", addr, has, want)
		}
	}
}

func role(ctx context.Context, r *redis.Client) string {
	info, _ := r.InfoMap(ctx, "replication").Result()
	return info["Replication"]["role"]
}

// plain does something with one Redis, whatever it is the master of.
func plain(addr string, do func(*redis.Client) bool) bool {
	r := redis.NewClient(redisOptions(addr))
	defer r.Close()
	return do(r)
}

// sleep says whether it was not cut short by ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
