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
	start bool    // nothing stays
	at    int     // messages of the chat's own history up to this one stay; -1 for none
	ts    float64 // the message's time, 0 if it is not known
	runs  map[string]*spoken

	newest int     // the newest message of a user in that history, -1 for none
	asked  float64 // its time
}

// spoken is what a run left in the chat's own history.
type spoken struct {
	questions   int // messages of a user
	asked       int // the first of them
	first, last int
}

// locate finds a message, "" for the start.
func (s *histories) locate(ctx context.Context, chat memory.Chat, v view, to string) (*boundary, error) {
	l := &boundary{start: to == "", at: -1, newest: -1, runs: map[string]*spoken{}}
	var times []float64
	n := 0
	for one, err := range s.parts(ctx, v[memory.ChatKey(chat)], noID) {
		if err != nil {
			return nil, err
		}
		for _, h := range one.heads {
			if h.ID == to {
				l.at, l.ts = n, h.Timestamp
			}
			if h.Role == memory.RoleUser {
				l.newest, l.asked = n, h.Timestamp
			}
			times = append(times, h.Timestamp)
			if run := memory.RunOf(h.ID); run != "" {
				of := l.runs[run]
				if of == nil {
					of = &spoken{first: n}
					l.runs[run] = of
				}
				if of.last = n; h.Role == memory.RoleUser {
					if of.questions++; of.questions == 1 {
						of.asked = n
					}
				}
			}
			n++
		}
	}
	if l.at < 0 && !l.start {
		if err := s.locateBeside(ctx, v, to, l, times); err != nil {
			return nil, err
		}
	}
	for i := 0; l.ts == 0 && i <= l.at; i++ {
		l.ts = max(l.ts, times[l.at-i])
	}
	return l, nil
}

// locateBeside finds a message of a subagent's: the place is that of its run in the chat's own history,
// or by its time. times are those of the messages there.
func (s *histories) locateBeside(ctx context.Context, v view, to string, l *boundary, times []float64) error {
	for _, key := range v.keys() {
		if key.Agent() == "" {
			continue
		}
		for one, err := range s.parts(ctx, v[key], noID) {
			if err != nil {
				return err
			}
			found := slices.IndexFunc(one.heads, func(h head) bool { return h.ID == to })
			if found < 0 {
				continue
			}
			h := one.heads[found]
			l.ts = h.Timestamp
			if of := l.runs[memory.RunOf(to)]; of != nil {
				l.at = of.last
				return nil
			}
			for i, at := range times {
				if at <= h.Timestamp {
					l.at = i
				}
			}
			return nil
		}
	}
	return errUnknownMessage
}

// goes says whether a message goes: message n of the chat's own history, or one of a subagent's behind one
// of which before says whether it went.
func (l *boundary) goes(own bool, n int, h head, before bool) bool {
	if l.start {
		return true
	}
	of := l.runs[memory.RunOf(h.ID)]
	switch {
	case of != nil && of.questions == 1: // a run
		return of.asked > l.at
	case own:
		return n > l.at
	case of != nil && of.questions == 0 && (of.first > l.at || of.last <= l.at): // a further try at a question
		return of.first > l.at
	case h.Timestamp == 0 || l.ts == 0:
		return before
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
				went = l.goes(p.Key().Agent() == "", n, h, went)
			}
			if !went && !yield(raw, err) || err != nil {
				return
			}
			n++
		}
	}
}
