package rag

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"mneme/memory/event"
	"mneme/subagent/loop"
)

// evidenceState is the part of an Evidence that a waiting run stores. The run's request has the messages.
type evidenceState struct {
	Passages []Passage               `json:"given"`
	Answers  map[string]event.Answer `json:"answers,omitempty"`
}

// Save returns the state for Restore in another process.
func (e *Evidence) Save() (json.RawMessage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.passages) == 0 && len(e.answers) == 0 {
		return nil, nil
	}
	state := evidenceState{Answers: e.answers}
	for _, g := range e.passages {
		state.Passages = append(state.Passages, g.passage)
	}
	return loop.Encode(state)
}

// Restore adds the passages under their numbers. Call it before the first check.
func (e *Evidence) Restore(raw json.RawMessage) error {
	var s evidenceState
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.passages, e.answers = nil, s.Answers
	for _, p := range s.Passages {
		e.passages = append(e.passages, passageSupport(p))
	}
	return nil
}

// readerState is what a waiting run stores of a subagent that reads documents. Its passages are numbers of the Evidence.
type readerState struct {
	Nonce    string `json:"nonce"`
	Passages []int  `json:"given"`
	Signals  int    `json:"signals,omitempty"`
}

// save returns the state for restore in another process.
func (t *Session) save() (json.RawMessage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.passages) == 0 {
		return nil, nil
	}
	return loop.Encode(readerState{t.nonce, slices.Sorted(maps.Keys(t.passages)), t.signals})
}

// restore adds the state of another session. Its Evidence is restored already.
func (t *Session) restore(raw json.RawMessage) error {
	var s readerState
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	evidence := t.evidence.scope(nil)
	t.nonce, t.signals = s.Nonce, s.Signals
	for _, n := range s.Passages {
		if !evidence.has(n) {
			return errors.New("a passage is missing")
		}
		t.passages[n] = true
	}
	return nil
}
