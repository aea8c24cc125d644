package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"mneme/cmd/mneme/internal/config"
	"mneme/memory"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	"mneme/subagent/external"
	"mneme/subagent/httptool"
	"mneme/subagent/loop"
	"mneme/subagent/mcp"
	"mneme/subagent/note"
	"mneme/subagent/rag"
	"mneme/subagent/recall"
)

// toolbox has the agents' tools, and makes those that lie outside of this service.
type toolbox struct {
	catalogue
	calls       map[*config.ToolEntry]*httptool.Call
	definitions *external.Definitions
	client      *http.Client             // of REST calls
	timeouts    map[string]time.Duration // of calls, by server
	log         zerolog.Logger
}

// filled is a toolbox of the same servers, with the REST calls of the agents of a configuration.
func (b toolbox) filled(cfg config.Config) (*toolbox, error) {
	b.builtIn, b.sources = map[memory.Agent][]string{}, map[memory.Agent][]external.Source{}
	b.calls = map[*config.ToolEntry]*httptool.Call{}
	entries := slices.Clone(cfg.Agents.Master.Tools)
	for _, s := range cfg.Agents.Subagents {
		entries = append(entries, s.Tools...)
	}
	for _, t := range entries {
		if t.HTTP == nil {
			continue
		}
		call, err := t.HTTP.Call(b.client)
		if err != nil {
			return nil, fmt.Errorf("the tool %s: %w", t.HTTP.Name, err)
		}
		b.calls[t] = call
	}
	return &b, nil
}

// tools opens the toolbox. Servers are reached in the background: one that is away keeps no
// service from starting.
func (a *app) tools(cfg config.Config, svc *telemetry.Service) (toolbox, error) {
	box := toolbox{
		catalogue: catalogue{most: cfg.MaxTools}, definitions: &external.Definitions{}, client: httptool.NewClient(),
		timeouts: map[string]time.Duration{}, log: svc.Log,
	}
	a.push("connections of REST calls", func() error { box.client.CloseIdleConnections(); return nil })
	if len(cfg.MCP) == 0 {
		return box, nil
	}
	servers := map[string]mcp.ServerConfig{}
	for name, s := range cfg.MCP {
		dir, err := filepath.Abs(filepath.Join(cfg.DataDir, "mcp", name))
		if err != nil {
			return box, err
		}
		box.timeouts[name] = s.Timeout
		servers[name] = mcp.ServerConfig{
			URL: s.URL, Headers: s.AllHeaders(), Command: s.Command, Env: s.Environ(), Path: os.Getenv("PATH"), Dir: dir,
			Timeout: s.Timeout, Pin: s.Pinned(),
		}
	}
	var pinned mcp.Pins
	if cfg.Redis.Embedded() && !a.together {
		svc.Log.Warn().Msg("without redis.url what MCP servers offer is pinned for this process alone")
	} else {
		redis, err := a.openRedis(cfg, svc.Often)
		if err != nil {
			return box, err
		}
		pinned = pins{a.store(redis, svc.Log)}
	}
	box.servers = mcp.Open(servers, pinned, svc.Log)
	a.push("MCP servers", box.servers.Close)
	return box, nil
}

// give notes what tools an agent has, and makes those that lie outside for each run; nil for none.
// inside are names of tools that it has beside its entries.
func (b *toolbox) give(
	agent memory.Agent, entries []*config.ToolEntry, inside ...string,
) func(external.Run) []loop.Tool {
	outside := false
	for _, t := range entries {
		switch t.Name {
		case "":
			outside = true
		case config.ToolDocuments:
			inside = append(inside, rag.SearchTool)
		default:
			inside = append(inside, t.Name)
		}
	}
	b.builtIn[agent] = inside
	if !outside {
		return nil
	}
	b.sources[agent] = []external.Source{shelf{b, entries}}
	return func(run external.Run) []loop.Tool {
		b.await(entries)
		return external.Holder{
			Run: run, Agent: agent, Sources: b.sources[agent], Reserved: inside, Max: b.most, Definitions: b.definitions,
			Log: b.log,
		}.Tools()
	}
}

// firstReach is how long a run waits for servers that no attempt to reach has ended yet of, as
// right after a start.
const firstReach = 10 * time.Second

// await waits until it is known what an agent's servers offer, or that they are away.
func (b *toolbox) await(entries []*config.ToolEntry) {
	ctx, cancel := context.WithTimeout(context.Background(), firstReach)
	defer cancel()
	for _, t := range entries {
		if t.MCP != "" {
			b.servers.Ready(ctx, t.MCP)
		}
	}
}

// memoryTools are names of the tools by which an agent reaches its memory.
func memoryTools(r recall.Settings, n note.Settings) (names []string) {
	if r.Tool {
		names = append(names, recall.ToolName)
	}
	if n.Tool {
		names = append(names, note.ToolName)
	}
	return names
}

// shelf is what one agent has of a toolbox.
type shelf struct {
	box     *toolbox
	entries []*config.ToolEntry
}

// Tools are those that there are now.
func (s shelf) Tools() (tools []external.Tool) {
	for _, t := range s.entries {
		switch {
		case t.HTTP != nil:
			call := s.box.calls[t]
			tool := external.Tool{Definition: call.Definition(), Caller: call, Timeout: t.HTTP.Timeout,
				Repeatable: call.Repeatable() || t.HTTP.Idempotent}
			if !call.Repeatable() {
				tool.Policy = external.WhenTainted
			}
			tools = append(tools, granted(t, tool))
		case t.MCP != "":
			for _, d := range s.box.servers.Tools(t.MCP) {
				if t.Allows(d.Name) {
					tools = append(tools, granted(t, external.Tool{
						Definition: d, Caller: s.box.servers.Caller(t.MCP, d.Name), Timeout: s.box.timeouts[t.MCP],
						Repeatable: d.Hints.ReadOnly || d.Hints.Idempotent,
					}))
				}
			}
		}
	}
	return tools
}

// granted is a tool with what its entry allows.
func granted(t *config.ToolEntry, tool external.Tool) external.Tool {
	tool.Policy = cmp.Or(t.Policy(tool.Name), tool.Policy)
	tool.FromUser, tool.Trusted = t.FromUser, t.Trust != ""
	tool.PassChat, tool.PassUser = slices.Contains(t.Pass, config.PassChat), slices.Contains(t.Pass, config.PassUser)
	return tool
}

// pins keep what servers offer in the store of the histories.
type pins struct{ store *redisstore.Store }

func (p pins) Pinned(ctx context.Context, server string) (map[string]external.Definition, error) {
	return redisstore.Pinned[external.Definition](ctx, p.store.Tools, server)
}

func (p pins) Pin(ctx context.Context, server string, tools ...external.Definition) (
	map[string]external.Definition, error) {
	raw, err := encoded(tools)
	if err == nil {
		err = p.store.Tools.Pin(ctx, server, raw)
	}
	if err != nil {
		return nil, err
	}
	return p.Pinned(ctx, server)
}

func (p pins) Accept(ctx context.Context, server string, tools ...external.Definition) error {
	raw, err := encoded(tools)
	if err != nil {
		return err
	}
	return p.store.Tools.Accept(ctx, server, raw)
}

func encoded(tools []external.Definition) (map[string]json.RawMessage, error) {
	byName := map[string]json.RawMessage{}
	for _, d := range tools {
		raw, err := json.Marshal(d)
		if err != nil {
			return nil, err
		}
		byName[d.Name] = raw
	}
	return byName, nil
}
