package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"mneme/access"
	"mneme/cmd/mneme/internal/app"
	"mneme/cmd/mneme/internal/config"
	"mneme/cmd/mneme/internal/term"
	"mneme/memory"
	"mneme/memory/redisscript"
	"mneme/memory/redisstore"
)

// verdict is the result of a check.
type verdict string

const (
	good    verdict = "ok"
	bad     verdict = "WRONG"
	unknown verdict = "unknown" // the facts could not be read
)

// judge returns good or bad.
func judge(ok bool) verdict {
	if ok {
		return good
	}
	return bad
}

// checks run in this order, because the checks of Redis use the INFO that the first one reads. run returns the facts
// and a verdict. fix is the cause and the fix of a bad verdict. It is empty if the facts include them.
var checks = []struct {
	name string
	run  func(ctx context.Context, p *installation) (facts string, result verdict)
	fix  string
}{
	{"redis", reach, "start it, or correct redis in the configuration"},
	{"redis permissions", permissions, ""},
	{"redis version", eachServer(fromInfo(redisVersion)), "it is too old: install Redis 6.2 or newer, or Valkey"},
	{"redis persistence", eachServer(fromInfo(persistence)),
		"its restart loses memories: set appendonly yes, on a disk with room"},
	{"redis eviction", eachServer(fromInfo(eviction)),
		"it throws memories away when it is full: set maxmemory-policy noeviction"},
	{"clock", eachServer(clocks), "lives, limits and days go by both clocks: let NTP set them"},
	{"disk", disk, "it may be full soon, and takes nothing then: make room for 1 GiB, or move data_dir"},
	{"config and vendors", vendors, ""},
	{"prices", prices, ""},
	{"keys", keyLimits, "they may spend anything: set limits.tenants, or revoke them for some with --rate or --budget"},
	{"versions", versions, "start again what is older or does not answer, all of one version"},
}

// checkTimeout bounds each check except the check of the disk, because file system calls have no timeout.
const checkTimeout = 15 * time.Second

// installation is the subject of the checks.
type installation struct {
	con     *console
	cfg     config.Config
	client  redis.UniversalClient // for Redis or the port of the embedded store
	servers []redisServer         // empty if Redis does not answer
}

// redisServer holds the facts about a Redis server with keys.
type redisServer struct {
	addr      string
	info      map[string]map[string]string
	infoErr   error         // of INFO
	save      string        // the schedule of snapshots
	configErr error         // of CONFIG
	skew      time.Duration // the least difference between its clock and this machine's
	timeErr   error         // of TIME
}

func doctorCommand(con *console) *cobra.Command {
	c := newCommand("doctor", "Look for what is wrong with an installation, and say what to do.", `Prints a line for each check: of Redis, the disk, the configuration and its vendors, prices, keys, and the versions of the services that run. Nothing is changed, and nothing is paid for. The exit code is 1 if something is wrong; a service that does not run is no fault, and neither is an unknown fact.

Examples:
  mneme doctor --config my.yaml`)
	return withConfiguration(con, c, config.Load, func(ctx context.Context, cfg config.Config, _ []string) error {
		logging.Disable() // go-redis also returns the errors that it logs
		con.local = &config.Local{TLS: cfg.TLS}
		o, err := app.RedisOptions(cfg.Redis)
		if err != nil {
			return err
		}
		if cfg.Redis.Embedded() {
			o.Addrs = []string{cmp.Or(cfg.Redis.EmbeddedListen, "127.0.0.1:0")} // where nothing answers
		}
		p, faults := &installation{con, cfg, redis.NewUniversalClient(o), nil}, 0
		defer p.client.Close()
		for _, c := range checks {
			checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
			facts, result := c.run(checkCtx, p)
			cancel()
			if result == bad {
				faults++
				facts = strings.TrimSuffix(facts+": "+c.fix, ": ")
			}
			fmt.Fprintf(con.stdout, "%-18s  %-7s  %s\n", c.name, result, term.OneLine(facts, 2000))
		}
		if faults > 0 {
			return fmt.Errorf("%d of %d checks found something wrong", faults, len(checks))
		}
		return nil
	})
}

