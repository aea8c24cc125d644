package past

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"mneme/memory"
	"mneme/webmemory/problem"
)

// This file is about the place in a chat's memory that a message marks: what stays before it, in every history.

// Boundary says what stays of a chat's memory that goes back to a message: what stands before it, and all of
// the runs that began before it.
type Boundary struct {
	Start     bool    // nothing stays
	LastIndex int     // messages of the chat's own history up to this one stay; -1 for none
	Ts        float64 // the message's time, 0 if it is not known
	runs      map[string]*runSpan

	Newest   int     // the newest message of a user in that history, -1 for none
	NewestTS float64 // its time
}

// runSpan is what a run left in the chat's own history.
type runSpan struct {
	questions     int // messages of a user
	firstQuestion int // the first of them
	first, last   int
}

// Locate finds a message, "" for the start.
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

// locateInSubagents finds a message of a subagent's: the place is that of its run in the chat's own history,
// or by its time. times are those of the messages there.
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

// Removes says whether a message goes: message n of the chat's own history, or one of a subagent's behind one
// of which before says whether it went.
func (l *Boundary) Removes(own bool, n int, h Head, prevRemoved bool) bool {
	if l.Start {
		return true
	}
	span := l.runs[memory.RunOf(h.ID)]
	switch {
	case span != nil && span.questions == 1: // a run
		return span.firstQuestion > l.LastIndex
	case own:
		return n > l.LastIndex
	// a further try at a question
	case span != nil && span.questions == 0 && (span.first > l.LastIndex || span.last <= l.LastIndex):
		return span.first > l.LastIndex
	case h.Timestamp == 0 || l.Ts == 0:
		return prevRemoved
	}
	return h.Timestamp > l.Ts
}

// Staying walks what stays of a history.
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
