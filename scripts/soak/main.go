// Command soak disturbs mneme for a while and then counts what survived; usage says what
// it does. Acknowledged is an event that was received whole and with its id, or a JSON
// answer with a 2xx.
//
//	go -C scripts run ./soak memory --duration 10m --chats 50 --writers 16 --seed 7
//	go -C scripts run ./soak memory --fault failover --duration 10m   # Redis loses data, too
//	go -C scripts run ./soak fleet --duration 10m                     # 15 processes, 2,000 answers at once
//	go -C scripts run ./soak approvals --rounds 200                   # two approvals, killed at every event
//	go -C scripts run ./soak approvals --fault oldaof --rounds 60     # and Redis loses data there
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"mneme/memory"
)

const usage = `Usage: go -C scripts run ./soak memory|fleet|approvals [flags]

memory: two webmemory processes, an apiserver, a proxy (offline model) and a redis-server
(every write synced) serve writers while processes are killed, paused and ended at
random. In the end every acknowledged message must be stored once, unaltered and in
order, and nothing that was erased may lie anywhere. With another --fault than kills
Redis loses data too, and both webmemories have disks of their own; then only that may
be gone which Redis lost and no living process held, and it is counted apart. It loses
everything by FLUSHALL (flushall) or by a start on an empty disk (empty), the last seconds
by a start from an older file (oldaof) or by a Sentinel failover to a replica that lags
(failover).

fleet: as memory, by three webmemories, four apiservers and two gateways, of which the last two kinds
stand behind one name each, over a Redis Cluster of three masters and three replicas (redis.wait_replicas 1). A
node that is paused or ended for longer than five seconds loses its slots to its replica. Models are
slow, so that there are as many open answers as writers.

approvals: two webmemories with an apiserver each. In each round two subagents call a tool
each that has to be approved; what holds the run is killed with kill -9 at the next one of
its events, and the other side approves and goes on. Each call must be made once or never,
each run must end, and each chat must go on. With another --fault Redis loses data there instead,
and the answers that were given are given once more, to both sides.

Exit status 0: nothing was found; 1: something was, and the folder with all data is
kept; 2: the soak could not be done.

`

// options are the command line.
type options struct {
	mode  string // a name of modes
	mneme string // the binary
	dir   string // for everything that is kept
	keep  bool
	seed  uint64
	fault string        // what goes wrong besides what is killed; one of the mode's
	every time.Duration // mean time between two kills, ends or pauses; 0 for none

	// Of memory. Coming to rest and the checks come on top of the duration.
	duration, losses, edits, erase time.Duration
	slow                           time.Duration // each answer of a model in a fleet
	chats, writers, wait           int
	level                          string

	rounds int    // of approvals
	config string // file of the configuration; empty for none
}

// losesData says whether Redis loses data.
func (o options) losesData() bool { return slices.Contains(losses[1:], o.fault) }

// losses are the faults of Redis; with the first one it loses nothing.
var losses = []string{faultKills, faultFlush, faultEmpty, faultOldAOF, faultFailover}

// mode is one kind of soak.
type mode struct {
	faults []string // what --fault may be, the default first
	order  []string // of the processes, to start in
	flags  func(f *flag.FlagSet, o *options)
	run    func(ctx context.Context, t *trial) (clean bool, err error)
}

var twoWebs = []string{redisName, proxyName, apiName, webA, webB}

var modes = map[string]mode{
	"memory": {losses, twoWebs, func(f *flag.FlagSet, o *options) {
		f.DurationVar(&o.duration, "duration", 10*time.Minute, "how long to write")
		f.IntVar(&o.chats, "chats", 50, "chats to write to")
		f.IntVar(&o.writers, "writers", 16, "concurrent writers")
		f.DurationVar(&o.every, "faults-every", 3*time.Second, "mean time between two kills, ends or pauses; 0 for none; "+
			"12s if Redis loses data, so that processes have something to write back")
		f.DurationVar(&o.losses, "losses-every", 30*time.Second, "mean time between two losses of --fault")
		f.DurationVar(&o.edits, "edits-every", 10*time.Second, "mean time between two edits of a history by hand; 0 for none")
		f.DurationVar(&o.erase, "erase-every", 10*time.Second, "mean time between two erasures; 0 for none")
		f.StringVar(&o.level, "log-level", o.level, "of the processes' logs")
	}, func(ctx context.Context, t *trial) (bool, error) {
		return newSoak(t).run(ctx)
	}},
	"fleet": {losses[:1], fleetOrder, func(f *flag.FlagSet, o *options) {
		f.DurationVar(&o.duration, "duration", 10*time.Minute, "how long to write")
		f.IntVar(&o.chats, "chats", 4000, "chats to write to")
		f.IntVar(&o.writers, "writers", 2000, "concurrent writers")
		f.DurationVar(&o.slow, "slow", 15*time.Second, "how long each answer of a model takes")
		f.DurationVar(&o.every, "faults-every", 10*time.Second, "mean time between two kills, ends or pauses; 0 for none")
		f.DurationVar(&o.erase, "erase-every", 10*time.Second, "mean time between two erasures; 0 for none")
		f.StringVar(&o.level, "log-level", "warn", "of the processes' logs")
	}, func(ctx context.Context, t *trial) (bool, error) {
		return newSoak(t).run(ctx)
	}},
	"approvals": {losses, []string{redisName, proxyName, apiA, apiB, webA, webB}, func(f *flag.FlagSet, o *options) {
		f.IntVar(&o.rounds, "rounds", 200, "runs")
	}, approve},
}

