package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// faultNone is the --fault of a soak of bodies in which every answer must be whole.
const faultNone = "none"

// passOptions are the command line of a soak of bodies.
type passOptions struct {
	bodies  int64
	clients int
	library int           // documents to be searched
	every   time.Duration // mean time between two kills
	fault   string        // faultNone, or faultKill of the apiserver
	up      bool          // one process for all services
	seed    uint64
	mneme   string
	dir     string
	keep    bool
}

// faultKill kills the apiserver.
const faultKill = "kill"

func parsePass(args []string, out io.Writer) (passOptions, error) {
	o := passOptions{}
	f := flag.NewFlagSet("soak pass", flag.ContinueOnError)
	f.SetOutput(out)
	f.Int64Var(&o.bodies, "bodies", 100_000, "how many answers to read")
	f.IntVar(&o.clients, "clients", 12, "clients at one time; one in six reads slowly")
	f.IntVar(&o.library, "documents", 400, "documents to search in")
	f.StringVar(&o.fault, "fault", faultNone, "what goes wrong: nothing ("+faultNone+
		"), or the apiserver is killed now and then ("+faultKill+")")
	f.DurationVar(&o.every, "faults-every", 4*time.Second, "mean time between two kills")
	f.BoolVar(&o.up, "up", false, "one process for all services, as mneme up; without kills")
	f.Uint64Var(&o.seed, "seed", 0, "of what is random here; 0 takes one from the clock")
	f.StringVar(&o.mneme, "mneme", "", "the mneme binary; without it one is built from ./cmd/mneme")
	f.StringVar(&o.dir, "dir", "",
		"folder for data and logs; empty for a temporary one, which is removed when nothing was found")
	f.BoolVar(&o.keep, "keep", false, "keep the folder in any case")
	f.Usage = func() {
		fmt.Fprint(out, `Usage: go run ./scripts/soak pass [flags]

A webmemory passes the documents of an apiserver on, over a redis-server, to many
clients, quick and slow ones and some that leave. Every answer is compared with what
the apiserver itself says. With --fault kill the apiserver is killed now and then:
an answer is whole then, or visibly broken, or a clear 503. Exit status 0: that was
so; 1: it was not, and the folder with all logs is kept; 2: the soak could not be
done.

`)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.fault != faultNone && o.fault != faultKill:
		return o, fmt.Errorf("--fault is %q; choose %s or %s", o.fault, faultNone, faultKill)
	case o.up && o.fault == faultKill:
		return o, errors.New("--fault kill needs a webmemory that goes on: leave --up away")
	case o.bodies < 1 || o.clients < 1 || o.library < 1 || o.every <= 0:
		return o, errors.New("bodies, clients, documents and faults-every must be positive")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixMicro())
	}
	return o, nil
}

// passOnce is one soak of bodies.
func passOnce(ctx context.Context, o passOptions, out io.Writer) (clean bool, err error) {
	own := o.dir == ""
	if own {
		o.dir, err = os.MkdirTemp("", "mneme-soak-")
	} else {
		o.dir, err = filepath.Abs(o.dir)
	}
	if err != nil {
		return false, err
	}
	stack, err := newStack(options{mneme: o.mneme, dir: o.dir, fault: faultKills, level: "info"})
	if err != nil {
		return false, err
	}
	stack.order = []string{redisName, apiName, webA}
	if o.up {
		v := stack.services[apiName]
		v.args = []string{v.args[0], "up", "--offline"}
		v.env = append(v.env, "MNEME_WEBMEMORY_LISTEN="+stack.services[webA].addr)
		stack.order = stack.order[:2]
	}
	defer stack.killAll()
	if err := stack.startAll(); err != nil {
		return false, err
	}
	p := &passing{passOptions: o, stack: stack, out: out}
	clean, err = p.run(ctx)
	if err == nil && clean && own && !o.keep {
		stack.killAll()
		return clean, os.RemoveAll(o.dir)
	}
	fmt.Fprintf(out, "kept: %s\n", o.dir)
	return clean, err
}

