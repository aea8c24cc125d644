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
	"mneme/memory/redisstore"
)

// checks are made in this order: those of Redis look at what the first one has read. ask says what there is, and
// whether that is well; what could not be asked is, unless it should have answered. todo says of what is not well what
// is bad about it and what to do; it is empty if ask says so.
var checks = []struct {
	name string
	ask  func(ctx context.Context, p *installation) (said string, ok bool)
	todo string
}{
	{"redis", reach, "start it, or correct redis in the configuration"},
	{"redis permissions", permissions, ""},
	{"redis version", ofEach(redisVersion), "it is too old: install Redis 6.2 or newer, or Valkey"},
	{"redis persistence", ofEach(persistence), "its restart loses memories: set appendonly yes, on a disk with room"},
	{"redis eviction", ofEach(eviction), "it throws memories away when it is full: set maxmemory-policy noeviction"},
	{"clock", ofEach(clocks), "lives, limits and days go by both clocks: let NTP set them"},
	{"disk", disk, "it may be full soon, and takes nothing then: make room for 1 GiB, or move data_dir"},
	{"config and vendors", vendors, ""},
	{"prices", prices, ""},
	{"keys", unlimited, "they may spend anything: set limits.tenants, or revoke them for some with --rate or --budget"},
	{"versions", versions, "start again what is older or does not answer, all of one version"},
}

// patience bounds each check, but for that of the disk: nothing bounds what a file system takes.
const patience = 15 * time.Second

// installation is what is looked at.
type installation struct {
	con     *console
	cfg     config.Config
	client  redis.UniversalClient // of Redis, or of the port of the embedded store
	servers []redisServer         // of a Redis that answers
}

// redisServer is what a server that holds keys says of itself.
type redisServer struct {
	addr  string
	info  map[string]map[string]string
	save  string        // when it takes snapshots
	apart time.Duration // at least so far its clock is from this machine's
}

func doctor(con *console) *cobra.Command {
	c := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong with an installation, and say what to do.",
		Long: `Prints a line for each check: of Redis, the disk, the configuration and its vendors, prices, keys, and the versions of the services that run. Nothing is changed, and nothing is paid for. The exit code is 1 if something is wrong; a service that does not run is no fault.

Examples:
  mneme doctor --config my.yaml`,
	}
	return con.withConfiguration(c, func(ctx context.Context, cfg config.Config, _ []string) error {
		logging.Disable() // what go-redis says of a connection comes back as an error
		con.local = &config.Local{TLS: cfg.TLS}
		o, err := app.RedisOptions(cfg.Redis)
		if err != nil {
			return err
		}
		if cfg.Redis.Embedded() {
			o.Addrs = []string{cmp.Or(cfg.Redis.EmbeddedListen, "127.0.0.1:0")} // where nothing answers
		}
		p, wrong := &installation{con, cfg, redis.NewUniversalClient(o), nil}, 0
		defer p.client.Close()
		for _, c := range checks {
			within, cancel := context.WithTimeout(ctx, patience)
			said, ok := c.ask(within, p)
			cancel()
			state := "ok"
			if !ok {
				wrong++
				state, said = "WRONG", strings.TrimSuffix(said+": "+c.todo, ": ")
			}
			fmt.Fprintf(con.stdout, "%-18s  %-5s  %s\n", c.name, state, term.OneLine(said, 2000))
		}
		if wrong > 0 {
			return fmt.Errorf("%d of %d checks found something wrong", wrong, len(checks))
		}
		return nil
	})
}

func reach(ctx context.Context, p *installation) (said string, ok bool) {
	if p.cfg.Redis.Embedded() {
		return "embedded", true
	}
	nodes, err := redisstore.Masters(ctx, p.client)
	for _, node := range nodes {
		asked := time.Now()
		theirs, silent := node.Time(ctx).Result()
		apart := max(time.Until(theirs), asked.Sub(theirs))
		info, unread := node.InfoMap(ctx).Result()
		save, refused := node.ConfigGet(ctx, "save").Result() // not every host of a Redis lets ask
		if refused != nil {
			save = map[string]string{"save": "unknown: " + refused.Error()}
		}
		p.servers = append(p.servers, redisServer{node.Options().Addr, info, save["save"], apart})
		err = cmp.Or(err, silent, unread)
	}
	if err != nil {
		p.servers = nil
		return err.Error(), false
	}
	return plural(len(nodes), "server") + " with keys", true
}

// permissions does what the memory does at a turn.
func permissions(ctx context.Context, p *installation) (said string, ok bool) {
	if said, ok := unasked(p); ok {
		return said, true
	}
	err := redisstore.New(p.client, p.con.logger(p.cfg.Log)).Server.Probe(ctx)
	var refused *memory.RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Error() + ". " + refused.Fix, false
	case err != nil:
		return err.Error(), false
	}
	return "scripts, writes and mneme's keys", true
}

// unasked reports whether there is no Redis to ask, and why.
func unasked(p *installation) (said string, ok bool) {
	switch {
	case p.cfg.Redis.Embedded():
		return "embedded", true
	case len(p.servers) == 0:
		return "not asked: Redis does not answer", true
	}
	return "", false
}