func parse(args []string, out io.Writer) (o options, err error) {
	if len(args) > 0 {
		o.mode = args[0]
	}
	m, ok := modes[o.mode]
	f := flag.NewFlagSet("soak "+o.mode, flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() { fmt.Fprint(out, usage); f.PrintDefaults() }
	f.Uint64Var(&o.seed, "seed", 0,
		"of what is random here; 0 takes one from the clock (timing differs from run to run all the same)")
	f.StringVar(&o.mneme, "mneme", "", "the mneme binary; without it one is built from ./cmd/mneme")
	f.StringVar(&o.dir, "dir", "",
		"folder for data, logs and findings; empty for a temporary one, which is removed when nothing was found")
	f.BoolVar(&o.keep, "keep", false, "keep the folder in any case")
	switch {
	case ok:
	case strings.TrimLeft(o.mode, "-") == "h", strings.TrimLeft(o.mode, "-") == "help":
		f.Usage()
		return o, flag.ErrHelp
	default:
		return o, errors.New("say what to do: memory, fleet or approvals; each has --help")
	}
	o.fault, o.level = m.faults[0], "info"
	m.flags(f, &o)
	if len(m.faults) > 1 {
		f.StringVar(&o.fault, "fault", o.fault, "what goes wrong, one of "+strings.Join(m.faults, ", ")+"; see above")
	}
	if slices.Contains(m.faults, faultFailover) {
		f.IntVar(&o.wait, "wait-replicas", 0, "redis.wait_replicas, with --fault failover")
	}
	if err := f.Parse(args[1:]); err != nil {
		return o, err
	}
	explicit := false
	f.Visit(func(g *flag.Flag) { explicit = explicit || g.Name == "faults-every" })
	if o.losesData() && !explicit {
		o.every = 12 * time.Second
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixMicro())
	}
	f.VisitAll(func(g *flag.Flag) {
		value, optional := g.Value.String(), slices.Contains([]string{"memory", "fleet"}, o.mode) && g.Name == "faults-every"
		optional = optional || slices.Contains([]string{"edits-every", "erase-every", "wait-replicas"}, g.Name)
		if strings.HasPrefix(value, "-") || (value == "0" || value == "0s") && !optional {
			err = fmt.Errorf("--%s is %s: it must be positive", g.Name, value)
		}
	})
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case !slices.Contains(m.faults, o.fault):
		err = fmt.Errorf("--fault is %q; choose one of %s", o.fault, strings.Join(m.faults, ", "))
	case o.wait != 0 && o.fault != faultFailover, o.wait > 1:
		err = errors.New("--wait-replicas is 0 or 1, and needs --fault failover: the others have no replica")
	}
	return o, err
}

func main() {
	logging.Disable() // that Redis is away is the point
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	clean := false
	if err == nil {
		// The first signal ends the soak early; what was done is checked all the same.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		clean, err = runSoak(ctx, o, os.Stdout)
		stop()
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	case !clean:
		os.Exit(1)
	}
}

