package api

import (
	"cmp"
	"encoding/json"
	"slices"

	"mneme/memory"
	"mneme/memory/event"
)

// ViewRun is what a run's events say of it, in their order; nil for none.
func ViewRun(events []event.Event) *RunView {
	if len(events) == 0 {
		return nil
	}
	v := &RunView{
		RunID: events[0].RunID, Started: events[0].TS, Delegations: []DelegationView{}, Tools: []ToolView{},
		Recalled: []event.RecalledMessage{}, Citations: []event.Citation{},
	}
	for _, e := range events {
		v.Apply(e)
	}
	return v
}

// Apply adds the run's next event. It needs no more than what the view shows, so that a program that draws a run
// while it streams can do the same.
func (v *RunView) Apply(e event.Event) {
	if _, newer := e.Payload.(*event.Unknown); newer {
		return
	}
	if e.Subagent != "" {
		v.applyTo(v.delegation(e.Head), e.Payload)
		return
	}
	switch p := e.Payload.(type) {
	case *event.RunStarted:
		v.RetryOf = p.RetryOf
	case *event.Recalled:
		v.Recalled = append(v.Recalled, p.Messages...)
	case *event.MasterTool:
		v.Tools = progress(v.Tools, p.Tool, p.Status, p.Detail)
	case *event.Assistant:
		v.Citations, v.Record = append([]event.Citation{}, p.Citations...), p.Run
	case *event.RunWaiting:
		v.Outcome, v.Pending = OutcomeWaiting, p.Pending
	case *event.RunResumed:
		v.Outcome, v.Pending = "", nil
	case *event.Error:
		v.Error = p
		if p.Run != nil {
			v.Record = p.Run
		}
	case *event.RunFinished:
		v.Outcome, v.Pending, v.Usage, v.Finished = p.Outcome, nil, p.Usage, e.TS
		settle(v.Tools, running, failed)
	}
}

// delegation is the newest one to a subagent under a call's id: a model may give an id once more. One that is not
// there yet, since its subagent was shown something first, or since the run was closed without it, is added.
func (v *RunView) delegation(head event.Head) *DelegationView {
	for i := len(v.Delegations) - 1; i >= 0; i-- {
		if d := &v.Delegations[i]; d.Subagent == head.Subagent && d.CallID == head.CallID {
			return d
		}
	}
	return v.begin(head.Subagent, head.CallID)
}

func (v *RunView) begin(subagent memory.Agent, call string) *DelegationView {
	v.Delegations = append(v.Delegations, DelegationView{
		Subagent: subagent, CallID: call, Tools: []ToolView{}, Recalled: []event.RecalledMessage{},
	})
	return &v.Delegations[len(v.Delegations)-1]
}

func (v *RunView) applyTo(d *DelegationView, p event.Payload) {
	switch p := p.(type) {
	case *event.Delegation:
		if d.Status != "" { // it has its completion: this is another one
			d = v.begin(d.Subagent, d.CallID)
		}
		d.Task = p.Task
	case *event.Recalled:
		d.Recalled = append(d.Recalled, p.Messages...)
	case *event.SubagentDelta:
		d.Content += p.Text
	case *event.AssistantWithTools:
		d.Content = "" // what was said until here stood before these calls
		for _, c := range p.ToolCalls {
			d.Tools = append(d.Tools, ToolView{ID: c.ID, Name: c.Function.Name, Arguments: arguments(c.Function.Arguments)})
		}
	case *event.ToolProgress:
		d.Tools = progress(d.Tools, p.Tool, p.Status, p.Detail)
	case *event.ToolResult:
		d.Tools = returned(d.Tools, p)
	case *event.Error:
		d.Error = p
	case *event.Completion:
		d.Content, d.Status, d.Answer = p.Response, p.Status, p.Answer
		settle(d.Tools, running, failed) // whose end nobody saw
		settle(d.Tools, "", failed)
	}
}

// settle gives the tools of one status another one.
func settle(tools []ToolView, oldStatus, newStatus string) {
	for i := range tools {
		if tools[i].Status == oldStatus {
			tools[i].Status = newStatus
		}
	}
}

// What event.ToolProgress says of a tool.
const (
	running = "running"
	done    = "done"
	failed  = "failed"
)

// progress notes how a tool works, of which events say the name alone. It runs with its arguments as the detail first,
// and with words of its own after that.
func progress(tools []ToolView, name, status, detail string) []ToolView {
	args := arguments(detail)
	find := func(is func(ToolView) bool) *ToolView {
		for i := range tools {
			if tools[i].Name == name && is(tools[i]) {
				return &tools[i]
			}
		}
		return nil
	}
	runs := find(func(t ToolView) bool { return t.Status == running })
	if status != running {
		if runs == nil {
			runs = find(func(t ToolView) bool { return t.Status == "" })
		}
		if runs == nil {
			tools = append(tools, ToolView{Name: name})
			runs = &tools[len(tools)-1]
		}
		runs.Status, runs.Result = status, detail
		return tools
	}
	next := find(func(t ToolView) bool { return t.Status == "" && string(t.Arguments) == string(args) })
	if next == nil && runs == nil {
		next = find(func(t ToolView) bool { return t.Status == "" })
	}
	if next != nil {
		next.Status = running
		return tools
	}
	if runs != nil && (len(args) == 0 || args[0] != '{') {
		return tools
	}
	return append(tools, ToolView{Name: name, Arguments: args, Status: running})
}

