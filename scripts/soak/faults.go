package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// What goes wrong besides what is killed.
const (
	faultKills    = "kills"    // Redis loses nothing
	faultFlush    = "flushall" // everything, by a command
	faultEmpty    = "empty"    // everything, by a start on an empty disk
	faultOldAOF   = "oldaof"   // the last seconds, by a start from an older file
	faultFailover = "failover" // the last seconds, by a replica that did not hear of them and becomes the master
)

const (
	// lease is how long a chat's lease lives without being renewed.
	lease = 15 * time.Second
	// runTimeout ends runs, and with them every stream, within a soak in which Redis loses data.
	runTimeout = time.Minute
	// restore is how long after a loss a process may need to write back what it has.
	restore = 10 * time.Second
)

// chaos does faults to the stack until its context ends.
type chaos struct {
	*soak
	rng    *rand.Rand
	wg     sync.WaitGroup
	paused atomic.Bool // one at a time: two would only be waited for
}

// strikes returns when every fault it began is over: nothing is paused, and what was
// ended is up again.
func (c *chaos) strikes(ctx context.Context) {
	defer c.wg.Wait()
	for c.every > 0 && sleep(ctx, min(time.Duration(c.rng.ExpFloat64()*float64(c.every)), 4*c.every)) {
		c.strike(ctx)
	}
}

// strike picks a fault and its victims, and leaves each to a goroutine of its own.
func (c *chaos) strike(ctx context.Context) {
	dice, n := c.rng.IntN(100), 1
	if dice < 15 {
		n = 2 + c.rng.IntN(len(c.order)-1)
	}
	down, long := time.Duration(c.rng.IntN(2000))*time.Millisecond, c.rng.IntN(6) == 0
	paused := lease + time.Duration(500+c.rng.IntN(5000))*time.Millisecond
	for _, v := range c.pick(n) {
		down, web := down, slices.Contains(c.webs(), v)
		if dice >= 88 && (web || c.rng.IntN(3) == 0) && c.paused.CompareAndSwap(false, true) {
			c.wg.Go(func() {
				c.pause(ctx, v, paused)
				v.fault.Unlock()
				c.paused.Store(false)
			})
			continue
		}
		if long && web {
			down += lease // the other one has to take over
		}
		c.wg.Go(func() {
			defer v.fault.Unlock()
			if dice < 72 || dice >= 88 {
				c.kill(v)
			} else {
				c.recordFault(v.name, "term")
				if v.Stop(40 * time.Second) {
					c.recordFault(v.name, "hung after SIGTERM")
				}
			}
			sleep(ctx, down)
			c.startAgain(v)
		})
	}
}

// startAgain starts what is down; what cannot start is tried again by revive.
func (c *chaos) startAgain(v *service) {
	c.recordFault(v.name, "start")
	if err := v.start(); err != nil {
		c.say("%v", err)
	}
}

// pick takes up to n services that are up for a fault, webmemory more often than the others.
func (c *chaos) pick(n int) (picked []*service) {
	bag := []string{proxyName, apiName, apiName, webA, webA, webA, webB, webB, webB}
	switch {
	case c.fleet != nil:
		bag = slices.Concat(c.order, c.namesOf("webmemory"))
	case c.fault == faultKills: // else Redis has its own trouble
		bag = append(bag, redisName, redisName)
	}
	c.rng.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
	for _, name := range bag {
		if v := c.services[name]; len(picked) < n && reserve(v) {
			picked = append(picked, v)
		}
	}
	return picked
}

// reserve takes a service that is up for one fault; the goroutine that has it unlocks it.
func reserve(v *service) bool {
	if !v.fault.TryLock() {
		return false
	}
	if v.Pid() == 0 {
		v.fault.Unlock()
		return false
	}
	return true
}

func (c *chaos) kill(v *service) {
	c.meters.scrape(v) // its counters end with it
	c.recordFault(v.name, "kill")
	v.Kill()
}

// pause stops a process for longer than a lease, as a starved machine would.
func (c *chaos) pause(ctx context.Context, v *service, length time.Duration) {
	c.recordFault(v.name, "pause")
	stretch := &span{start: time.Now()}
	v.mu.Lock()
	v.pauses = append(v.pauses, stretch)
	v.mu.Unlock()
	v.Signal(syscall.SIGSTOP)
	sleep(ctx, length)
	c.recordFault(v.name, "continue")
	v.Signal(syscall.SIGCONT)
	v.mu.Lock()
	stretch.end = time.Now()
	v.mu.Unlock()
}

// revive starts what ended by itself.
func (c *chaos) revive(ctx context.Context) {
	for sleep(ctx, time.Second) {
		for _, v := range c.services {
			if v.fault.TryLock() {
				if v.Pid() == 0 {
					c.startAgain(v)
				}
				v.fault.Unlock()
			}
		}
	}
}

// outage is one loss of data by Redis.
type outage struct {
	durableUntil time.Time // what was written before is still there; zero: nothing is
	start        time.Time
	recovered    time.Time // Redis answered again
}

