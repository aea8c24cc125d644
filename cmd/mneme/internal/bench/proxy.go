package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// ProxyOptions say what Proxy measures. The zero value of a number stands for its
// default.
type ProxyOptions struct {
	Requests    int      // small ones in one batch, 5,000; other batches are shorter in proportion
	Rounds      int      // interleaved repetitions, 7
	Connections int      // at one time, for small requests and memory, 64
	Turns       []int    // lengths of the conversations that are measured by kilobyte; 10, 100 and 1,000
	Only        []string // rows, see Rows; empty for all
	Profiles    string   // directory for profiles of the gateway; empty for none

	// Vendor makes the command of a process that calls Vendor on its standard input
	// and output. It must end when ctx does, like the three below.
	Vendor func(ctx context.Context) *exec.Cmd
	// Relay makes the command of a process that calls Relay with two addresses.
	Relay func(ctx context.Context, listen, vendor string) *exec.Cmd
	// Gateway makes the command of the gateway with a configuration file.
	Gateway func(ctx context.Context, config string) *exec.Cmd
	// Profiled makes the same that writes a CPU profile of itself to cpu and a profile
	// of its allocations to allocs when it ends; nil if Profiles is empty.
	Profiled func(ctx context.Context, config, cpu, allocs string) *exec.Cmd
	// Progress is told what is being done; nil if nobody wants to know.
	Progress func(string)
}