// ofEach makes a check of one of a single server; the first of which something is wrong is told.
func ofEach(look func(s redisServer) (said string, ok bool)) func(context.Context, *installation) (string, bool) {
	return func(_ context.Context, p *installation) (string, bool) {
		said, ok := unasked(p)
		for _, s := range p.servers {
			if said, ok = look(s); !ok {
				return s.addr + ": " + said, false
			}
		}
		return said, ok
	}
}

func redisVersion(s redisServer) (said string, ok bool) {
	var number float64 // of 7.4.1 it is 7.4
	_, err := fmt.Sscanf(s.info["Server"]["redis_version"], "%f", &number)
	return s.info["Server"]["redis_version"], err == nil && number >= 6.2
}

func persistence(s redisServer) (said string, ok bool) {
	is := s.info["Persistence"]
	logs, wrote := is["aof_last_write_status"], is["rdb_last_bgsave_status"]
	said = fmt.Sprintf("appendonly %s (%s), save %q (%s)", is["aof_enabled"], logs, s.save, wrote)
	return said, logs != "err" && wrote != "err" && (is["aof_enabled"] == "1" || s.save != "")
}

func eviction(s redisServer) (said string, ok bool) {
	limit, policy := s.info["Memory"]["maxmemory"], s.info["Memory"]["maxmemory_policy"]
	return fmt.Sprintf("maxmemory %s, maxmemory-policy %s", limit, policy), limit == "0" || !app.Evicts(s.info)
}

// clocks may be 2 s apart: far more than NTP leaves, far less than the 20 s after which a process is taken for dead.
func clocks(s redisServer) (said string, ok bool) {
	said = fmt.Sprintf("%v between Redis and this machine", max(s.apart, 0).Round(time.Second))
	return said, s.apart < 2*time.Second
}

func disk(_ context.Context, p *installation) (said string, ok bool) {
	var of syscall.Statfs_t
	dir, err := filepath.Abs(p.cfg.DataDir)
	err = cmp.Or(err, syscall.Statfs(dir, &of))
	for ; errors.Is(err, syscall.ENOENT) && dir != "/"; err = syscall.Statfs(dir, &of) {
		dir = filepath.Dir(dir) // the first start makes the folder
	}
	if err != nil {
		return dir + ": " + err.Error(), false
	}
	free := of.Bavail * uint64(of.Bsize) >> 20
	return fmt.Sprintf("%d MiB are free in %s", free, dir), free >= 1024
}

func vendors(ctx context.Context, p *installation) (said string, ok bool) {
	var out strings.Builder
	quiet := *p.con
	quiet.stdout = &out
	err := quiet.check(ctx, p.cfg, false)
	if err != nil {
		out.WriteString(err.Error())
	}
	return strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "; "), err == nil
}

func prices(_ context.Context, p *installation) (said string, ok bool) {
	if err := p.cfg.RequirePrices(false); err != nil {
		return err.Error(), false
	}
	return "each model in use has one, or needs none", true
}

func unlimited(ctx context.Context, p *installation) (said string, ok bool) {
	if p.cfg.Auth.Mode != config.AuthKeys {
		return "none is asked for (auth.mode)", true
	}
	keys, err := access.NewStore(p.client).List(ctx)
	if err != nil {
		return "not asked: " + err.Error(), true // of Redis it is told above; an embedded store need not run
	}
	var free []string
	for _, k := range keys {
		_, bound := p.cfg.Limits.Tenants[k.Tenant.String()]
		bound = bound || k.Tenant != memory.Tenant{} && p.cfg.Limits.EachOtherTenant != config.Limit{}
		ended := !k.Revoked.IsZero() || !k.Expires.IsZero() && time.Now().After(k.Expires)
		if !bound && !ended && len(k.Rate)+len(k.Budget) == 0 {
			free = append(free, k.ID)
		}
	}
	return fmt.Sprintf("%d of %d without limits %s", len(free), len(keys), strings.Join(free, ", ")), len(free) == 0
}

// buildInfo is what runs, among a service's metrics.
var buildInfo = regexp.MustCompile(`mneme_build_info\{.*revision="(.*?)",version="(.*?)"`)

// versions asks the services that the list of processes and the configuration name. Of those that only the
// configuration names none has to run.
func versions(ctx context.Context, p *installation) (said string, ok bool) {
	var urls, lines, all []string
	// That Redis does not answer is told above.
	living, _, _ := redisstore.New(p.client, p.con.logger(p.cfg.Log)).Processes.Look(ctx)
	for _, one := range living {
		urls = append(urls, one.URL)
	}
	listed, own := len(urls), p.con.ownURL
	urls = append(urls, own(p.cfg.Webmemory.Listen), own(p.cfg.Apiserver.Listen), p.cfg.Webmemory.Apiserver,
		own(p.cfg.Proxy.Listen), p.cfg.Apiserver.Proxy)
	for i, url := range urls {
		if slices.Contains(urls[:i], url) {
			continue
		}
		text, err := ask(ctx, p.con, url+"/metrics", patience/5) // a paused one takes connections and never answers
		if i >= listed && errors.Is(err, errNothing) {
			continue
		}
		is := buildInfo.FindStringSubmatch(text)
		if is == nil {
			return fmt.Sprintf("%s does not say its version (%v)", url, err), false
		}
		lines, all = append(lines, strings.TrimSpace(url+" "+is[2]+" "+is[1])), append(all, is[0])
	}
	said = cmp.Or(strings.Join(lines, ", "), "none runs where the configuration names one")
	return said, len(slices.Compact(all)) < 2
}
