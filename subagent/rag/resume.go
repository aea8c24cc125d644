package rag

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent/loop"
)

// evidenceState is what a run that waits keeps of an Evidence. What was said is not in it: it
// comes with the run's request.
type evidenceState struct {
	Given []Passage               `json:"given"`
	Flags map[string][]event.Flag `json:"flags,omitempty"`
}

// Save gives what Restore takes, in another process.
func (e *Evidence) Save() (json.RawMessage, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.given) == 0 && len(e.flags) == 0 {
		return nil, nil
	}
	state := evidenceState{Flags: e.flags}
	for _, g := range e.given {
		state.Given = append(state.Given, g.passage)
	}
	return loop.Encode(state)
}

// Restore has the passages under their numbers again. Call it before anything is checked.
func (e *Evidence) Restore(from json.RawMessage) error {
	var s evidenceState
	if err := json.Unmarshal(from, &s); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.given, e.flags = nil, s.Flags
	for _, p := range s.Given {
		e.given = append(e.given, passageSupport(p))
	}
	return nil
}

// readerState is what a run that waits keeps of a subagent that reads documents. Its passages are
// numbers of the Evidence.
type readerState struct {
	Nonce     string                  `json:"nonce"`
	Given     []int                   `json:"given"`
	Signals   int                     `json:"signals,omitempty"`
	Questions []questionState         `json:"questions"`
	Asked     map[string]int          `json:"asked"` // indexes of Questions
	Calls     map[string]int          `json:"calls"`
	Found     map[string]string       `json:"found,omitempty"`
	Said      map[string]event.Answer `json:"said,omitempty"`
}

type questionState struct {
	Task     string           `json:"task"`
	History  []memory.Message `json:"history"`
	Searched int              `json:"searched"`
	Found    int              `json:"found"`
}

// save gives what restore takes, in another process.
func (t *Session) save() (json.RawMessage, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.asked) == 0 {
		return nil, nil
	}
	s := readerState{Asked: map[string]int{}, Calls: map[string]int{}, Found: t.found, Said: t.said}
	index := map[*Question]int{}
	of := func(q *Question) int {
		if _, known := index[q]; !known {
			index[q] = len(s.Questions)
			q.mu.Lock()
			s.Questions = append(s.Questions, questionState{q.task, q.history, q.searched, q.found})
			q.mu.Unlock()
		}
		return index[q]
	}
	for task, q := range t.asked {
		s.Asked[task] = of(q)
	}
	for call, q := range t.calls {
		s.Calls[call] = of(q)
	}
	s.Nonce, s.Given, s.Signals = t.nonce, slices.Sorted(maps.Keys(t.given)), t.signals
	return loop.Encode(s)
}

// restore makes of the session what another one was; its Evidence is restored already.
func (t *Session) restore(from json.RawMessage) error {
	var s readerState
	if err := json.Unmarshal(from, &s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	questions := make([]*Question, len(s.Questions))
	for i, q := range s.Questions {
		questions[i] = &Question{session: t, task: q.Task, history: q.History, searched: q.Searched, found: q.Found}
	}
	for into, indexes := range map[*map[string]*Question]map[string]int{&t.asked: s.Asked, &t.calls: s.Calls} {
		for key, i := range indexes {
			if i < 0 || i >= len(questions) {
				return errors.New("a question is missing")
			}
			(*into)[key] = questions[i]
		}
	}
	maps.Copy(t.found, s.Found)
	maps.Copy(t.said, s.Said)
	given := t.evidence.scope(nil)
	t.nonce, t.signals = s.Nonce, s.Signals
	for _, n := range s.Given {
		if !given.known(n) {
			return errors.New("a passage is missing")
		}
		t.given[n] = true
	}
	return nil
}
