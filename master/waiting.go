package master

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
	"mneme/subagent/loop"
)

// MaxState bounds what a run that waits goes on from, in bytes.
const MaxState = 4 << 20

// stateVersion is that of the states that this version writes, and the only one that it reads.
const stateVersion = 1

// Resume is what a run that waited goes on from.
type Resume struct {
	Events  []event.Event   // from the first to the event.RunWaiting
	State   json.RawMessage // of that
	Answers []event.WaitAnswer
	Turn    int64 // the fencing token of the caller
}

// state is how far a run came. The histories' copies are not in it: the events make them.
type state struct {
	Version    int             `json:"version"`
	Request    json.RawMessage `json:"request,omitempty"` // see Request.Posted
	PendingIDs []string        `json:"waits"`             // ids
	Direct     memory.Agent    `json:"direct,omitempty"`  // the agent that the user talks to; empty for the master
	// Agent is the state of the master's loop, or that of the delegation to Direct.
	Agent   json.RawMessage                  `json:"agent"`
	Calls   int64                            `json:"calls"`             // delegations so far
	Spent   event.Usage                      `json:"spent"`             // of what has ended
	Waiting map[string]event.Usage           `json:"waiting,omitempty"` // of delegations that wait, by their call
	Alike   map[string]int                   `json:"alike,omitempty"`   // see counter
	Models  []event.ModelCall                `json:"models,omitempty"`  // calls of models so far
	Kits    map[memory.Agent]json.RawMessage `json:"kits,omitempty"`
	Shared  json.RawMessage                  `json:"shared,omitempty"`  // see Agent.Save
	Sources json.RawMessage                  `json:"sources,omitempty"` // see provenance.Ledger
}

// delegation is one that waits, and goes on under the same call.
type delegation struct {
	Agent memory.Agent    `json:"agent"`
	Call  string          `json:"call"`
	Task  string          `json:"task"`
	State json.RawMessage `json:"state"` // of the subagent
}

// Failures of runs that wait.
var (
	errStateTooLarge = subagent.Failure{Code: "state_too_large",
		Message: "What the run would go on from after the wait is too large to be kept, so it cannot wait."}
	errState = subagent.Failure{Code: "state_unreadable",
		Message: "The run waited under another version of this service, and this one cannot go on with it."}
)

// readState reads the state of a run that waited, and checks that all it waited for is answered.
func readState(raw json.RawMessage, answers []event.WaitAnswer) (*state, loop.Answers, error) {
	s, byID := &state{}, loop.Answers{}
	if err := json.Unmarshal(raw, s); err != nil || s.Version != stateVersion {
		return nil, nil, errState
	}
	for _, a := range answers {
		byID[a.ID] = a
	}
	for _, id := range s.PendingIDs {
		if _, ok := byID[id]; !ok {
			return nil, nil, subagent.Failure{Code: "answers_missing",
				Message: fmt.Sprintf("The run waits for %d answers, and that to %q is missing.", len(s.PendingIDs), id)}
		}
	}
	return s, byID, nil
}

// Posted is the Request.Posted in the state of a run that waited, if a run can go on from it
// with these answers; else the error is a subagent.Failure.
func (r Resume) Posted() (json.RawMessage, error) {
	s, _, err := readState(r.State, r.Answers)
	if err != nil {
		return nil, err
	}
	return s.Request, nil
}

// resume puts the run to where it waited, and tells that it goes on.
func (r *run) resume() error {
	resume := r.req.Resume
	resumed := &event.RunResumed{Answers: make([]event.WaitAnswer, len(resume.Answers))}
	for _, e := range resume.Events {
		if waited, ok := e.Payload.(*event.RunWaiting); ok {
			resumed.Usage = waited.Usage
		}
	}
	for i, a := range resume.Answers {
		resumed.Answers[i] = event.WaitAnswer{ID: a.ID, Decision: a.Decision, Reason: a.Reason}
	}
	if err := r.rec.replay(resume.Events); err != nil {
		return err
	}
	if r.state, r.answers, r.unusable = readState(resume.State, resume.Answers); r.unusable == nil {
		r.unusable = r.restore()
	}
	return r.rec.emit(resumed)
}

