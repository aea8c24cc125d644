package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"mneme/memory"
	"mneme/memory/event"
)

// Suspended is the error of a Tool whose call waits for somebody outside, and of a Run in
// which a call does. It is no failure: with the answers the same goes on, in this process or
// another one.
type Suspended struct {
	Waits []event.Wait    // at least one
	State json.RawMessage // to go on from: for the Resume of who returned it
}

func (s *Suspended) Error() string { return fmt.Sprintf("%d answers are waited for", len(s.Waits)) }

// Answers are those to the waits of a Suspended, by the wait's id.
type Answers map[string]event.WaitAnswer

// Resumer is a Tool whose calls may be Suspended.
type Resumer interface {
	// Resume goes on with a call, from the State of its Suspended. answers has those to all its
	// waits, and may have more.
	Resume(ctx context.Context, call memory.ToolCall, state json.RawMessage, answers Answers) (string, error)
}

// state is how far a Run came: what a Suspended holds.
type state struct {
	System   string           `json:"system,omitempty"`
	Recalled string           `json:"recalled,omitempty"`
	Messages []memory.Message `json:"messages"` // up to Answer, without it
	Step     int              `json:"step"`     // model calls so far
	Answer   memory.Message   `json:"answer"`   // the last one, whose calls are under way; no calls for none
	Usage    event.Usage      `json:"usage"`
	// By the index of a call in Answer: what has ended, and was observed, and what waits.
	Done    map[string]finished        `json:"done,omitempty"`
	Waiting map[string]json.RawMessage `json:"waiting,omitempty"`

	answers Answers // to what waits
}

// finished is a call that has ended.
type finished struct {
	Content string `json:"content"`
	Failed  bool   `json:"failed,omitempty"`
}

// Resume is Run for what a Suspended of this loop was: it goes on where that stopped, with the
// system prompt and what was recalled of that time.
func (l Loop) Resume(ctx context.Context, from json.RawMessage, answers Answers, o Observer) (Result, error) {
	s := &state{answers: answers}
	if err := json.Unmarshal(from, s); err != nil {
		return Result{}, fmt.Errorf("the state of a loop that waited cannot be read: %w", err)
	}
	l.System, l.Recalled = s.System, s.Recalled
	return l.run(ctx, s, o)
}

// suspended is the error of a Run that waits for calls of its last answer.
func (l Loop) suspended(s *state, r Result, waits []event.Wait) error {
	s.System, s.Recalled, s.Usage = l.System, l.Recalled, r.Usage
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return &Suspended{waits, raw}
}

// call goes on with the call at an index of the answer, if it waited; else it begins.
func (s *state) call(ctx context.Context, t Tool, i int, call memory.ToolCall) (string, error) {
	from, waited := s.Waiting[strconv.Itoa(i)]
	if !waited {
		return t.Call(ctx, call)
	}
	again, ok := t.(Resumer)
	if !ok {
		return "", errors.New("this tool cannot go on with a call that waited")
	}
	return again.Resume(ctx, call, from, s.answers)
}
