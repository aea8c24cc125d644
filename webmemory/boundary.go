package webmemory

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"mneme/memory"
)

// This file is about the place in a chat's memory that a message marks: what stays before it, in every history.

// boundary says what stays of a chat's memory that goes back to a message: what stands before it, and all of
// the runs that began before it.
type boundary struct {
	start     bool    // nothing stays
	lastIndex int     // messages of the chat's own history up to this one stay; -1 for none
	ts        float64 // the message's time, 0 if it is not known
	runs      map[string]*runSpan

	newest   int     // the newest message of a user in that history, -1 for none
	newestTS float64 // its time
}

// runSpan is what a run left in the chat's own history.
type runSpan struct {
	questions     int // messages of a user
	firstQuestion int // the first of them
	first, last   int
}

// locate finds a message, "" for the start.
func (s *histories) locate(ctx context.Context, chat memory.Chat, v view, id string) (*boundary, error) {
	l := &boundary{start: id == "", lastIndex: -1, newest: -1, runs: map[string]*runSpan{}}
	var times []float64
	n := 0
	for one, err := range s.parts(ctx, v[memory.ChatKey(chat)], noID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.heads {
			if h.ID == id {
				l.lastIndex, l.ts = n, h.Timestamp
			}
			if h.Role == memory.RoleUser {
				l.newest, l.newestTS = n, h.Timestamp
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
	if l.lastIndex < 0 && !l.start {
		if err := s.locateInSubagents(ctx, v, id, l, times); err != nil {
			return nil, err
		}
	}
	for i := 0; l.ts == 0 && i <= l.lastIndex; i++ {
		l.ts = max(l.ts, times[l.lastIndex-i])
	}
	return l, nil
}

// locateInSubagents finds a message of a subagent's: the place is that of its run in the chat's own history,
// or by its time. times are those of the messages there.
func (s *histories) locateInSubagents(ctx context.Context, v view, id string, l *boundary, times []float64) error {
	for _, key := range v.keys() {
		if key.Agent() == "" {
			continue
		}
		for one, err := range s.parts(ctx, v[key], noID) {
			if err != nil {
				return err
			}
			index := slices.IndexFunc(one.heads, func(h head) bool { return h.ID == id })
			if index < 0 {
				continue
			}
			h := one.heads[index]
			l.ts = h.Timestamp
			if span := l.runs[memory.RunOf(id)]; span != nil {
				l.lastIndex = span.last
				return nil
			}
			for i, ts := range times {
				if ts <= h.Timestamp {
					l.lastIndex = i
				}
			}
			return nil
		}
	}
	return errUnknownMessage
}

// removes says whether a message goes: message n of the chat's own history, or one of a subagent's behind one
// of which before says whether it went.
func (l *boundary) removes(own bool, n int, h head, prevRemoved bool) bool {
	if l.start {
		return true
	}
	span := l.runs[memory.RunOf(h.ID)]
	switch {
	case span != nil && span.questions == 1: // a run
		return span.firstQuestion > l.lastIndex
	case own:
		return n > l.lastIndex
	// a further try at a question
	case span != nil && span.questions == 0 && (span.first > l.lastIndex || span.last <= l.lastIndex):
		return span.first > l.lastIndex
	case h.Timestamp == 0 || l.ts == 0:
		return prevRemoved
	}
	return h.Timestamp > l.ts
}

// staying walks what stays of a history.
func (s *histories) staying(ctx context.Context, p pinned, l *boundary) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		n, went := 0, false
		for raw, err := range s.walk(ctx, p) {
			if err == nil {
				h, _ := headOf(raw)
				went = l.removes(p.Key().Agent() == "", n, h, went)
			}
			if !went && !yield(raw, err) || err != nil {
				return
			}
			n++
		}
	}
}
