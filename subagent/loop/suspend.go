package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"mneme/memory"
	"mneme/memory/event"
)

// Suspended is the error of a Tool with a call that waits for an answer from outside, and of
// a Run with such a call. It is no failure: with the answers the same goes on, in this
// process or another one.
type Suspended struct {
	Pending []event.Wait    // at least one
	State   json.RawMessage // to go on from: for the Resume of the Tool or Loop that returned it
}

func (s *Suspended) Error() string { return fmt.Sprintf("%d answers are waited for", len(s.Pending)) }

// Answers are those to the waits of a Suspended, by the wait's id.
type Answers map[string]event.WaitAnswer

// Resumer is a Tool with calls that may be Suspended.
type Resumer interface {
	// Resume goes on with a call, from the State of its Suspended. answers has those to all its
	// waits, and may have more.
	Resume(ctx context.Context, call memory.ToolCall, state json.RawMessage, answers Answers) (string, error)
}

// state is how far a Run came: what a Suspended holds.
type state struct {
	System   string           `json:"system,omitempty"`
	Recalled string           `json:"recalled,omitempty"`
	Images   Images           `json:"images,omitzero"`
	Messages []memory.Message `json:"messages"` // up to Answer, without it
	Step     int              `json:"step"`     // model calls so far
	Answer   memory.Message   `json:"answer"`   // the last one; its calls are under way; no calls for none
	Usage    event.Usage      `json:"usage"`
	Calls    []callState      `json:"calls"` // those of Answer, in their order

	answers Answers // to what waits
}

// callState is how far a call came. Without Ended and Waits it has not begun.
type callState struct {
	Done    bool            `json:"ended,omitempty"` // and was observed
	Content string          `json:"content,omitempty"`
	Failed  bool            `json:"failed,omitempty"`
	Waiting bool            `json:"waits,omitempty"`
	State   json.RawMessage `json:"state,omitempty"` // of its Suspended
}

// Resume is Run for what a Suspended of this loop was: it goes on where that stopped, with the
// system prompt and what was recalled of that time.
func (l Loop) Resume(ctx context.Context, raw json.RawMessage, answers Answers, o Observer) (Result, error) {
	s := &state{answers: answers}
	if err := json.Unmarshal(raw, s); err != nil {
		return Result{}, fmt.Errorf("the state of a loop that waited cannot be read: %w", err)
	}
	if len(s.Calls) == 0 || len(s.Calls) != len(s.Answer.ToolCalls) {
		return Result{}, errors.New("the state of a loop that waited does not fit its calls")
	}
	l.System, l.Recalled, l.Images = s.System, s.Recalled, s.Images
	return l.run(ctx, s, o)
}

// suspended is the error of a Run that waits for calls of its last answer.
func (l Loop) suspended(s *state, r Result, pending []event.Wait) error {
	s.System, s.Recalled, s.Images, s.Usage = l.System, l.Recalled, l.Images.withoutData(), r.Usage
	raw, err := Encode(s)
	if err != nil {
		return fmt.Errorf("the state of a loop that waits: %w", err)
	}
	return &Suspended{pending, raw}
}

// Encode makes a State that people can read: <, > and & stay as they are.
func Encode(state any) (json.RawMessage, error) { return memory.EncodeJSON(state) }

// settle puts the results of the last answer's calls behind it.
func (s *state) settle() {
	s.Messages = append(s.Messages, s.Answer)
	for i, c := range s.Answer.ToolCalls {
		s.Messages = append(s.Messages, memory.Message{Role: memory.RoleTool, ToolCallID: c.ID, Name: c.Function.Name,
			Content: s.Calls[i].Content})
	}
	// Ids that a vendor uses again would tear the chain of the next request.
	s.Messages, _ = memory.Repair(s.Messages)
	s.Answer, s.Calls = memory.Message{}, nil
}

// call begins the call at an index of the answer, or goes on with it if it waited.
func (s *state) call(ctx context.Context, t Tool, i int) (string, error) {
	call, cs := s.Answer.ToolCalls[i], s.Calls[i]
	if !cs.Waiting {
		return t.Call(ctx, call)
	}
	resumer, ok := t.(Resumer)
	if !ok {
		return "", errors.New("this tool cannot go on with a call that waited")
	}
	return resumer.Resume(ctx, call, cs.State, s.answers)
}

// suspendedOutcome is the outcome of a call that waits for an answer from outside. What its waits do not
// say of the call is filled in.
func (l Loop) suspendedOutcome(c memory.ToolCall, s *Suspended) outcome {
	switch {
	case l.NoWaits:
		return failed(errors.New("this needs an answer from outside, and nobody keeps this run until one comes: " +
			"go on without it"))
	case len(s.Pending) == 0:
		return failed(errors.New("the tool waits for nothing"))
	}
	filled := make([]event.Wait, len(s.Pending))
	for i, w := range s.Pending {
		w.ToolCallID = cmp.Or(w.ToolCallID, c.ID)
		w.Tool = cmp.Or(w.Tool, c.Function.Name)
		if w.Arguments == nil && json.Valid([]byte(c.Function.Arguments)) {
			w.Arguments = json.RawMessage(c.Function.Arguments)
		}
		filled[i] = w
	}
	return outcome{callState: callState{Waiting: true, State: s.State}, suspended: &Suspended{filled, s.State}}
}
