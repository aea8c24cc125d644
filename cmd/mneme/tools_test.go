package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"mneme/apiserver"
	"mneme/apiserver/api"
)

// crm has one tool of a server that has changed.
type crm struct{}

func (crm) List(context.Context) api.ToolList {
	return api.ToolList{
		Tools: []api.ToolInfo{{Name: "refund", ID: "crm/refund", Kind: api.ToolMCP, Policy: "always", State: "ready"}},
		Servers: []api.ToolServer{
			{Server: "crm", State: "ready", Tools: 1, Changed: []string{"st\x1beal"}, Refused: []string{"a b"}},
			{Server: "erp", State: "away", Reason: "it cannot be reached"}},
		LeftOut: []string{"desk is not shown 2 more tools of crm."},
	}
}

func (crm) Call(_ context.Context, c api.ToolCall) (api.ToolCalled, error) {
	switch c.Tool {
	case "ask":
		return api.ToolCalled{Asks: "Which size?"}, nil
	case "fail":
		return api.ToolCalled{Result: "no such order", Failed: true}, nil
	}
	return api.ToolCalled{Result: "refunded \x1b[31m" + string(c.Arguments)}, nil
}

func (crm) Accept(context.Context, string) error { return nil }

// Tools are listed, called and accepted on the command line.
func TestTools(t *testing.T) {
	s := apiserver.New(apiserver.Config{Tools: func() apiserver.Tools { return crm{} }}, nil, nil, zerolog.Nop())
	web := httptest.NewServer(s.Handler())
	t.Cleanup(func() { web.Close(); _ = s.Close() })
	tools := func(args ...string) result {
		return mneme(t, "", append(append([]string{"tools"}, args...), "--url", web.URL)...)
	}
	require.Equal(t, "AGENT   TOOL    ID          KIND  ASKS    STATE\n"+
		"master  refund  crm/refund  mcp   always  ready\n\n"+
		"desk is not shown 2 more tools of crm.\n\n"+
		"crm: ready, 1 tools\n"+
		"  not what was accepted, and not used: steal (mneme tools accept crm)\n"+
		"  cannot be used: a b\n"+
		"erp: away, 0 tools; it cannot be reached\n", tools("ls").stdout)
	require.Contains(t, tools("ls", "--json").stdout, `"reason": "it cannot be reached"`)
	require.Equal(t, "refunded [31m{\"order\":7}\n", tools("call", "refund", `{"order":7}`).stdout)
	require.Equal(t, "refunded [31m{}\n", tools("call", "refund").stdout)
	require.Equal(t, "crm: 1 tools are used as they are now\n", tools("accept", "crm").stdout)
	for want, args := range map[string][]string{
		"mneme: the arguments are no JSON: {\n":                                            {"call", "refund", "{"},
		"mneme: the tool failed: no such order\n":                                          {"call", "fail"},
		"mneme: the tool asks a person, who can only answer in a run: Which size?\n":       {"call", "ask"},
		"mneme: There is no such server of tools.\n":                                       {"accept", "other"},
		"mneme: There is no agent \"x\"; agent is \"master\" or the name of a subagent.\n": {"call", "y", "--agent", "x"},
	} {
		r := tools(args...)
		sentence, wrongLine := strings.CutSuffix(r.stderr, "; see mneme --help\n")
		require.Equal(t, wrongLine, r.code == 2, r.stderr)
		require.Equal(t, want, strings.TrimSuffix(sentence, "\n")+"\n")
		require.Equal(t, args[1] == "refund", wrongLine, args)
	}
	require.Equal(t, "mneme: nothing answers at http://127.0.0.1:1: start `mneme up` or `mneme apiserver`\n",
		mneme(t, "", "tools", "ls", "--url", "http://127.0.0.1:1").stderr)
}
