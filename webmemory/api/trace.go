package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mneme/memory/event"
)

// TraceRun is a run as a list of its steps, made from its events in their order; nil for none. Calls of models
// are among them once the run has finished, since its last event has them.
func TraceRun(events []event.Event) *Trace {
	view := ViewRun(events[:min(1, len(events))])
	if view == nil {
		return nil
	}
	t := &tracer{view: view, agent: Master, pending: map[string]int{}}
	for i, e := range events {
		if i > 0 {
			view.Apply(e)
		}
		t.take(e)
	}
	return t.trace()
}

// tracer makes steps while a view is made of the same events: what a step says is the view's, its times are those
// of the events.
type tracer struct {
	view  *RunView
	now   int64 // number of the event that is taken
	steps []step
	calls []event.ModelCall

	agent       string         // who answers
	answerTS    float64        // when the answer began; 0 while there is none of it
	answerSeq   int64          // with which event it did
	pending     map[string]int // steps of those that nobody has answered, by their ids
	own         []int          // steps of view.Tools
	delegations []traced       // view.Delegations
}

// step is a step with the number of the event that began it.
type step struct {
	TraceStep
	event int64
}

// traced is a delegation of the view.
type traced struct {
	step  int
	tools []int // steps of its tools
}

// add begins a step and gives its index.
func (t *tracer) add(kind, agent, call string, ts float64) int {
	t.steps = append(t.steps, step{TraceStep{Kind: kind, Agent: agent, CallID: call, Started: ts}, t.now})
	return len(t.steps) - 1
}

// note adds a step that has no length.
func (t *tracer) note(kind, agent, call string, ts float64, status, text, detail string) {
	s := &t.steps[t.add(kind, agent, call, ts)]
	s.Finished, s.Status = ts, status
	s.say(text, detail)
}

// say sets what a step says: the first line of a text, and below it all of it, if that is more, and what else
// there is.
func (s *TraceStep) say(text string, details ...string) {
	s.Title = firstLine(text)
	if text = strings.TrimSpace(text); text != s.Title {
		details = append([]string{text}, details...)
	}
	s.Detail = strings.Join(slices.DeleteFunc(details, func(p string) bool { return p == "" }), "\n\n")
}

const maxStepTitle = 160 // characters

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > maxStepTitle {
		line = string(runes[:maxStepTitle-1]) + "…"
	}
	return strings.TrimSpace(line)
}

// take notes an event that the view has already.
func (t *tracer) take(e event.Event) {
	t.now = e.Seq
	for i := len(t.delegations); i < len(t.view.Delegations); i++ {
		d := t.view.Delegations[i]
		t.delegations = append(t.delegations, traced{step: t.add(StepDelegation, string(d.Subagent), d.CallID, e.TS)})
	}
	agent := cmp.Or(string(e.Subagent), t.agent)
	switch p := e.Payload.(type) {
	case *event.SubagentDelta, *event.Unknown:
		return
	case *event.AssistantDelta:
		if t.answerTS == 0 {
			t.answerTS, t.answerSeq = e.TS, e.Seq
		}
		return
	case *event.RunStarted:
		t.agent = cmp.Or(p.AgentVersion, t.agent)
		t.note(StepMessage, "", "", e.TS, "", p.Message, "")
	case *event.Delegation, *event.MasterTool: // what the master said until here was no answer yet
		t.answerTS = 0
	case *event.MemoryReset:
		t.note(StepError, agent, e.CallID, e.TS, p.Role(), "The memory lost data since the chat's run before.", "")
	case *event.Recalled:
		t.recalled(e, p)
	case *event.Assistant:
		t.answer(e, p)
	case *event.Error:
		t.note(StepError, agent, e.CallID, e.TS, p.Code, p.Message, "")
	case *event.RunWaiting:
		t.wait(e.TS, p.Pending)
	case *event.RunResumed:
		for _, a := range p.Answers {
			t.answered(e.TS, a)
		}
	case *event.RunFinished:
		t.calls = p.Calls
		for id := range t.pending {
			t.answered(e.TS, event.WaitAnswer{ID: id, Decision: unanswered})
		}
	}
	t.follow(e)
}

func (t *tracer) recalled(e event.Event, p *event.Recalled) {
	status, lines := p.Failed, make([]string, len(p.Messages))
	if status == "" && p.Partial {
		status = event.Partial
	}
	for i, m := range p.Messages {
		lines[i] = fmt.Sprintf("%s (%.3g)", m.ID, m.Score)
	}
	t.note(StepRecalled, cmp.Or(string(e.Subagent), Master), e.CallID, e.TS, status, p.String(), strings.Join(lines, "\n"))
}

func (t *tracer) answer(e event.Event, p *event.Assistant) {
	status := event.Completed
	if p.Partial {
		status = cmp.Or(p.Failure, event.Stopped)
	}
	t.note(StepAnswer, t.agent, "", cmp.Or(t.answerTS, e.TS), status, p.Content, "")
	s := &t.steps[len(t.steps)-1]
	if s.Finished = e.TS; t.answerTS != 0 {
		s.event, t.answerTS = t.answerSeq, 0
	}
}

func (t *tracer) wait(ts float64, pending []event.Wait) {
	for _, w := range pending {
		i := t.add(StepWait, cmp.Or(string(w.Subagent), Master), w.CallID, ts)
		t.steps[i].say(cmp.Or(w.Tool, w.Kind), w.Reason, plain(w.Arguments))
		t.steps[i].Status = OutcomeWaiting
		t.pending[w.ID] = i
	}
}

// unanswered is the status of a wait that ended with its run.
const unanswered = "unanswered"

