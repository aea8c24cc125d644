// Command soak disturbs mneme for a while and then counts what survived.
//
//	go run ./scripts/soak memory --duration 10m --chats 50 --writers 16 --seed 7
//	go run ./scripts/soak memory --fault failover --duration 10m   # Redis loses data, too
//	go run ./scripts/soak pass --bodies 100000                     # answers are compared byte by byte
//
// The first runs two webmemory processes, an apiserver and a proxy with the offline
// model over one redis-server that syncs every write, lets many writers talk to
// them while processes are killed, paused and ended at random, and compares in the
// end every message that was acknowledged with what is stored. Acknowledged is an
// event that was received whole and with its id, or a JSON answer with a 2xx.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Exit codes.
const (
	exitViolated = 1 // something was lost, torn or invalid, or never came to rest
	exitFailed   = 2 // the soak could not be done
)

// options are the command line.
type options struct {
	duration time.Duration // of the writing; coming to rest and the checks come on top
	chats    int
	writers  int
	seed     uint64
	every    time.Duration // mean time between two faults; 0 for none
	erase    time.Duration // mean time between two erasures; 0 for none
	mneme    string        // the binary
	dir      string        // for everything that is kept
	keep     bool
	level    string        // of the processes' logs
	fault    string        // what Redis loses, one of faultKinds
	losses   time.Duration // mean time between two losses
	wait     int           // redis.wait_replicas
	edits    time.Duration // mean time between two edits by hand; 0 for none
}

func parse(args []string, out io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("soak memory", flag.ContinueOnError)
	f.SetOutput(out)
	f.DurationVar(&o.duration, "duration", 10*time.Minute, "how long to write")
	f.IntVar(&o.chats, "chats", 50, "chats to write to")
	f.IntVar(&o.writers, "writers", 16, "concurrent writers")
	f.Uint64Var(&o.seed, "seed", 0,
		"of what is random here; 0 takes one from the clock (timing differs from run to run all the same)")
	f.DurationVar(&o.every, "faults-every", 3*time.Second,
		"mean time between two kills, ends or pauses; 0 for none; 12s if Redis loses data, so that processes have "+
			"something to write back")
	f.StringVar(&o.fault, "fault", faultKills, "what Redis loses: nothing ("+faultKills+"), everything by FLUSHALL ("+
		faultFlush+") or by a start on an empty disk ("+faultEmpty+
		"), the last seconds by a start from an older file ("+faultOldAOF+
		") or by a Sentinel failover to a replica that lags ("+faultFailover+")")
	f.DurationVar(&o.losses, "losses-every", 30*time.Second, "mean time between two losses of --fault")
	f.IntVar(&o.wait, "wait-replicas", 0, "redis.wait_replicas, with --fault failover")
	f.DurationVar(&o.edits, "edits-every", 10*time.Second, "mean time between two edits of a history by hand; 0 for none")
	f.DurationVar(&o.erase, "erase-every", 10*time.Second, "mean time between two erasures; 0 for none")
	f.StringVar(&o.mneme, "mneme", "", "the mneme binary; without it one is built from ./cmd/mneme")
	f.StringVar(&o.dir, "dir", "",
		"folder for data, logs and findings; empty for a temporary one, which is removed when nothing was found")
	f.BoolVar(&o.keep, "keep", false, "keep the folder in any case")
	f.StringVar(&o.level, "log-level", "info", "of the processes' logs")
	f.Usage = func() {
		fmt.Fprint(out, `Usage: go run ./scripts/soak memory [flags]

Two webmemory processes, an apiserver, a proxy (offline model) and a redis-server
(every write synced) serve writers while processes are killed, paused and ended at
random. In the end every acknowledged message must be stored once, unaltered and in
order, and nothing that was erased may lie anywhere. With another --fault than kills
Redis loses data too, and both webmemories have disks of their own; then only that may
be gone which Redis lost and no living process held, and it is counted apart. Exit status 0: nothing lost, torn or invalid; 1: something was, and the
folder with all data is kept; 2: the soak could not be done.

`)
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case !slices.Contains(faultKinds, o.fault):
		return o, fmt.Errorf("--fault is %q; choose one of %s", o.fault, strings.Join(faultKinds, ", "))
	case o.wait != 0 && o.fault != faultFailover:
		return o, errors.New("--wait-replicas needs --fault failover: the others have no replica")
	case o.edits < 0 || o.losses <= 0 || o.wait < 0 || o.wait > 1:
		return o, errors.New("--edits-every and --losses-every must be positive, --wait-replicas 0 or 1")
	case o.chats < 1 || o.writers < 1 || o.duration <= 0 || o.every < 0 || o.erase < 0:
		return o, errors.New("duration, chats and writers must be positive")
	}
	every := false
	f.Visit(func(g *flag.Flag) { every = every || g.Name == "faults-every" })
	if o.fault != faultKills && !every {
		o.every = 12 * time.Second
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixMicro())
	}
	return o, nil
}