func (o ProxyOptions) withDefaults() ProxyOptions {
	if o.Requests == 0 {
		o.Requests = 5_000
	}
	if o.Rounds == 0 {
		o.Rounds = 7
	}
	if o.Connections == 0 {
		o.Connections = 64
	}
	if len(o.Turns) == 0 {
		o.Turns = []int{10, 100, 1000}
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Proxy compares the gateway with nginx, with the smallest reverse proxy of
// net/http and with no gateway at all, in front of a vendor that answers at once.
// It needs Linux. What was measured is no error, whatever it is, nor is a missing
// nginx.
func Proxy(ctx context.Context, o ProxyOptions) (*ProxyReport, error) {
	o = o.withDefaults()
	for _, name := range o.Only {
		if !slices.Contains(o.Rows(), name) {
			return nil, fmt.Errorf("there is no row %q; there are %s", name, strings.Join(o.Rows(), ", "))
		}
	}
	if runtime.GOOS != "linux" {
		return nil, errors.New("the benchmark reads what processes use from /proc, which only Linux has")
	}
	report, err := compare(ctx, o)
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("stopped before the end; an incomplete run is not shown")
	}
	return report, err
}

func compare(ctx context.Context, o ProxyOptions) (*ProxyReport, error) {
	dir, err := os.MkdirTemp("", "mneme-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the gateways: %w", err)
	}
	defer os.RemoveAll(dir)
	report := &ProxyReport{
		Date: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.GOMAXPROCS(0), Processor: processor(), LoadAverage: loadAverage(),
		Rounds: o.Rounds, Requests: o.Requests, Connections: o.Connections,
	}
	o.Progress("starting the vendor")
	vendor, stop, err := startVendor(ctx, o.Vendor)
	if err != nil {
		return nil, err
	}
	defer stop()
	c := &contest{options: o, launch: launcher{dir, vendor}, open: map[string]*gateway{}, taken: map[string]map[string][]usage{}}
	defer c.stop()
	if report.Nginx, err = c.enter(ctx); err != nil {
		return nil, err
	}
	rows := slices.DeleteFunc(proxyRows(o), func(r *proxyRow) bool { return len(o.Only) > 0 && !slices.Contains(o.Only, r.name) })
	o.Progress("warming up")
	for round := range o.Rounds + 1 {
		if round > 0 {
			o.Progress(fmt.Sprintf("round %d of %d", round, o.Rounds))
		}
		if round == 1 {
			clear(c.taken) // what came before was for the caches and the heaps
		}
		for _, r := range rows {
			if err := c.round(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range rows {
		report.Metrics = append(report.Metrics, r.report(c.taken[r.name])...)
	}
	if o.Profiles != "" {
		report.Profiles, err = c.profile(ctx, rows)
	}
	return report, err
}

// contest is a run.
type contest struct {
	options ProxyOptions
	launch  launcher
	program string                        // nginx; empty if there is none
	open    map[string]*gateway           // by way
	sent    int64                         // the last number that a call had
	taken   map[string]map[string][]usage // by row and way, one for each round
}

// usage is what a batch of calls took.
type usage struct {
	micros    float64 // of CPU, per call
	perSecond float64
	resident  float64 // bytes
}

// enter opens all ways and tells the version of nginx, empty if there is none.
func (c *contest) enter(ctx context.Context) (nginx string, err error) {
	c.open[wayDirect] = &gateway{addr: c.launch.vendor, stop: func() {}}
	if c.program, err = exec.LookPath("nginx"); err != nil {
		c.program = ""
	} else {
		text, err := exec.CommandContext(ctx, c.program, "-v").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("nginx -v: %w: %s", err, text)
		}
		nginx = strings.TrimSpace(strings.TrimPrefix(string(text), "nginx version: "))
	}
	for _, way := range []string{wayNginx, wayNetHTTP, wayMneme, wayForgets} {
		if way == wayNginx && c.program == "" {
			continue
		}
		c.options.Progress("starting " + way)
		if c.open[way], err = c.start(ctx, way); err != nil {
			delete(c.open, way)
			return "", err
		}
	}
	return nginx, nil
}

func (c *contest) start(ctx context.Context, way string) (*gateway, error) {
	switch way {
	case wayNginx:
		return c.launch.nginx(ctx, c.program)
	case wayNetHTTP:
		return c.launch.relay(ctx, c.options.Relay)
	}
	return c.launch.mneme(ctx, way, c.options.Gateway)
}

func (c *contest) stop() {
	for _, g := range c.open {
		g.stop()
	}
}

// round measures one row on all of its ways, in any order.
func (c *contest) round(ctx context.Context, r *proxyRow) error {
	ways := slices.Clone(r.ways)
	rand.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
	for _, way := range ways {
		g := c.open[way]
		if g == nil {
			continue // there is no nginx
		}
		u, err := c.measure(ctx, r, way, g)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", r.name, way, err)
		}
		if c.taken[r.name] == nil {
			c.taken[r.name] = map[string][]usage{}
		}
		c.taken[r.name][way] = append(c.taken[r.name][way], u)
	}
	return nil
}

// measure measures one batch, through a process of its own if the row wants that.
func (c *contest) measure(ctx context.Context, r *proxyRow, way string, g *gateway) (usage, error) {
	if r.fresh {
		fresh, err := c.start(ctx, way)
		if err != nil {
			return usage{}, err
		}
		defer fresh.stop()
		g = fresh
	}
	return c.batch(ctx, r, g, r.requests)
}

// batch makes n calls.
func (c *contest) batch(ctx context.Context, r *proxyRow, g *gateway, n int) (u usage, err error) {
	name := fmt.Sprintf("bench-%d", c.sent)
	if r.before != nil {
		for _, k := range r.before(name) {
			l, err := c.connect(ctx, g, k, r.connections)
			if err != nil {
				return u, err
			}
			l.close()
		}
	}
	l, err := c.connect(ctx, g, r.calls(name), r.connections)
	if err != nil {
		return u, err
	}
	defer l.close()
	pids, err := g.processes()
	if err != nil {
		return u, err
	}
	runtime.GC() // nobody pays for the garbage of the batch before
	before, err := cpuTime(pids)
	if err != nil {
		return u, err
	}
	took, err := l.run(n)
	c.sent = l.sent.Load()
	if err != nil {
		return u, err
	}
	after, err := cpuTime(pids)
	if err != nil {
		return u, err
	}
	u.micros = float64((after - before).Nanoseconds()) / 1e3 / float64(n)
	u.perSecond = float64(n) / took.Seconds()
	u.resident, err = resident(pids)
	return u, err
}

// connect opens a load, which makes one call on each connection. Every call of a
// run has a number of its own.
func (c *contest) connect(ctx context.Context, g *gateway, k calls, connections int) (*load, error) {
	l, err := openLoad(ctx, g.addr, k, connections, c.sent)
	if err == nil {
		c.sent = l.sent.Load()
	}
	return l, err
}

// profile runs every load once more, each through a gateway that profiles itself.
func (c *contest) profile(ctx context.Context, rows []*proxyRow) (files []string, err error) {
	if err := os.MkdirAll(c.options.Profiles, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory for profiles: %w", err)
	}
	for _, r := range rows {
		if r.fresh {
			continue // the same calls as another row's
		}
		c.options.Progress("profiling " + r.name)
		cpu := filepath.Join(c.options.Profiles, r.name+".cpu.pprof")
		allocs := filepath.Join(c.options.Profiles, r.name+".allocs.pprof")
		g, err := c.launch.mneme(ctx, wayMneme, func(ctx context.Context, config string) *exec.Cmd {
			return c.options.Profiled(ctx, config, cpu, allocs)
		})
		if err != nil {
			return nil, err
		}
		_, err = c.batch(ctx, r, g, r.requests*c.options.Rounds)
		g.stop()
		if err == nil {
			_, err = os.Stat(allocs) // the last thing that it writes
		}
		if err != nil {
			return nil, fmt.Errorf("profiling %s: %w", r.name, err)
		}
		files = append(files, cpu, allocs)
	}
	return files, nil
}
