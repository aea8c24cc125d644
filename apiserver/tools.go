package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory/telemetry"
)

// Tools are what the agents have. Errors are sentences, or a *api.Problem.
type Tools interface {
	List(ctx context.Context) api.ToolList
	// Call is one by hand: not claimed, and no person is asked.
	Call(ctx context.Context, call api.ToolCall) (api.ToolCalled, error)
	// Accept has what a server offers now used from now on.
	Accept(ctx context.Context, server string) error
}

// maxToolBody bounds the body of a call by hand, in bytes.
const maxToolBody = 1 << 20

func (s *Server) toolRoutes(e *telemetry.Edge) {
	e.GET("/v1/tools", e.Answered(s.getTools))
	e.POST("/v1/tools/call", e.Answered(s.callTool))
	e.POST("/v1/tools/accept", e.Answered(s.acceptTools))
}

// listTools is what there is now; empty lists for nothing.
func (s *Server) listTools(ctx context.Context) api.ToolList {
	var list api.ToolList
	if s.cfg.Tools != nil {
		list = s.cfg.Tools().List(ctx)
	}
	list.Tools, list.Servers = append([]api.ToolInfo{}, list.Tools...), append([]api.ToolServer{}, list.Servers...)
	return list
}

func (s *Server) getTools(c *gin.Context) error {
	return api.Answer(c.Writer, http.StatusOK, s.listTools(c.Request.Context()), nil)
}

func (s *Server) callTool(c *gin.Context) error {
	var call api.ToolCall
	if err := api.DecodeBody(c.Writer, c.Request, maxToolBody, &call); err != nil {
		return err
	}
	if call.Agent == master.Version {
		call.Agent = ""
	}
	if !s.hasAgent(cmp.Or(string(call.Agent), master.Version)) {
		return &api.Problem{Status: http.StatusNotFound, Code: "unknown_agent",
			Message: fmt.Sprintf("There is no agent %.80q; agent is %q or the name of a subagent.", call.Agent, master.Version)}
	}
	if call.Tool == "" {
		return api.BadRequest(errors.New("tool is missing: the name of a tool of the agent, see GET /v1/tools"))
	}
	if len(call.Arguments) == 0 {
		call.Arguments = json.RawMessage(`{}`)
	}
	if arguments := bytes.TrimSpace(call.Arguments); arguments[0] != '{' {
		return api.BadRequest(errors.New("arguments must be a JSON object"))
	}
	if s.cfg.Tools == nil {
		return api.ErrUnknownTool
	}
	called, err := s.cfg.Tools().Call(c.Request.Context(), call)
	if err != nil {
		return asProblem(err)
	}
	return api.Answer(c.Writer, http.StatusOK, called, nil)
}

func (s *Server) acceptTools(c *gin.Context) error {
	var body api.ToolAccept
	if err := api.DecodeBody(c.Writer, c.Request, maxToolBody, &body); err != nil {
		return err
	}
	if _, ok := s.toolServer(c.Request.Context(), body.Server); !ok {
		return api.ErrUnknownToolServer
	}
	if err := s.cfg.Tools().Accept(c.Request.Context(), body.Server); err != nil {
		return asProblem(err)
	}
	now, _ := s.toolServer(c.Request.Context(), body.Server)
	return api.Answer(c.Writer, http.StatusOK, now, nil)
}

func (s *Server) toolServer(ctx context.Context, name string) (api.ToolServer, bool) {
	for _, server := range s.listTools(ctx).Servers {
		if server.Server == name {
			return server, true
		}
	}
	return api.ToolServer{}, false
}

// asProblem is an error of Tools for a client.
func asProblem(err error) error {
	if p := (*api.Problem)(nil); errors.As(err, &p) {
		return p
	}
	p := *api.ErrToolFailed
	p.Message = err.Error()
	return &p
}

// toolServerAway is one that GET /readyz tells of.
type toolServerAway struct {
	Server string `json:"server"`
	Reason string `json:"reason"`
}

// toolServersAway are those that cannot be reached now. Runs go on without their tools.
func (s *Server) toolServersAway(ctx context.Context) (unavailable []toolServerAway) {
	for _, server := range s.listTools(ctx).Servers {
		if server.State == "away" {
			unavailable = append(unavailable, toolServerAway{server.Server, server.Reason})
		}
	}
	return unavailable
}

// toolMetrics are what an operator watches of servers of tools.
func (s *Server) toolMetrics() {
	s.svc.Gauge("mneme_tool_servers_away", "Servers of tools that cannot be reached now.",
		func() float64 { return float64(len(s.toolServersAway(s.life))) })
	s.svc.Gauge("mneme_tools_changed", "Tools that are not what was accepted, and are not used.", func() float64 {
		changed := 0
		for _, server := range s.listTools(s.life).Servers {
			changed += len(server.Changed)
		}
		return float64(changed)
	})
}
