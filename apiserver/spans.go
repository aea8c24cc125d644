package apiserver

import (
	"slices"

	"mneme/master"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	"mneme/subagent/rag"
)

// spans makes the spans of one run of its events: one of the master, below it one of each delegation, and below these
// their calls of tools. Calls of models are the gateway's, and stand below the agent that they were made for. For one
// goroutine at a time, as events are published; nil makes none.
type spans struct {
	tracer *tracing.Tracer
	trail  telemetry.Trail // of the master's
	user   string
	agents map[string]*agentSpan // that work, by the call of the delegation; "" is the master
	failed string                // code of the run's error
}

// agentSpan is an agent at work.
type agentSpan struct {
	*tracing.Span
	trail telemetry.Trail
	tools []*toolSpan
}

// toolSpan is a call of a tool that has not ended. Its span is nil before it has begun.
type toolSpan struct {
	call   memory.ToolCall // of the master's, which no event names, with the tool's name alone
	span   *tracing.Span
	failed string
}

// newSpans begins the span of a run here, and gives the trail of what it does.
func newSpans(tracer *tracing.Tracer, trail telemetry.Trail, r master.Request) (*spans, telemetry.Trail) {
	if tracer == nil {
		return nil, trail
	}
	s := &spans{tracer: tracer, user: r.User, agents: map[string]*agentSpan{}}
	span, trail := tracer.Start(trail, tracing.Begin{Of: tracing.Agent, About: master.Version, User: r.User})
	if r.Resume == nil {
		span.Asked(r.Message)
	}
	s.trail, s.agents[""] = trail, &agentSpan{Span: span, trail: trail}
	return s, trail
}

// of is the agent of an event. One that goes on after the run waited begins a span with its first event.
func (s *spans) of(e event.Event) *agentSpan {
	a := s.agents[e.CallID]
	if a == nil {
		a = new(agentSpan)
		a.Span, a.trail = s.tracer.Start(s.trail, tracing.Begin{Of: tracing.Agent, About: string(e.Subagent), User: s.user,
			Call: e.CallID})
		s.agents[e.CallID] = a
	}
	return a
}

// see makes of an event what there is to make.
func (s *spans) see(e event.Event) {
	if s == nil {
		return
	}
	switch p := e.Payload.(type) {
	case *event.Delegation:
		s.of(e).Asked(p.Task)
	case *event.AssistantWithTools:
		a := s.of(e)
		for _, c := range p.ToolCalls {
			a.tools = append(a.tools, &toolSpan{call: c})
		}
	case *event.ToolProgress:
		s.progress(s.of(e), p.Tool, p.Status)
	case *event.MasterTool:
		a := s.of(e)
		at := a.tool(p.Tool, true)
		if p.Status == "running" && at == nil {
			a.tools = append(a.tools, &toolSpan{call: memory.ToolCall{Function: memory.FunctionCall{Name: p.Tool,
				Arguments: p.Detail}}})
		}
		s.progress(a, p.Tool, p.Status)
		if p.Status != "running" && at != nil {
			a.over(at, "")
		}
	case *event.ToolResult:
		a := s.of(e)
		at := slices.IndexFunc(a.tools, func(t *toolSpan) bool { return t.call.ID == p.ToolCallID })
		if at >= 0 {
			a.over(a.tools[at], p.Content)
		}
	case *event.Completion:
		a := s.of(e)
		a.Said(p.Response)
		a.end(p.Status, p.Failure)
		delete(s.agents, e.CallID)
	case *event.Assistant:
		s.agents[""].Said(p.Content)
	case *event.Error:
		if e.Subagent == "" {
			s.failed = p.Code
		}
	}
}

// tool is the first call of a tool that has begun, or not; nil for none.
func (a *agentSpan) tool(name string, begun bool) *toolSpan {
	for _, t := range a.tools {
		if t.call.Function.Name == name && (t.span != nil) == begun {
			return t
		}
	}
	return nil
}

// progress begins a call's span, and notes that it has failed. Events of progress name no call: those of one tool begin
// and end in their order.
func (s *spans) progress(a *agentSpan, name, status string) {
	switch t := a.tool(name, false); {
	case status == "running" && t != nil:
		of, about := tracing.Tool, name
		if name == rag.SearchTool {
			of, about = tracing.Retrieval, tracing.Documents
		}
		t.span, _ = s.tracer.Start(a.trail, tracing.Begin{Of: of, About: about})
		if t.call.ID != "" {
			t.span.Set(tracing.ToolCall.String(t.call.ID))
		}
		t.span.Arguments(t.call.Function.Arguments)
	case status == "failed":
		if t := a.tool(name, true); t != nil {
			t.failed = tracing.ToolFailed
		}
	}
}

// over ends a call.
func (a *agentSpan) over(t *toolSpan, result string) {
	t.span.Result(result)
	t.span.End(t.failed)
	a.tools = slices.DeleteFunc(a.tools, func(other *toolSpan) bool { return other == t })
}

// end ends an agent's span, and those of calls that have not ended themselves.
func (a *agentSpan) end(outcome, failure string) {
	for _, t := range a.tools {
		if t.span != nil {
			t.span.Set(tracing.Outcome.String(outcome))
		}
		t.span.End(t.failed)
	}
	a.Set(tracing.Outcome.String(outcome))
	a.End(failure)
}

// end ends what is left when the run has ended here.
func (s *spans) end(outcome string) {
	if s == nil {
		return
	}
	for call, a := range s.agents {
		failed := ""
		if call == "" {
			failed = s.failed
		}
		a.end(outcome, failed)
	}
}