// returned notes the result of a call. That it ended stands in the event before, which does not say which of the
// calls of the tool did.
func returned(tools []ToolView, p *event.ToolResult) []ToolView {
	target, finished := -1, -1
	for i, t := range tools {
		if t.ID == p.ToolCallID { // the newest of them: a model may give an id once more
			target = i
		}
		if t.Name == p.Name && (t.Status == done && t.Result == "" || t.Status == failed && t.Result == p.Content) {
			finished = i
		}
	}
	if target < 0 {
		return append(tools, ToolView{ID: p.ToolCallID, Name: p.Name, Result: p.Content, Status: done})
	}
	t := &tools[target]
	if complete := t.Status == done || t.Status == failed; !complete && finished >= 0 {
		e := &tools[finished]
		t.Status, e.Status, e.Result = e.Status, t.Status, ""
	} else if !complete {
		t.Status = failed // it was not made
	}
	t.Result = p.Content
	return tools
}

// arguments are those of a call as JSON.
func arguments(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a string
	return quoted
}

// Remembered is a message of a run in a history of its chat.
type Remembered struct {
	Seq      int64        // of its event
	Subagent memory.Agent // whose history it is in; empty for the chat's own
	memory.Message
}

// Retell gives the events that the histories of a chat tell of a run without its events, which have expired: its
// delegations with their tools, its answer and its record, and the times of those. What was recalled, isolated
// delegations and tools of the master are in no history. None for no messages, which may be in any order.
func Retell(run string, messages []Remembered) (events []event.Event) {
	if len(messages) == 0 {
		return nil
	}
	slices.SortStableFunc(messages, func(a, b Remembered) int { return cmp.Compare(a.Seq, b.Seq) })
	end := &event.RunFinished{Outcome: event.Completed}
	head := event.Head{RunID: run}
	for _, m := range messages {
		head.Seq, head.TS, head.Subagent = m.Seq, m.Timestamp, m.Subagent
		for _, p := range m.retell(end) {
			events = append(events, event.New(head, p))
		}
	}
	head.Subagent = ""
	return append(events, event.New(head, end))
}

// retell returns the events that made a message, and sets the outcome and the usage of end.
func (m *Remembered) retell(end *event.RunFinished) []event.Payload {
	own := m.Subagent == ""
	switch {
	case m.Role == memory.RoleUser && own:
		return []event.Payload{&event.RunStarted{Message: m.Content, Metadata: m.Metadata, Images: m.Images}}
	case m.Role == memory.RoleUser:
		return []event.Payload{&event.Delegation{Task: m.Content, Calls: event.Serial}}
	case m.Role == memory.RoleTool:
		return []event.Payload{&event.ToolProgress{Tool: m.Name, Status: done},
			&event.ToolResult{ToolCallID: m.ToolCallID, Name: m.Name, Content: m.Content}}
	case len(m.ToolCalls) > 0:
		return []event.Payload{&event.AssistantWithTools{Content: m.Content, ToolCalls: m.ToolCalls}}
	case !own:
		if m.Failure == "" {
			return []event.Payload{&event.Completion{Response: m.Content, Status: event.Completed,
				FinishReason: m.FinishReason}}
		}
		return []event.Payload{event.Fail(m.Failure, "", 0),
			&event.Completion{Response: m.Content, Status: event.Failed, Failure: m.Failure}}
	}
	answer := &event.Assistant{Content: m.Content, Partial: m.Partial, Failure: m.Failure, FinishReason: m.FinishReason}
	end.FinishReason = m.FinishReason
	_ = json.Unmarshal(m.Citations, &answer.Citations) // of another writer's none are read, nor is a record
	if json.Unmarshal(m.Run, &answer.Run) == nil && answer.Run != nil {
		end.Usage = answer.Run.Usage
	}
	switch {
	case m.Failure == memory.Stopped:
		end.Outcome = event.Stopped
		return nil
	case m.Failure != "":
		end.Outcome = event.Failed
		failed := event.Fail(m.Failure, "", 0)
		failed.Run = answer.Run
		if !m.Partial {
			return []event.Payload{failed}
		}
		return []event.Payload{answer, failed}
	case m.Partial:
		end.Outcome = event.Stopped
	}
	return []event.Payload{answer}
}