func reach(ctx context.Context, p *installation) (facts string, result verdict) {
	if p.cfg.Redis.Embedded() {
		return "embedded", good
	}
	nodes, err := redisstore.Masters(ctx, p.client)
	for _, node := range nodes {
		s := redisServer{addr: node.Options().Addr}
		start := time.Now()
		var theirs time.Time
		theirs, s.timeErr = node.Time(ctx).Result()
		s.skew = max(time.Until(theirs), start.Sub(theirs))
		s.info, s.infoErr = node.InfoMap(ctx).Result()
		var save map[string]string
		save, s.configErr = node.ConfigGet(ctx, "save").Result()
		s.save = save["save"]
		p.servers = append(p.servers, s)
		for _, failed := range []error{s.timeErr, s.infoErr} {
			if failed != nil && !errors.Is(redisscript.Unavailable(failed), memory.ErrRefused) {
				err = cmp.Or(err, failed)
			}
		}
		err = cmp.Or(err, node.Ping(ctx).Err())
	}
	if err != nil {
		p.servers = nil
		return err.Error(), bad
	}
	return plural(len(nodes), "server") + " with keys", good
}

// permissions probes Redis as webmemory does.
func permissions(ctx context.Context, p *installation) (facts string, result verdict) {
	if facts, result := skipRedis(p); facts != "" {
		return facts, result
	}
	err := redisstore.New(p.client, newLogger(p.con.stderr, p.cfg.Log)).Server.Probe(ctx)
	var refused *memory.RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Error() + ". " + refused.Fix, bad
	case err != nil:
		return err.Error(), bad
	}
	return "scripts, writes and mneme's keys", good
}

// skipRedis returns the verdict of the Redis checks if there is no Redis to ask, else an empty text.
func skipRedis(p *installation) (facts string, result verdict) {
	switch {
	case p.cfg.Redis.Embedded():
		return "embedded", good
	case len(p.servers) == 0:
		return "Redis does not answer", unknown
	}
	return "", good
}

// eachServer returns look as a check of all servers. It reports the first bad server, else the first unknown one.
func eachServer(look func(redisServer) (string, verdict)) func(context.Context, *installation) (string, verdict) {
	return func(_ context.Context, p *installation) (string, verdict) {
		facts, result := skipRedis(p)
		for _, s := range p.servers {
			text, one := look(s)
			switch {
			case one == bad:
				return s.addr + ": " + text, bad
			case result == good:
				facts, result = text, one
			}
		}
		return facts, result
	}
}

// fromInfo returns look as a check that is unknown if the server refuses INFO.
func fromInfo(look func(s redisServer) (facts string, result verdict)) func(redisServer) (string, verdict) {
	return func(s redisServer) (string, verdict) {
		if s.infoErr != nil {
			return s.infoErr.Error(), unknown
		}
		return look(s)
	}
}

func redisVersion(s redisServer) (facts string, result verdict) {
	var number float64 // of 7.4.1 it is 7.4
	if _, err := fmt.Sscanf(s.info["Server"]["redis_version"], "%f", &number); err != nil {
		return "INFO has no redis_version", unknown
	}
	return s.info["Server"]["redis_version"], judge(number >= 6.2)
}

func persistence(s redisServer) (facts string, result verdict) {
	info := s.info["Persistence"]
	logs, wrote := info["aof_last_write_status"], info["rdb_last_bgsave_status"]
	save := s.save
	if s.configErr != nil {
		save = s.configErr.Error()
	}
	facts = fmt.Sprintf("appendonly %s (%s), save %q (%s)", info["aof_enabled"], logs, save, wrote)
	switch {
	case logs == "err" || wrote == "err":
		return facts, bad
	case info["aof_enabled"] == "1" || s.save != "":
		return facts, good
	case s.configErr != nil || info["aof_enabled"] == "":
		return facts, unknown
	}
	return facts, bad
}

func eviction(s redisServer) (facts string, result verdict) {
	limit, policy := s.info["Memory"]["maxmemory"], s.info["Memory"]["maxmemory_policy"]
	facts = fmt.Sprintf("maxmemory %s, maxmemory-policy %s", limit, policy)
	evicts, ok := app.Evicts(s.info)
	if !ok && limit != "0" {
		return facts, unknown
	}
	return facts, judge(limit == "0" || !evicts)
}

