package past

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"mneme/memory"
	"mneme/webmemory/problem"
)

// Boundary is the point to which a chat's memory goes back. Messages up to it stay, as do all messages of runs that
// began before it.
type Boundary struct {
	Start     bool    // no messages stay
	LastIndex int     // last message of the chat's own history that stays; -1 for none
	Ts        float64 // time of the marked message, or of an earlier one; 0 if unknown
	runs      map[string]*runSpan

	Newest   int     // newest user message in that history; -1 for none
	NewestTS float64 // its time
}

// runSpan describes the messages of a run in the chat's own history.
type runSpan struct {
	questions     int // number of user messages
	firstQuestion int // the first of them
	first, last   int
}

// Locate returns the boundary at the message id, or at the start if id is empty. It returns problem.ErrUnknownMessage
// if v does not contain the message.
func (s *Histories) Locate(ctx context.Context, chat memory.Chat, v View, id string) (*Boundary, error) {
	l := &Boundary{Start: id == "", LastIndex: -1, Newest: -1, runs: map[string]*runSpan{}}
	var times []float64
	n := 0
	for one, err := range s.Parts(ctx, v[memory.ChatKey(chat)], NoID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.Heads {
			if h.ID == id {
				l.LastIndex, l.Ts = n, h.Timestamp
			}
			if h.Role == memory.RoleUser {
				l.Newest, l.NewestTS = n, h.Timestamp
			}
			times = append(times, h.Timestamp)
			if run := memory.RunOf(h.ID); run != "" {
				span := l.runs[run]
				if span == nil {
					span = &runSpan{first: n}
					l.runs[run] = span
				}
				if span.last = n; h.Role == memory.RoleUser {
					if span.questions++; span.questions == 1 {
						span.firstQuestion = n
					}
				}
			}
			n++
		}
	}
	if l.LastIndex < 0 && !l.Start {
		if err := s.locateInSubagents(ctx, v, id, l, times); err != nil {
			return nil, err
		}
	}
	for i := 0; l.Ts == 0 && i <= l.LastIndex; i++ {
		l.Ts = max(l.Ts, times[l.LastIndex-i])
	}
	return l, nil
}

// locateInSubagents sets l to the place of a subagent's message: the end of its run in the chat's own history. If the
// run is not in that history, the message's time decides. times holds the times of that history.
func (s *Histories) locateInSubagents(ctx context.Context, v View, id string, l *Boundary, times []float64) error {
	for _, key := range v.Keys() {
		if key.Agent() == "" {
			continue
		}
		for one, err := range s.Parts(ctx, v[key], NoID) {
			if err != nil {
				return err
			}
			index := slices.IndexFunc(one.Heads, func(h Head) bool { return h.ID == id })
			if index < 0 {
				continue
			}
			h := one.Heads[index]
			l.Ts = h.Timestamp
			if span := l.runs[memory.RunOf(id)]; span != nil {
				l.LastIndex = span.last
				return nil
			}
			for i, ts := range times {
				if ts <= h.Timestamp {
					l.LastIndex = i
				}
			}
			return nil
		}
	}
	return problem.ErrUnknownMessage
}

// Removes reports whether the boundary removes h. If own is set, h is message n of the chat's own history. Otherwise
// prevRemoved is the result for the previous message of the subagent.
func (l *Boundary) Removes(own bool, n int, h Head, prevRemoved bool) bool {
	if l.Start {
		return true
	}
	span := l.runs[memory.RunOf(h.ID)]
	switch {
	case span != nil && span.questions == 1: // a run with its question
		return span.firstQuestion > l.LastIndex
	case own:
		return n > l.LastIndex
	// another attempt at the same question
	case span != nil && span.questions == 0 && (span.first > l.LastIndex || span.last <= l.LastIndex):
		return span.first > l.LastIndex
	case h.Timestamp == 0 || l.Ts == 0:
		return prevRemoved
	}
	return h.Timestamp > l.Ts
}

// Staying iterates over the messages of a history that stay.
func (s *Histories) Staying(ctx context.Context, p Pinned, l *Boundary) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		n, went := 0, false
		for raw, err := range s.Walk(ctx, p) {
			if err == nil {
				h, _ := HeadOf(raw)
				went = l.Removes(p.Key().Agent() == "", n, h, went)
			}
			if !went && !yield(raw, err) || err != nil {
				return
			}
			n++
		}
	}
}
