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
	trail  telemetry.Trail
	tools  []*toolSpan // that have not ended
	failed string      // of the call whose result comes next; "" for none
}

// toolSpan is a call of a tool. Its span is nil before it has begun.
type toolSpan struct {
	call memory.ToolCall // of the master's, which no event names, without its id
	span *tracing.Span
}

// failures are the errors of calls, by the status of their last progress.
var failures = map[string]string{"failed": tracing.ToolFailed}

// newSpans begins the span of a run here, and gives the trail of what it does.
func newSpans(tracer *tracing.Tracer, trail telemetry.Trail, r master.Request) (*spans, telemetry.Trail) {
	if tracer == nil {
		return nil, trail
	}
	s := &spans{tracer: tracer, trail: trail, user: r.User, agents: map[string]*agentSpan{}}
	own := s.agent(event.Event{Head: event.Head{Subagent: master.Version}})
	own.SetInput(r.Message)
	s.trail = own.trail
	return s, own.trail
}

// agent is the agent of an event. One that goes on after the run waited begins a span with its first event.
func (s *spans) agent(e event.Event) *agentSpan {
	a := s.agents[e.CallID]
	if a == nil {
		a = new(agentSpan)
		a.Span, a.trail = s.tracer.Start(s.trail, tracing.Begin{Operation: tracing.Agent, Subject: string(e.Subagent),
			User: s.user, Call: e.CallID})
		s.agents[e.CallID] = a
	}
	return a
}

// see makes of an event what there is to make. Events of progress name no call: those of one tool begin in their order.
func (s *spans) see(e event.Event) {
	if s == nil {
		return
	}
	switch p := e.Payload.(type) {
	case *event.Delegation:
		s.agent(e).SetInput(p.Task)
	case *event.AssistantWithTools:
		a := s.agent(e)
		for _, c := range p.ToolCalls {
			a.tools = append(a.tools, &toolSpan{call: c})
		}
	case *event.ToolProgress:
		if a := s.agent(e); p.Status == "running" {
			s.begin(a, func(t *toolSpan) bool { return t.call.Function.Name == p.Tool && t.span == nil })
		} else {
			a.failed = failures[p.Status]
		}
	case *event.ToolResult:
		a := s.agent(e)
		a.endTool(func(t *toolSpan) bool { return t.call.ID == p.ToolCallID }, p.Content)
	case *event.MasterTool:
		a := s.agent(e)
		same := func(t *toolSpan) bool { return t.call.Function.Name == p.Tool }
		switch open := slices.ContainsFunc(a.tools, same); {
		case p.Status != "running":
			a.failed = failures[p.Status]
			a.endTool(same, p.Detail)
		case !open:
			a.tools = append(a.tools, &toolSpan{call: memory.ToolCall{
				Function: memory.FunctionCall{Name: p.Tool, Arguments: p.Detail}}})
			s.begin(a, same)
		}
	case *event.Completion:
		a := s.agent(e)
		a.SetOutput(p.Response)
		a.end(p.Status, p.Failure)
		delete(s.agents, e.CallID)
	case *event.Assistant:
		s.agents[""].SetOutput(p.Content)
	case *event.Error:
		if e.Subagent == "" {
			s.failed = p.Code
		}
	}
}

// begin begins the span of an agent's first such call.
func (s *spans) begin(a *agentSpan, match func(*toolSpan) bool) {
	i := slices.IndexFunc(a.tools, match)
	if i < 0 {
		return
	}
	call := a.tools[i].call
	op, subject := tracing.Tool, call.Function.Name
	if subject == rag.SearchTool {
		op, subject = tracing.Retrieval, tracing.Documents
	}
	span, _ := s.tracer.Start(a.trail, tracing.Begin{Operation: op, Subject: subject})
	if call.ID != "" {
		span.Set(tracing.ToolCall.String(call.ID))
	}
	span.Arguments(call.Function.Arguments)
	a.tools[i].span = span
}

// endTool ends an agent's first such call.
func (a *agentSpan) endTool(match func(*toolSpan) bool, result string) {
	if i := slices.IndexFunc(a.tools, match); i >= 0 {
		a.tools[i].span.Result(result)
		a.tools[i].span.End(a.failed)
		a.tools = slices.Delete(a.tools, i, i+1)
	}
}

// end ends an agent's span, and those of its calls that have none.
func (a *agentSpan) end(outcome, failure string) {
	for _, t := range a.tools {
		t.span.End(failure)
	}
	a.Set(tracing.Outcome.String(outcome))
	a.End(failure)
}

// end ends what is left when the run has ended here.
func (s *spans) end(outcome string) {
	if s != nil {
		for _, a := range s.agents {
			a.end(outcome, s.failed)
		}
	}
}
