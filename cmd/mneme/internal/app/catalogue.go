package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"

	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/subagent/external"
	"mneme/subagent/mcp"
)

// catalogue lists the tools of the agents, for clients that ask the apiserver for them. The
// master's name in it is empty.
type catalogue struct {
	servers *mcp.Client               // nil for none
	builtIn map[memory.Agent][]string // names of tools that lie inside
	sources map[memory.Agent][]external.Source
	most    int // tools that lie outside that an agent is shown; 0 for no bound
}

// outside are the tools of an agent that lie outside, with the names that models call them by.
func (c *catalogue) outside(agent memory.Agent) []external.Tool {
	var tools []external.Tool
	for _, s := range c.sources[agent] {
		tools = append(tools, s.Tools()...)
	}
	return external.AssignNames(tools, c.builtIn[agent]...)
}

// List implements apiserver.Tools.
func (c *catalogue) List(context.Context) api.ToolList {
	list, states := api.ToolList{}, map[string]string{}
	if c.servers != nil {
		for _, s := range c.servers.Status() {
			list.Servers = append(list.Servers, api.ToolServer(s))
			states[s.Server] = s.State
		}
	}
	agents := maps.Clone(c.builtIn)
	for agent := range c.sources {
		agents[agent] = c.builtIn[agent]
	}
	for _, agent := range slices.Sorted(maps.Keys(agents)) {
		for _, name := range agents[agent] {
			list.Tools = append(list.Tools, api.ToolInfo{
				Agent: agent, Name: name, ID: name, Kind: api.ToolBuiltIn, State: mcp.StateReady,
			})
		}
		tools := c.outside(agent)
		for i, t := range tools {
			info := api.ToolInfo{
				Agent: agent, Name: t.As, ID: t.ID(), Kind: api.ToolHTTP, Policy: approvalPolicy(t), State: mcp.StateReady,
			}
			if state, served := states[t.Server]; served {
				info.Kind, info.State = api.ToolMCP, state
			}
			if c.most > 0 && i >= c.most {
				info.State = api.ToolLeftOut
			}
			list.Tools = append(list.Tools, info)
		}
		if c.most > 0 && len(tools) > c.most {
			list.LeftOut = append(list.LeftOut,
				external.DescribeOmitted(tools[c.most:], cmp.Or(string(agent), master.Version)+" is not shown"))
		}
	}
	return list
}

// approvalPolicy is when a person is asked before a call of the tool.
func approvalPolicy(t external.Tool) string {
	policy := cmp.Or(t.Policy, external.Never)
	switch {
	case t.Policy == "" && t.Hints.Destructive:
		policy = external.Always
	case t.FromUser != nil && policy == external.Never:
		return "from_user"
	case t.FromUser != nil && policy != external.Always:
		policy += ", from_user"
	}
	return string(policy)
}

// Call implements apiserver.Tools.
func (c *catalogue) Call(ctx context.Context, call api.ToolCall) (api.ToolCalled, error) {
	if slices.Contains(c.builtIn[call.Agent], call.Tool) {
		p := *api.ErrUnknownTool
		p.Message = "This tool is built in; only those that lie outside can be called by hand."
		return api.ToolCalled{}, &p
	}
	for _, t := range c.outside(call.Agent) {
		if t.As != call.Tool && t.ID() != call.Tool || t.Caller == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.Timeout, external.DefaultTimeout))
		defer cancel()
		r, err := t.Caller.Call(ctx, external.Call{
			ID: "by-hand-" + rand.Text(), Run: "by-hand", Arguments: call.Arguments, Progress: func(string) {},
		})
		if err != nil {
			return api.ToolCalled{}, err
		}
		called := api.ToolCalled{Result: r.Text, Failed: r.Failed}
		if r.Elicitation != nil {
			var questions []string
			for _, q := range r.Elicitation.Questions {
				questions = append(questions, q.Message)
			}
			called.Asks = strings.Join(questions, "\n")
		}
		return called, nil
	}
	return api.ToolCalled{}, api.ErrUnknownTool
}

// Accept implements apiserver.Tools.
func (c *catalogue) Accept(ctx context.Context, server string) error {
	if c.servers == nil { // a reload removed the last one
		return api.ErrUnknownToolServer
	}
	return c.servers.Accept(ctx, server)
}