// clocks may be 2 s apart: far more than NTP leaves, far less than the 20 s after which a process is taken for dead.
func clocks(s redisServer) (facts string, result verdict) {
	if s.timeErr != nil {
		return s.timeErr.Error(), unknown
	}
	facts = fmt.Sprintf("%v between Redis and this machine", max(s.skew, 0).Round(time.Second))
	return facts, judge(s.skew < 2*time.Second)
}

func disk(_ context.Context, p *installation) (facts string, result verdict) {
	var stat syscall.Statfs_t
	dir, err := filepath.Abs(p.cfg.DataDir)
	err = cmp.Or(err, syscall.Statfs(dir, &stat))
	for ; errors.Is(err, syscall.ENOENT) && dir != "/"; err = syscall.Statfs(dir, &stat) {
		dir = filepath.Dir(dir) // the first start makes the folder
	}
	if err != nil {
		return dir + ": " + err.Error(), bad
	}
	free := stat.Bavail * uint64(stat.Bsize) >> 20
	return fmt.Sprintf("%d MiB are free in %s", free, dir), judge(free >= 1024)
}

func vendors(ctx context.Context, p *installation) (facts string, result verdict) {
	var out strings.Builder
	err := checkBackends(ctx, &out, newLogger(p.con.stderr, p.cfg.Log), p.cfg, false)
	if err != nil {
		out.WriteString(err.Error())
	}
	return strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "; "), judge(err == nil)
}

func prices(_ context.Context, p *installation) (facts string, result verdict) {
	if err := p.cfg.RequirePrices(false); err != nil {
		return err.Error(), bad
	}
	return "each model in use has one, or needs none", good
}

func keyLimits(ctx context.Context, p *installation) (facts string, result verdict) {
	if p.cfg.Auth.Mode != config.AuthKeys {
		return "none is asked for (auth.mode)", good
	}
	keys, err := access.NewStore(p.client).List(ctx)
	if err != nil {
		return err.Error(), unknown // an embedded store need not run
	}
	var free []string
	for _, k := range keys {
		_, bound := p.cfg.Limits.Tenants[k.Tenant.String()]
		bound = bound || k.Tenant != memory.Tenant{} && p.cfg.Limits.EachOtherTenant != config.Limit{}
		inactive := !k.Revoked.IsZero() || !k.Expires.IsZero() && time.Now().After(k.Expires)
		if !bound && !inactive && len(k.Rate)+len(k.Budget) == 0 {
			free = append(free, k.ID)
		}
	}
	return fmt.Sprintf("%d of %d without limits %s", len(free), len(keys), strings.Join(free, ", ")), judge(len(free) == 0)
}

// buildInfo matches the revision and the version in the metrics of a service.
var buildInfo = regexp.MustCompile(`mneme_build_info\{.*revision="(.*?)",version="(.*?)"`)

// versions asks the services that the list of processes and the configuration name. Of those that only the
// configuration names none has to run.
func versions(ctx context.Context, p *installation) (facts string, result verdict) {
	var urls, lines, builds []string
	// The first check reports that Redis does not answer.
	living, _, _ := redisstore.New(p.client, newLogger(p.con.stderr, p.cfg.Log)).Processes.Look(ctx)
	for _, one := range living {
		urls = append(urls, one.URL)
	}
	listed, own := len(urls), p.con.localURL
	urls = append(urls, own(p.cfg.Webmemory.Listen), own(p.cfg.Apiserver.Listen), p.cfg.Webmemory.Apiserver,
		own(p.cfg.Proxy.Listen), p.cfg.Apiserver.Proxy)
	for i, url := range urls {
		if slices.Contains(urls[:i], url) {
			continue
		}
		text, err := getStatus(ctx, p.con, url+"/metrics", checkTimeout/5) // a paused service never answers
		if i >= listed && errors.Is(err, errNoListener) {
			continue
		}
		build := buildInfo.FindStringSubmatch(text)
		if build == nil {
			return fmt.Sprintf("%s does not say its version (%v)", url, err), bad
		}
		lines, builds = append(lines, strings.TrimSpace(url+" "+build[2]+" "+build[1])), append(builds, build[0])
	}
	facts = cmp.Or(strings.Join(lines, ", "), "none runs where the configuration names one")
	return facts, judge(len(slices.Compact(builds)) < 2)
}