// restore takes what the state holds beside the loops.
func (r *run) restore() error {
	r.calls.Store(r.state.Calls)
	r.spent = r.state.Spent
	r.alike.counts = r.state.Alike
	r.models.Restore(r.state.Models)
	maps.Copy(r.waitingUsage, r.state.Waiting)
	if err := r.sources.Restore(r.state.Sources); err != nil {
		return fmt.Errorf("%w (%w)", errState, err)
	}
	if restore := r.agent.Restore; restore != nil && r.state.Shared != nil {
		if err := restore(r.state.Shared); err != nil {
			return fmt.Errorf("%w (%w)", errState, err)
		}
	}
	for name, saved := range r.state.Kits {
		if restore := r.kits[name].Restore; restore != nil {
			if err := restore(saved); err != nil {
				return fmt.Errorf("%w (%s: %w)", errState, name, err)
			}
		}
	}
	return nil
}

// suspend tells that the run waits. An error is why it cannot, and ends it.
func (r *run) suspend(suspended *loop.Suspended) error {
	raw, err := r.save(suspended)
	switch {
	case err != nil:
		return err
	case len(raw) > MaxState:
		return errStateTooLarge
	}
	used := r.spent.Add(r.used)
	for _, usage := range r.waitingUsage {
		used = used.Add(usage)
	}
	return r.rec.emit(&event.RunWaiting{Pending: suspended.Pending, State: raw, Usage: used})
}

func (r *run) save(suspended *loop.Suspended) (json.RawMessage, error) {
	s := state{
		Version: stateVersion, Direct: r.talksTo(), Agent: suspended.State, Calls: r.calls.Load(), Spent: r.spent,
		Waiting: r.waitingUsage, Alike: r.alike.counts, Kits: map[memory.Agent]json.RawMessage{},
		Models: r.models.List(),
	}
	for _, w := range suspended.Pending {
		s.PendingIDs = append(s.PendingIDs, w.ID)
	}
	var err error
	keep := func(save func() (json.RawMessage, error)) (raw json.RawMessage) {
		if save != nil && err == nil {
			raw, err = save()
		}
		return raw
	}
	for name, k := range r.kits {
		if raw := keep(k.Save); raw != nil {
			s.Kits[name] = raw
		}
	}
	s.Shared, s.Request, s.Sources = keep(r.agent.Save), keep(r.req.Posted), keep(r.sources.Save)
	if err != nil {
		return nil, fmt.Errorf("what a run that waits goes on from: %w", err)
	}
	return loop.Encode(s)
}

// talksTo is the subagent that the user talks to; empty for the master.
func (r *run) talksTo() memory.Agent {
	if r.state != nil {
		return r.state.Direct
	}
	if r.req.AgentVersion != Version {
		return memory.Agent(r.req.AgentVersion)
	}
	if agent, _, _ := r.agent.command(r.req.Message); agent != solo {
		return agent
	}
	return ""
}

// goOn goes on with a delegation from its state.
func (r *run) goOn(ctx context.Context, s *subagent.Subagent, raw json.RawMessage) (subagent.Outcome, error) {
	var d delegation
	if err := json.Unmarshal(raw, &d); err != nil {
		return subagent.Outcome{}, fmt.Errorf("the state of a delegation cannot be read: %w", err)
	}
	a, err := s.Resume(r.delegationContext(ctx, d), r.kits[s.Name], r.task(ctx, d), d.State, r.answers,
		r.rec.emitter(s.Name, d.Call))
	return r.returned(ctx, d, a, err)
}

// hold keeps what a delegation that waits has used, and gives what it waits for as the run's.
func (r *run) hold(d delegation, used event.Usage, suspended *loop.Suspended) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitingUsage[d.Call] = used
	d.State = suspended.State
	raw, err := loop.Encode(d)
	if err != nil {
		return err
	}
	pending := make([]event.Wait, len(suspended.Pending))
	for i, w := range suspended.Pending {
		w.Subagent, w.CallID = d.Agent, d.Call
		pending[i] = w
	}
	return &loop.Suspended{Pending: pending, State: raw}
}

// release forgets that a delegation waited.
func (r *run) release(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waitingUsage, call)
}

// giveUp completes the delegations that waited, or were to wait, as the run ends.
func (r *run) giveUp(outcome string, cause *event.Error) error {
	for _, s := range r.rec.unfinished() {
		out := &event.Completion{Response: "(no answer: stopped)", Status: event.Stopped, Usage: r.waitingUsage[s.call]}
		if outcome != event.Stopped {
			code := event.Internal
			if cause != nil {
				code = cause.Code
			}
			out.Response, out.Status, out.Failure = memory.Failed(code).Content, event.Failed, code
		}
		r.spend(out.Usage)
		if err := r.rec.emitter(s.agent, s.call)(out); err != nil {
			return err
		}
	}
	return nil
}
