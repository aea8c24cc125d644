package app

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/subagent/external"
	"mneme/subagent/mcp"
)

// sourceOf is all that a server has.
type sourceOf struct {
	client *mcp.Client
	server string
}

func (s sourceOf) Tools() (all []external.Tool) {
	for _, d := range s.client.Tools(s.server) {
		all = append(all, external.Tool{Definition: d, Caller: s.client.Caller(s.server, d.Name), Timeout: 10 * time.Second})
	}
	return all
}

// What agents have is listed with its state and called by hand, by name and by id.
func TestTheCatalogue(t *testing.T) {
	t.Parallel()
	yes := true
	s := sdk.NewServer(&sdk.Implementation{Name: "crm", Version: "1"}, nil)
	for name, hints := range map[string]*sdk.ToolAnnotations{"find.one": nil, "refund": {DestructiveHint: &yes},
		"date": nil} {
		s.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: hints},
			func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{
					&sdk.TextContent{Text: name + string(r.Params.Arguments)}}}, nil
			})
	}
	s.AddTool(&sdk.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"k": &sdk.ElicitParams{Message: "Which size?"}}}, nil
		})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s },
		&sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(web.Close)
	client := mcp.Open(map[string]mcp.ServerConfig{
		"crm": {URL: web.URL, Pin: true}, "erp": {URL: "http://127.0.0.1:1/"},
	}, nil, zerolog.Nop())
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	client.Ready(t.Context())
	c := &catalogue{servers: client, builtIn: map[memory.Agent][]string{"": {"recall"}, "support": {"date"}},
		sources: map[memory.Agent][]external.Source{"support": {sourceOf{client, "crm"}, sourceOf{client, "erp"}}}}

	list := c.List(t.Context())
	tool := func(name, id, policy string) api.ToolInfo {
		return api.ToolInfo{Agent: "support", Name: name, ID: id, Kind: api.ToolMCP, Policy: policy, State: "ready"}
	}
	require.Equal(t, []api.ToolInfo{
		{Name: "recall", ID: "recall", Kind: api.ToolBuiltIn, State: "ready"},
		{Agent: "support", Name: "date", ID: "date", Kind: api.ToolBuiltIn, State: "ready"},
		tool("ask", "crm/ask", "never"), tool("crm_date", "crm/date", "never"), tool("find_one", "crm/find.one", "never"),
		tool("refund", "crm/refund", "always"),
	}, list.Tools)
	require.Equal(t, []api.ToolServer{{Server: "crm", State: "ready", Tools: 4},
		{Server: "erp", State: "away", Reason: "it cannot be reached"}}, list.Servers)

	for _, name := range []string{"find_one", "crm/find.one"} {
		r, err := c.Call(t.Context(), api.ToolCall{Agent: "support", Tool: name, Arguments: json.RawMessage(`{"a":1}`)})
		require.NoError(t, err)
		require.Equal(t, api.ToolCalled{Result: `find.one{"a":1}`}, r)
	}
	r, err := c.Call(t.Context(), api.ToolCall{Agent: "support", Tool: "ask"})
	require.NoError(t, err)
	require.Equal(t, api.ToolCalled{Asks: "Which size?"}, r)
	for _, call := range []api.ToolCall{
		{Tool: "find_one"}, {Agent: "support", Tool: "other"}, {Agent: "support", Tool: "date"},
	} {
		_, err := c.Call(t.Context(), call)
		require.ErrorIs(t, err, api.ErrUnknownTool)
	}
	require.NoError(t, c.Accept(t.Context(), "crm"))
	require.ErrorContains(t, c.Accept(t.Context(), "erp"), "not pinned")
}
