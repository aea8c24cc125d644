package mcp_test

import (
	"context"
	"maps"
	"os"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mneme/subagent/external"
	"mneme/subagent/mcp"
)

// roleVar makes the test's own program play a server on standard input and output, see roles.
const roleVar = "MCP_TEST_ROLE"

// roles are what such a server does.
var roles = map[string]func(){}

func TestMain(m *testing.M) {
	role := roles[os.Getenv(roleVar)]
	if role == nil {
		mcp.HurryUp()
		goleak.VerifyTestMain(m)
		return
	}
	role()
}

// pins are those of a test.
type pins struct {
	mu    sync.Mutex
	kept  map[string]map[string]external.Definition
	fails error
}

func (p *pins) Pinned(_ context.Context, server string) (map[string]external.Definition, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.kept[server]), p.fails
}

func (p *pins) Pin(ctx context.Context, server string, tools ...external.Definition) (map[string]external.Definition,
	error) {
	if kept, err := p.Pinned(ctx, server); len(kept) > 0 || err != nil {
		return kept, err
	}
	if err := p.Accept(ctx, server, tools...); err != nil {
		return nil, err
	}
	return p.Pinned(ctx, server)
}

func (p *pins) Accept(_ context.Context, server string, tools ...external.Definition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil {
		p.kept = map[string]map[string]external.Definition{}
	}
	p.kept[server] = map[string]external.Definition{}
	for _, d := range tools {
		p.kept[server][d.Name] = d
	}
	return p.fails
}

// logTo is the test's log where it is wanted.
func logTo(t *testing.T) zerolog.Logger {
	if !testing.Verbose() {
		return zerolog.Nop()
	}
	return zerolog.New(zerolog.NewTestWriter(t))
}

// open reaches servers until the test ends.
func open(t *testing.T, servers map[string]mcp.ServerConfig, p *pins) *mcp.Client {
	t.Helper()
	c := mcp.Open(servers, p, logTo(t))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	c.Ready(t.Context())
	return c
}

// call is one that must bring a result.
func call(t *testing.T, c *mcp.Client, server, tool, arguments string) external.Returned {
	t.Helper()
	r, err := c.Caller(server, tool).Call(t.Context(), external.Call{ID: "c1", Run: "r1", Arguments: []byte(arguments)})
	require.NoError(t, err)
	return r
}

func names(tools []external.Definition) []string {
	out := []string{}
	for _, d := range tools {
		out = append(out, d.Name)
	}
	return out
}
