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

// cached matches the path of a program that go run started: in a folder of its own for a new build, or in the build
// cache, which names entries by hashes.
var cached = regexp.MustCompile(`/go-build\d+/b\d+/exe/|/[0-9a-f]{2}/[0-9a-f]{64}-d/`)

// Command returns how to call this program in a shell.
func Command() string {
	path, _ := os.Executable() // an unknown path counts as an installed program
	if cached.MatchString(filepath.ToSlash(path)) {
		return "go run ./cmd/mneme"
	}
	return "mneme"
}

// welcome prints what runs and what to try. fresh reports whether this start made the embedded store.
func welcome(out io.Writer, cfg config.Config, addrs Addrs, fresh bool) {
	if out == nil {
		return
	}
	mneme, web := Command(), addrs.URL(addrs.Webmemory)
	fmt.Fprintf(out, "mneme is up: %s shows it in a browser.\n", addrs.Page())
	fmt.Fprintf(out, "Services: webmemory %s, apiserver %s, proxy %s\n", addrs.URL(addrs.Webmemory),
		addrs.URL(addrs.Apiserver), addrs.URL(addrs.Proxy))
	first := cfg.Proxy.First(cfg.Proxy.Active)
	if b := cfg.Proxy.Backends[first]; b.Kind == config.KindOffline {
		fmt.Fprintf(out, "Model: offline, for trying things out. For a real one, export an API key or start Ollama, "+
			"then run `%s up --model auto`, or write a mneme.yaml (docs/configuration.md).\n", mneme)
	} else {
		suffix := ""
		if route, ok := cfg.Proxy.Routes[cfg.Proxy.Active]; ok {
			suffix = fmt.Sprintf(", the first choice of route %s (%s)", cfg.Proxy.Active, strings.Join(route.Use, ", "))
		}
		fmt.Fprintf(out, "Model: %s, of backend %s%s.\n", proxy.MapModel(b.ModelMap, cfg.Agents.Master.Model), first, suffix)
	}
	redisAt := ""
	switch {
	case addrs.Redis != "":
		host, port, _ := net.SplitHostPort(addrs.Redis)
		redisAt = " -p " + port
		if host != "127.0.0.1" {
			redisAt = " -h " + host + redisAt
		}
		if dir, err := filepath.Abs(cfg.DataDir); fresh && err == nil {
			fmt.Fprintf(out, "There is no memory in %s yet: a new one begins here.\n", dir)
		}
		fmt.Fprintf(out,
			"Memory: an embedded store in %s, for this process only. kill -9 loses nothing, a power cut up to a second. To "+
				"share the memory between processes, set redis.url.\n", cfg.DataDir)
	case cfg.Redis.URL != "":
		redisAt = " -u " + redacted(cfg.Redis.URL)
	}
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
  %s ingest FOLDER --collection docs%s    (then ask about these documents)
  claude mcp add --transport http mneme %s/mcp%s    (gives Claude Code this memory)
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
