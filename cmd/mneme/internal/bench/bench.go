// Package bench measures what mneme costs: its memory against a real Redis, its
// gateway beside nginx, its retrieval on made-up documents. Of memory: the store
// of this program, the original service's way and bare Redis commands, all within
// one run and interleaved, so that their ratios hold on any machine.
package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options say what to measure. The zero value of a number stands for its default.
type Options struct {
	URL   string // Redis to use; empty: start a redis-server for the run
	Force bool   // use URL even if its database holds keys
	Runs  int    // interleaved repetitions, 21
	Sizes []int  // stored messages, ascending; 10, 100, 1,000 and 10,000

	Writers int // concurrent writers on one chat, over two processes; 8
	Turns   int // of each writer, two messages each; 50

	Filler int // keys of other chats, for what one chat costs among many; 20,000
	// Services makes mneme up with a configuration file, offline; nil leaves the
	// comparison of databases out. It runs over redis-servers of its own.
	Services func(ctx context.Context, config string) *exec.Cmd

	// Writer makes the command of a process that calls Write on its standard
	// input and output. It must end when ctx does.
	Writer func(ctx context.Context) *exec.Cmd
	// Progress is told what is being done; nil if nobody wants to know.
	Progress func(string)
}

func (o Options) withDefaults() Options {
	if o.Runs == 0 {
		o.Runs = 21
	}
	if len(o.Sizes) == 0 {
		o.Sizes = []int{10, 100, 1_000, 10_000}
	}
	if o.Writers == 0 {
		o.Writers = 8
	}
	if o.Turns == 0 {
		o.Turns = 50
	}
	if o.Filler == 0 {
		o.Filler = 20_000
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Memory runs the benchmark of the memory. What it stores carries a name of this
// run only and is removed in the end. What was measured is no error, whatever it is.
func Memory(ctx context.Context, o Options) (*Report, error) {
	report, err := measure(ctx, o.withDefaults())
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("stopped before the end; an incomplete run is not shown")
	}
	return report, err
}

func measure(ctx context.Context, o Options) (report *Report, err error) {
	own := o.URL == ""
	if own {
		o.Progress("starting redis-server")
		server, err := startServer(ctx)
		if err != nil {
			return nil, err
		}
		defer server.stop()
		o.URL = server.url()
	}
	client, err := connect(o.URL)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	version, err := admit(ctx, client, o.Force)
	if err != nil {
		return nil, err
	}
	name := "bench-" + strings.ToLower(rand.Text()[:10]) // about as long as a chat's id
	if !own {                                            // a server of our own goes as a whole
		defer func() { err = errors.Join(err, sweep(ctx, client, name)) }()
	}

	report = &Report{
		Redis: version, OwnServer: own, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.GOMAXPROCS(0), Runs: o.Runs, Date: time.Now().UTC().Truncate(time.Second),
	}
	for _, m := range exchange() {
		report.Appended += len(m.Encode())
	}
	if report.Costs, err = costs(ctx, client, name, o); err != nil {
		return nil, err
	}
	if report.Contention, err = contend(ctx, client, name, o); err != nil {
		return nil, err
	}
	if o.Services != nil {
		if report.Crowded, err = crowding(ctx, o); err != nil {
			return nil, err
		}
	}
	report.judge(o.Sizes)
	return report, nil
}

// connect makes a client as the services make theirs.
func connect(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("--redis is no Redis URL; give one such as redis://127.0.0.1:6379/9")
	}
	options.ContextTimeoutEnabled = true
	options.MaintNotificationsConfig = noMaintenance
	return redis.NewClient(options), nil
}

// admit looks whether Redis can be measured and whether its database may be used,
// and tells its version.
func admit(ctx context.Context, client *redis.Client, force bool) (version string, err error) {
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("the benchmark needs PING, INFO and EVAL of Redis, and INFO failed: %w", err)
	}
	keys, err := client.DBSize(ctx).Result()
	if err != nil {
		return "", fmt.Errorf("counting the keys of the database: %w", err)
	}
	if keys > 0 && !force {
		example, _ := client.RandomKey(ctx).Result()
		o := client.Options()
		return "", fmt.Errorf("database %d of %s holds %d keys, %q is one; name an empty database, or add --force: only keys that the benchmark made are changed and removed",
			o.DB, o.Addr, keys, example)
	}
	return info["Server"]["redis_version"], nil
}

// sweep removes every key that carries the run's name, also after ctx ended.
func sweep(ctx context.Context, client *redis.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	keys := client.Scan(ctx, 0, "*"+name+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := client.Unlink(ctx, keys.Val()).Err(); err != nil {
			return leftover(name, err)
		}
	}
	if err := keys.Err(); err != nil {
		return leftover(name, err)
	}
	return nil
}

func leftover(name string, err error) error {
	return fmt.Errorf("keys of the benchmark are left, remove those with %s in their names: %w", name, err)
}