// passing is a soak of bodies while it runs.
type passing struct {
	passOptions
	stack *stack
	out   io.Writer
	asks  []ask

	begun  atomic.Int64 // bodies that were asked for
	kills  atomic.Int64
	mu     sync.Mutex
	counts map[verdict]int // guarded by mu
	bytes  int64           // guarded by mu: of whole bodies
	wrong  []string        // guarded by mu: findings
}

func (p *passing) run(ctx context.Context) (clean bool, err error) {
	p.counts = map[verdict]int{}
	fmt.Fprintf(p.out, "soak: %d bodies, %d clients, fault %s, seed %d, in %s\n", p.bodies, p.clients, p.fault, p.seed,
		p.dir)
	if p.asks, err = prepare(ctx, "http://"+p.stack.services[apiName].addr, p.seed, p.library); err != nil {
		return false, err
	}
	began := time.Now()
	watching, unwatch := context.WithCancel(ctx)
	var around sync.WaitGroup
	around.Go(func() { p.watch(watching, began) })
	if p.fault == faultKill {
		around.Go(func() { p.killNowAndThen(watching) })
	}
	var clients sync.WaitGroup
	for i := range p.clients {
		c := newTaker("http://"+p.stack.services[webA].addr, rand.New(rand.NewPCG(p.seed, uint64(i))), i%6 == 5)
		clients.Go(func() {
			for p.begun.Add(1) <= p.bodies && ctx.Err() == nil {
				if got := c.take(ctx, p.asks); ctx.Err() == nil { // else it was cut by our own end
					p.enter(got)
				}
			}
		})
	}
	clients.Wait()
	unwatch()
	around.Wait()
	return p.report(time.Since(began)), nil
}

// enter counts what became of a body.
func (p *passing) enter(got taken) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[got.verdict]++
	p.bytes += got.bytes
	if !got.verdict.allowed(p.fault) {
		p.wrong = append(p.wrong, fmt.Sprintf("%s %s: %s: %s", time.Now().Format("15:04:05.000"), got.ask, got.verdict,
			got.what))
	}
}

func (p *passing) killNowAndThen(ctx context.Context) {
	rng := rand.New(rand.NewPCG(p.seed, 1<<32))
	v := p.stack.services[apiName]
	for sleep(ctx, min(time.Duration(rng.ExpFloat64()*float64(p.every)), 4*p.every)) {
		if !v.kill() {
			continue
		}
		p.kills.Add(1)
		if err := v.start(); err == nil {
			_ = v.ready(time.Minute) // or the answers stay 503, which is said in the end
		}
	}
}

func (p *passing) watch(ctx context.Context, began time.Time) {
	for sleep(ctx, 15*time.Second) {
		p.mu.Lock()
		fmt.Fprintf(p.out, "%6v  %d bodies, %d MB, %d kills, %d findings\n", time.Since(began).Round(time.Second),
			min(p.begun.Load(), p.bodies), p.bytes>>20, p.kills.Load(), len(p.wrong))
		p.mu.Unlock()
	}
}

// report prints the totals and the verdict.
func (p *passing) report(took time.Duration) (clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for _, n := range p.counts {
		total += n
	}
	fmt.Fprintf(p.out, "\nsoak of bodies of %v, fault %s, seed %d\n", took.Round(time.Second), p.fault, p.seed)
	row := func(name string, value any) { fmt.Fprintf(p.out, "  %-40s %v\n", name, value) }
	row("bodies", total)
	for _, v := range verdicts {
		row(string(v), p.counts[v])
	}
	row("MB of whole bodies", p.bytes>>20)
	row("kills of the apiserver", p.kills.Load())
	p.wrong = slices.Concat(p.wrong, p.stack.services[apiName].crashes, p.stack.services[webA].crashes)
	if p.counts[whole] == 0 {
		p.wrong = append(p.wrong, "not one body came whole")
	}
	for _, w := range p.wrong[:min(len(p.wrong), 20)] {
		fmt.Fprintln(p.out, w)
	}
	if len(p.wrong) > 0 {
		fmt.Fprintf(p.out, "verdict: FAIL — %d findings\n", len(p.wrong))
		return false
	}
	fmt.Fprintln(p.out, "verdict: PASS — 0 bodies differ")
	return true
}
