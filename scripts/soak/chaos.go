package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// lease is how long a turn's lease lives without being renewed.
const lease = 15 * time.Second

// fault is something that was done to a process.
type fault struct {
	at   time.Time
	who  string
	what string // kill, term, pause, continue, start
}

func (f fault) String() string {
	return fmt.Sprintf("%s %-9s %s", f.at.Format("15:04:05.000"), f.what, f.who)
}

// faults is what happened to the processes, in order.
type faults struct {
	mu   sync.Mutex
	list []fault // guarded by mu
}

func (f *faults) add(who, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, fault{time.Now(), who, what})
}

// around lists what happened within span of a point in time.
func (f *faults) around(at time.Time, span time.Duration) []fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var near []fault
	for _, x := range f.list {
		if x.at.Sub(at).Abs() <= span {
			near = append(near, x)
		}
	}
	return near
}

// count says how often something was done to a process.
func (f *faults) count(who, what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, x := range f.list {
		if (who == "" || x.who == who) && x.what == what {
			n++
		}
	}
	return n
}

// chaos does faults to the stack until its context ends.
type chaos struct {
	stack  *stack
	log    *faults
	meters *meters
	rng    *rand.Rand
	going  sync.WaitGroup
	paused atomic.Bool // one at a time: two would only be waited for
	losing bool        // Redis loses data; see lose
}

// run returns when every fault it began is over: nothing is paused, and what was
// ended is up again or about to be started by healAll.
func (c *chaos) run(ctx context.Context, every time.Duration) {
	defer c.going.Wait()
	for every > 0 {
		wait := time.Duration(c.rng.ExpFloat64() * float64(every))
		if !sleep(ctx, min(wait, 4*every)) {
			return
		}
		c.strike(ctx)
	}
}

// strike picks a fault and its victims, and leaves each to a goroutine of its own.
func (c *chaos) strike(ctx context.Context) {
	dice := c.rng.IntN(100)
	n := 1
	if dice < 15 {
		n = 2 + c.rng.IntN(len(c.stack.order)-1)
	}
	short := time.Duration(c.rng.IntN(2000)) * time.Millisecond
	long := c.rng.IntN(6) == 0
	span := lease + time.Duration(500+c.rng.IntN(5000))*time.Millisecond
	for _, v := range c.pick(n) {
		web := v.name == webA || v.name == webB
		if pausable := web || c.rng.IntN(3) == 0; dice >= 88 && pausable && c.paused.CompareAndSwap(false, true) {
			c.going.Go(func() { defer c.paused.Store(false); defer v.free(); c.pause(ctx, v, span) })
			continue
		}
		down := short
		if long && web {
			down += lease // the other one has to take over
		}
		c.going.Go(func() {
			defer v.free()
			if dice < 72 || dice >= 88 {
				c.kill(v)
			} else {
				c.term(v)
			}
			c.startAfter(ctx, v, down)
		})
	}
}

func (c *chaos) startAfter(ctx context.Context, v *service, down time.Duration) {
	sleep(ctx, down)
	c.log.add(v.name, "start")
	if err := v.start(); err != nil {
		c.log.add(v.name, "start failed: "+err.Error())
	}
}

// pick reserves up to n services, webmemory more often than the others.
func (c *chaos) pick(n int) []*service {
	bag := []string{proxyName, apiName, apiName, webA, webA, webA, webB, webB, webB}
	if !c.losing { // else Redis has its own trouble
		bag = append(bag, redisName, redisName)
	}
	c.rng.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
	var picked []*service
	for _, name := range bag {
		if v := c.stack.services[name]; len(picked) < n && v.reserve() {
			picked = append(picked, v)
		}
	}
	return picked
}

func (c *chaos) kill(v *service) {
	c.meters.scrape(v)
	c.log.add(v.name, "kill")
	v.kill()
}

// term ends a process as an operator would.
func (c *chaos) term(v *service) {
	c.log.add(v.name, "term")
	p := v.signal(syscall.SIGTERM)
	if p == nil {
		return
	}
	select {
	case <-p.ended:
	case <-time.After(40 * time.Second):
		c.log.add(v.name, "hung after SIGTERM")
		c.kill(v)
	}
	c.log.add(v.name, "ended")
}

// pause stops a process for longer than a lease, as a starved machine would.
func (c *chaos) pause(ctx context.Context, v *service, length time.Duration) {
	c.log.add(v.name, "pause")
	stretch := v.beginPause()
	v.signal(syscall.SIGSTOP)
	sleep(ctx, length)
	c.log.add(v.name, "continue")
	v.signal(syscall.SIGCONT)
	v.mu.Lock()
	defer v.mu.Unlock()
	stretch.to = time.Now()
}

// revive starts what ended by itself.
func (c *chaos) revive(ctx context.Context) {
	for ctx.Err() == nil {
		for _, v := range c.stack.services {
			v.mu.Lock()
			idle := v.process == nil && !v.busy
			v.mu.Unlock()
			if idle {
				c.log.add(v.name, "start")
				_ = v.start() // tried again in the next round
			}
		}
		sleep(ctx, time.Second)
	}
}

func lines[T fmt.Stringer](list []T) string {
	var b strings.Builder
	for _, x := range list {
		b.WriteString("    " + x.String() + "\n")
	}
	return b.String()
}