// lose makes Redis lose data again and again until ctx ends.
func (c *chaos) lose(ctx context.Context) {
	for c.fault != faultKills {
		wait := time.Duration(c.rng.ExpFloat64() * float64(max(c.losses-restore, 0)))
		if !sleep(ctx, restore+min(wait, 4*c.losses)) {
			return
		}
		c.reads.losses.Add(1)
		x, err := c.loseOnce()
		if err != nil {
			c.violate(violation{kind: unsettled, what: fmt.Sprintf("Redis did not come back after %s: %v", c.fault, err)})
		}
		// With replicas waited for, a failover loses nothing that was acknowledged.
		if c.fault != faultFailover || c.wait == 0 {
			c.outages = append(c.outages, x)
		}
		sleep(ctx, restore)
		c.reads.losses.Add(1)
	}
}

// loseOnce is one loss. Every third time a process or two are killed in its window, and
// take what only they had with them.
func (c *chaos) loseOnce() (x outage, err error) {
	lag := time.Duration(500+c.rng.IntN(4000)) * time.Millisecond
	var victims []*service
	for _, name := range map[int][]string{0: {webA}, 1: {webB}, 2: {webA, webB}}[c.rng.IntN(9)] {
		if v := c.services[name]; reserve(v) {
			victims = append(victims, v)
		}
	}
	defer func() {
		for _, v := range victims {
			c.startAgain(v)
			v.fault.Unlock()
		}
	}()
	die := func() {
		for _, v := range victims {
			c.kill(v)
		}
		x.start = time.Now()
	}
	for _, v := range c.services {
		if v.isRedis() && reserve(v) { // or revive would start it too early
			defer v.fault.Unlock()
		}
	}
	v := c.services[redisName]
	switch c.fault {
	case faultFlush:
		die()
		c.recordFault(redisName, c.fault)
		err = c.redis.FlushAll(context.Background()).Err()
	case faultFailover:
		err = c.failover(&x, lag, die)
	default:
		var sizes map[string]int64
		if c.fault == faultOldAOF {
			x.durableUntil = time.Now()
			if sizes, err = filesOf(v.Dir); err != nil {
				return x, err
			}
			time.Sleep(lag)
		}
		die()
		c.recordFault(redisName, c.fault)
		v.Kill()
		if err = cutBack(v.Dir, sizes); err != nil {
			return x, err
		}
		time.Sleep(time.Duration(c.rng.IntN(1500)) * time.Millisecond)
		if err = v.start(); err == nil {
			err = v.Await(time.Minute)
		}
	}
	if x.recovered.IsZero() {
		x.recovered = time.Now()
	}
	c.recordFault(redisName, "back after "+c.fault)
	return x, err
}

// filesOf gives the sizes of the files of the append-only log in a folder.
func filesOf(dir string) (map[string]int64, error) {
	sizes := map[string]int64{}
	return sizes, filepath.WalkDir(filepath.Join(dir, "appendonlydir"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sizes[path] = info.Size()
		}
		return err
	})
}

// cutBack makes the log of a Redis that is down what it was; the log only grows, so
// a copy would hold the same. Without sizes the log goes.
func cutBack(dir string, sizes map[string]int64) (err error) {
	if sizes == nil {
		return os.RemoveAll(filepath.Join(dir, "appendonlydir"))
	}
	for path, size := range sizes {
		err = errors.Join(err, os.Truncate(path, size))
	}
	return err
}

// failover cuts the replica off, kills the master some time after and waits until
// the replica is the master and the other one, emptied, follows it.
func (c *chaos) failover(x *outage, lag time.Duration, die func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	leads := func(v *service) bool { return replication(ctx, v.redis)["role"] == "master" }
	master, replica := c.services[redisName], c.services[replicaName]
	if !leads(master) {
		master, replica = replica, master
	}
	if err := synced(ctx, master.redis); err != nil {
		return err
	}
	x.durableUntil = time.Now()
	c.recordFault(replica.name, "cut off")
	replica.Signal(syscall.SIGSTOP)
	// Without this the kernel would keep what is written for it to read later.
	_ = master.redis.ClientKillByFilter(ctx, "TYPE", "replica")
	time.Sleep(lag)
	die()
	c.recordFault(master.name, "kill")
	master.Kill()
	replica.Signal(syscall.SIGCONT)
	for !leads(replica) {
		if !sleep(ctx, 50*time.Millisecond) {
			return errors.New("the sentinel has not made the replica the master")
		}
	}
	c.recordFault(replica.name, "is master")
	x.recovered = time.Now()
	if err := cutBack(master.Dir, nil); err != nil {
		return err
	}
	if err := master.start(); err != nil { // as a replica of the other one, as either is that comes back
		return err
	}
	return synced(ctx, replica.redis)
}

// synced waits until a replica follows the master and has all it wrote before. While
// much is written its offset is always a little behind.
func synced(ctx context.Context, master *redis.Client) error {
	for want := int64(-1); ; {
		var offset, replicaOffset int64
		info := replication(ctx, master)
		_, _ = fmt.Sscan(info["master_repl_offset"], &offset)
		if _, rest, ok := strings.Cut(info["slave0"], "state=online,offset="); ok {
			_, _ = fmt.Sscanf(rest, "%d", &replicaOffset)
		}
		if want < 0 && replicaOffset > 0 {
			want = offset
		}
		if want >= 0 && replicaOffset >= want {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("no replica of %s caught up: it is at %d of %d", master, replicaOffset, want)
		}
	}
}

// replication is what a Redis says of it; nil if it does not answer.
func replication(ctx context.Context, r *redis.Client) map[string]string {
	info, _ := r.InfoMap(ctx, "replication").Result()
	return info["Replication"]
}