// runSoak is one soak in a folder of its own. clean says that nothing was found.
func runSoak(ctx context.Context, o options, out io.Writer) (clean bool, err error) {
	own := o.dir == ""
	if own {
		o.dir, err = os.MkdirTemp("", "mneme-soak-")
	} else {
		o.dir, err = filepath.Abs(o.dir)
	}
	if err != nil {
		return false, err
	}
	t := newTrial(o, out)
	if o.mode == "approvals" {
		tools := httptest.NewServer(t)
		defer tools.Close()
		t.config = filepath.Join(o.dir, "mneme.yaml")
		err = os.WriteFile(t.config, fmt.Appendf(nil, toolsConfig, tools.URL), 0o600)
	}
	if err == nil {
		t.testbed, err = newStack(t.options)
	}
	if err != nil {
		return false, err
	}
	defer t.killAll()
	fmt.Fprintf(out, "soak %s: fault %s, seed %d, in %s\n", o.mode, o.fault, o.seed, o.dir)
	if err = t.startAll(); err == nil {
		t.began = time.Now()
		clean, err = modes[o.mode].run(ctx, t)
	}
	if clean && own && !o.keep {
		t.killAll()
		return true, os.RemoveAll(o.dir)
	}
	fmt.Fprintf(out, "kept: %s\n", o.dir)
	return clean, err
}

// trial is a soak while it goes on: what is under test, what was counted, and what was found.
type trial struct {
	options
	*testbed
	out   io.Writer
	began time.Time

	mu     sync.Mutex
	counts map[string]int // guarded by mu: by what the report calls them
	wrong  []string       // guarded by mu: findings
}

func newTrial(o options, out io.Writer) *trial {
	return &trial{options: o, out: out, counts: map[string]int{}}
}

func (t *trial) count(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] += n
}

// counted is what was counted so far.
func (t *trial) counted(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[what]
}

func (t *trial) find(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

// eachRound does something for each round, with the two webmemories by turns.
func (t *trial) eachRound(ctx context.Context, do func(round int, owner, peer *service) error) error {
	for round := 0; round < t.rounds && ctx.Err() == nil; round++ {
		webs := t.webs()
		if err := do(round, webs[round%2], webs[(round+1)%2]); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		t.count("rounds", 1)
	}
	return nil
}

func (t *trial) head() {
	fmt.Fprintf(t.out, "\nsoak of %s of %v, fault %s, seed %d\n", t.mode, time.Since(t.began).Round(time.Second), t.fault,
		t.seed)
}

func (t *trial) row(name string, value int) { fmt.Fprintf(t.out, "  %-42s %d\n", name, value) }

// report prints the totals that are named, and the findings.
func (t *trial) report(totals ...string) (clean bool) {
	for _, v := range t.services {
		t.wrong = append(t.wrong, v.crashes...)
	}
	t.head()
	for _, name := range totals {
		t.row(name, t.counts[name])
	}
	for _, w := range t.wrong[:min(len(t.wrong), 20)] {
		fmt.Fprintln(t.out, w)
	}
	fmt.Fprintf(t.out, "verdict: %s — %d findings\n", map[bool]string{true: "PASS", false: "FAIL"}[len(t.wrong) == 0],
		len(t.wrong))
	return len(t.wrong) == 0
}

// soak is one soak of the memory.
type soak struct {
	*ledger
	chats   []*chat
	redis   redis.UniversalClient
	outages []outage // written while faults are done, read afterwards
	reads   reader
	meters  meters
	words   words
}

func newSoak(t *trial) *soak {
	s := &soak{ledger: newLedger(t), redis: t.redisClient()}
	s.reads, s.words = reader{soak: s, snapshots: map[memory.Key]snapshot{}},
		words{soak: s, erasedWords: map[string]erasedWord{}}
	for i := range t.chats {
		s.chats = append(s.chats, newChat(i))
	}
	return s
}

// run writes under faults, lets everything come to rest and checks.
func (s *soak) run(ctx context.Context) (clean bool, err error) {
	watching, unwatch := context.WithCancel(context.Background())
	watched := s.watch(watching)
	s.write(ctx)
	s.say("writing is over after %v; bringing everything up", time.Since(s.began).Round(time.Second))
	if s.fault != faultKills {
		time.Sleep(2 * restore) // what was away has its time as well
	}
	if err := errors.Join(s.startAll(), s.settle()); err != nil {
		s.violate(violation{kind: unsettled, what: err.Error()})
	}
	unwatch()
	watched.Wait()
	if s.fleet != nil {
		s.models.Slow.Store(0)
	}
	s.lastPosts()
	check := &checker{ledger: s.ledger, fates: s.fates()}
	if err := check.verify(s); err != nil {
		return false, err
	}
	return s.report(check), nil
}

func (s *soak) say(format string, args ...any) {
	fmt.Fprintf(s.out, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// random is a stream of numbers that the seed determines.
func (o options) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(o.seed, stream)) }

// sleep says whether it was not cut short by ctx.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
