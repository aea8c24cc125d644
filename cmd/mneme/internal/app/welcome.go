package app

import (
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"mneme/cmd/mneme/internal/config"
	"mneme/proxy"
)

// cached is where a program that go run has built and started lies: in a folder of its own for what it has just built, or
// in the build cache, where entries are named by hashes.
var cached = regexp.MustCompile(`/go-build\d+/b\d+/exe/|/[0-9a-f]{2}/[0-9a-f]{64}-d/`)

// command is how a person calls this program, which lies at a path.
func command(path string) string {
	if cached.MatchString(filepath.ToSlash(path)) {
		return "go run ./cmd/mneme"
	}
	return "mneme"
}

// welcome tells a person what runs and what to try. A store is fresh if this start has made it.
func welcome(out io.Writer, cfg config.Config, at Addrs, fresh bool) {
	if out == nil {
		return
	}
	fmt.Fprintf(out, "mneme is up: %s shows it in a browser.\n", at.Page())
	fmt.Fprintf(out, "Services: webmemory %s, apiserver %s, proxy %s\n", at.URL(at.Webmemory), at.URL(at.Apiserver),
		at.URL(at.Proxy))
	first := cfg.Proxy.First(cfg.Proxy.Active)
	if b := cfg.Proxy.Backends[first]; b.Kind == config.KindOffline {
		fmt.Fprintln(out,
			"Model: offline, a small extractive one for trying things out; a real one: `mneme up --model auto`, or a "+
				"mneme.yaml (docs/configuration.md).")
	} else {
		of := ""
		if route, ok := cfg.Proxy.Routes[cfg.Proxy.Active]; ok {
			of = fmt.Sprintf(", the first choice of route %s (%s)", cfg.Proxy.Active, strings.Join(route.Use, ", "))
		}
		fmt.Fprintf(out, "Model: %s, of backend %s%s.\n", proxy.MapModel(b.ModelMap, cfg.Agents.Master.Model), first, of)
	}
	redisAt := ""
	switch {
	case at.Redis != "":
		host, port, _ := net.SplitHostPort(at.Redis)
		redisAt = " -p " + port
		if host != "127.0.0.1" {
			redisAt = " -h " + host + redisAt
		}
		if dir, err := filepath.Abs(cfg.DataDir); fresh && err == nil {
			fmt.Fprintf(out, "There is no memory in %s yet: a new one begins here.\n", dir)
		}
		fmt.Fprintf(out,
			"Memory: embedded, in %s, for this one process; kill -9 loses nothing, a power cut up to a second. For more, set "+
				"redis.url.\n", cfg.DataDir)
	case cfg.Redis.URL != "":
		redisAt = " -u " + redacted(cfg.Redis.URL)
	}
	path, _ := os.Executable() // of a path that is not known, it is installed
	mneme, web := command(path), at.URL(at.Webmemory)
	first, curl, claude := "", "", ""
	if cfg.Auth.Mode == config.AuthKeys {
		first = fmt.Sprintf("  export MNEME_KEY=$(%s keys create --name me --scopes admin%s)    "+
			"(each request needs a key: docs/security.md)\n", mneme, chatURL(web))
		curl = ` -H "Authorization: Bearer $MNEME_KEY"`
		claude = ` --header "Authorization: Bearer $MNEME_KEY"`
	}
	fmt.Fprintf(out, `
Try:
%s  curl -N %s/v1/chats/12345/messages%s -H 'Accept: text/event-stream' -d '{"message":"Tell the analytic subagent that my name is Aliya, then ask it what my name is"}'
  redis-cli%s GET subagent:analytic:12345
  %s chat --chat 12345%s
  %s ingest docs --collection docs%s    (then ask: What happens when Redis is away?)
  claude mcp add --transport http mneme %s/mcp%s    (an agent of your own that uses the same memory)
`, first, web, curl, redisAt, mneme, chatURL(web), mneme, chatURL(web), web, claude)
}

func chatURL(web string) string {
	if web == "http://127.0.0.1:8080" {
		return ""
	}
	return " --url " + web
}

// redacted is a URL without its password.
func redacted(raw string) string {
	u, err := neturl.Parse(raw)
	if err != nil {
		return "URL"
	}
	return u.Redacted()
}