func main() {
	redis.SetLogger(quiet{}) // that Redis is away is the point
	mode, clean, err := "", false, error(nil)
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case "memory":
		clean, err = mainMemory(os.Args[2:])
	case "pass":
		clean, err = mainPass(os.Args[2:])
	default:
		err = errors.New("say what to do: memory or pass; each has --help")
	}
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(exitFailed)
	}
	if !clean {
		os.Exit(exitViolated)
	}
}

func mainMemory(args []string) (clean bool, err error) {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return false, err
	}
	return soakOnce(o)
}

func mainPass(args []string) (clean bool, err error) {
	o, err := parsePass(args, os.Stderr)
	if err != nil {
		return false, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return passOnce(ctx, o, os.Stdout)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func soakOnce(o options) (clean bool, err error) {
	own := o.dir == ""
	if own {
		o.dir, err = os.MkdirTemp("", "mneme-soak-")
	} else {
		o.dir, err = filepath.Abs(o.dir)
	}
	if err == nil {
		err = os.MkdirAll(o.dir, 0o700)
	}
	if err != nil {
		return false, err
	}
	// The first signal ends the writing early; what was written is checked all the same.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("soak: %v, fault %s, %d chats, %d writers, seed %d, in %s\n", o.duration, o.fault, o.chats, o.writers,
		o.seed, o.dir)
	s, err := newSoak(o)
	if err != nil {
		return false, err
	}
	defer s.stack.killAll()
	clean, err = s.run(ctx)
	if err == nil && clean && own && !o.keep {
		s.stack.killAll()
		return clean, os.RemoveAll(o.dir)
	}
	fmt.Printf("kept: %s\n", o.dir)
	return clean, err
}

// soak is one run of this program.
type soak struct {
	options
	stack  *stack
	chats  []*chat
	ledger *ledger
	client *client
	reads  *reader
	meters *meters

	outages *outages
	words   *words
}

func newSoak(o options) (*soak, error) {
	stack, err := newStack(o)
	if err != nil {
		return nil, err
	}
	s := &soak{options: o, stack: stack, ledger: newLedger(os.Stdout), meters: newMeters(), outages: &outages{}}
	s.words = newWords(s)
	for i := range o.chats {
		s.chats = append(s.chats, &chat{id: chatID(i), tag: chatTag(i)})
	}
	s.client = newClient(s.ledger)
	s.reads = newReader(stack.redisClient(), s.ledger, s.chats, s.outages)
	return s, nil
}

// run writes under faults, lets everything come to rest and checks. clean says
// that nothing was found.
func (s *soak) run(ctx context.Context) (clean bool, err error) {
	if err := s.stack.startAll(); err != nil {
		return false, err
	}
	began := time.Now()
	watching, unwatch := context.WithCancel(context.Background())
	watched := s.watch(watching, began)
	s.write(ctx)
	s.say("writing is over after %v; bringing everything up", time.Since(began).Round(time.Second))
	if s.fault != faultKills {
		time.Sleep(2 * restore) // what was away has its time as well
	}
	if err := s.stack.healAll(); err != nil {
		s.ledger.violate(violation{kind: unsettled, what: err.Error()})
	}
	rest, err := s.settle()
	unwatch()
	<-watched
	if err != nil {
		s.ledger.violate(violation{kind: unsettled, what: err.Error()})
	} else {
		s.say("at rest after %v: no open turn, spools empty", rest.Round(100*time.Millisecond))
	}
	s.lastPosts()
	found, err := s.verify()
	if err != nil {
		return false, err
	}
	return s.report(found, time.Since(began)), nil
}

func (s *soak) say(format string, args ...any) {
	fmt.Printf(time.Now().Format("15:04:05 ")+strings.TrimSuffix(format, "\n")+"\n", args...)
}