// answered ends a wait.
func (t *tracer) answered(ts float64, a event.WaitAnswer) {
	i, ok := t.pending[a.ID]
	if !ok {
		return
	}
	delete(t.pending, a.ID)
	s := &t.steps[i]
	s.Finished, s.Status = ts, a.Decision
	if a.Reason != "" {
		s.Detail += "\n\n" + a.Reason
	}
}

// follow notes when tools and delegations begin and end.
func (t *tracer) follow(e event.Event) {
	t.own = t.tools(t.own, t.view.Tools, Master, "", e.TS)
	for i := range t.delegations {
		d, tr := &t.view.Delegations[i], &t.delegations[i]
		if d.Subagent != e.Subagent || d.CallID != e.CallID {
			continue
		}
		tr.tools = t.tools(tr.tools, d.Tools, string(d.Subagent), d.CallID, e.TS)
		if s := &t.steps[tr.step]; d.Status != "" && s.Finished == 0 {
			s.Finished = e.TS
		}
	}
}

// tools gives the steps of tools, as they are at a time.
func (t *tracer) tools(steps []int, tools []ToolView, agent, call string, ts float64) []int {
	for i, tool := range tools {
		if i == len(steps) {
			steps = append(steps, t.add(StepTool, agent, call, ts))
		}
		s := &t.steps[steps[i]]
		complete := tool.Status == done || tool.Status == failed
		switch {
		case !complete:
			s.Finished = 0 // another call of the tool had ended
		case s.Finished == 0:
			s.Finished = ts
		}
		if s.Status == "" && tool.Status == running {
			s.Started, s.event = ts, t.now
		}
		s.Status = tool.Status
	}
	return steps
}

// trace is the list of all steps.
func (t *tracer) trace() *Trace {
	say := func(steps []int, tools []ToolView) {
		for i, tool := range tools {
			s := &t.steps[steps[i]]
			s.say(tool.Name, plain(tool.Arguments), tool.Result)
		}
	}
	say(t.own, t.view.Tools)
	for i, d := range t.view.Delegations {
		s := &t.steps[t.delegations[i].step]
		s.say(d.Task, d.Content)
		s.Status = d.Status
		say(t.delegations[i].tools, d.Tools)
	}
	return &Trace{
		RunID: t.view.RunID, Outcome: t.view.Outcome, Started: t.view.Started, Finished: t.view.Finished, Usage: t.view.Usage,
		Steps: t.ordered(), Record: t.view.Record,
	}
}

// plain is JSON as it is, but a string without its quotes, and null as nothing.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// caller is an agent at work on one task: the master, or a delegation.
type caller struct{ agent, call string }

// caller is the agent that did what a step tells of.
func (s *TraceStep) caller() caller {
	if s.Kind == StepDelegation {
		return caller{agent: Master}
	}
	return caller{s.Agent, s.CallID}
}

// does says whether a step is what its caller does, so that a call of a model has asked for it.
func (s *TraceStep) does() bool {
	return s.Kind == StepTool || s.Kind == StepDelegation || s.Kind == StepWait || s.Kind == StepAnswer
}

// callStep is a call of a model.
func callStep(c *event.ModelCall) TraceStep {
	message := ""
	if c.Error != "" && c.Error != "canceled" {
		message = event.FailureOf(c.Error).Message
	}
	return TraceStep{
		Kind: StepModelCall, Detail: message, Agent: cmp.Or(string(c.Subagent), Master), CallID: c.CallID, Started: c.Started,
		Finished: c.Started + c.Seconds, Title: cmp.Or(c.Model, "model"), Status: cmp.Or(c.Error, event.Completed), Call: c,
	}
}

// ordered are the steps and the calls of models, each behind what it came of. The steps are in the order of their
// events, and the calls in that of their beginnings. Between the two there are times alone, which may be equal, so a
// time decides only where it is not known which of them asked for the other.
func (t *tracer) ordered() []TraceStep {
	slices.SortStableFunc(t.steps, func(a, b step) int { return cmp.Compare(a.event, b.event) })
	out, calls := []TraceStep{}, []TraceStep{}
	remaining, ahead := map[caller]int{}, map[caller]int{} // calls, and delegations, that are not among all yet
	called, owes := map[caller]bool{}, map[caller]bool{}   // owes: nothing has come of the caller's last call yet
	for i := range t.calls {
		calls = append(calls, callStep(&t.calls[i]))
		remaining[calls[i].caller()]++
	}
	for _, s := range t.steps {
		if s.Kind == StepDelegation {
			ahead[caller{s.Agent, s.CallID}]++
		}
	}
	isBefore := func(c, s TraceStep) bool {
		callOwner, stepOwner := c.caller(), s.caller()
		switch {
		case s.Kind == StepMessage, ahead[callOwner] > 0 && !called[callOwner]:
			return false
		case callOwner.call == "" && stepOwner.call != "": // the master waits for its delegations
			return false
		case s.does() && remaining[stepOwner] > 0 && (!called[stepOwner] || s.Kind == StepAnswer):
			return true
		case c.Started == s.Started:
			return s.Kind != StepRecalled && !(s.does() && stepOwner == callOwner && owes[callOwner])
		}
		return c.Started < s.Started
	}
	for _, s := range t.steps {
		for len(calls) > 0 && isBefore(calls[0], s.TraceStep) {
			owner := calls[0].caller()
			remaining[owner]--
			called[owner], owes[owner] = true, calls[0].Call.Error == ""
			out, calls = append(out, calls[0]), calls[1:]
		}
		if s.Kind == StepDelegation {
			ahead[caller{s.Agent, s.CallID}]--
		}
		owes[s.caller()] = owes[s.caller()] && !s.does()
		out = append(out, s.TraceStep)
	}
	return append(out, calls...)
}
