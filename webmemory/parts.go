package webmemory

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
)

// This file is about walking all that a chat remembers. A change walks it before the chat's lease is taken, and once
// more under the lease, where it reads only the segments that are new since, or that it changes.

// view is all of a chat's histories at one moment, by their keys.
type view map[memory.Key]pinned

// pinned is a history as it was, and the segments of its archive.
type pinned struct {
	*memory.History
	segments []redisstore.Segment
	heads    heads                                // of its segments that were read before, and are; nil: they are not kept
	lost     func(webapi.HistoryGap, error) error // is told of each segment that is damaged or gone
}

// keys are those of a view, the chat's own first and then by name: the order of an export.
func (v view) keys() []memory.Key {
	return slices.SortedFunc(maps.Keys(v), func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
}

// head is what is to be known of a message to place it.
type head struct {
	ID        string
	Role      string
	Timestamp float64
}

func headOf(raw json.RawMessage) (h head, id string) {
	h = headsOf([]json.RawMessage{raw})[0]
	return h, h.ID
}

func headsOf(raw []json.RawMessage) []head {
	all := make([]head, len(raw))
	for i, id := range memory.IDs(raw) {
		role, ts := memory.HeadOf(raw[i])
		all[i] = head{id, role, ts}
	}
	return all
}

// heads are those of the messages of segments. A segment is named by its sum, so that what was read of one holds as
// long as it is listed.
type heads map[redisstore.Segment][]head

// without says whether it is known of a segment that it has none of some messages.
func (known heads) without(has func(id string) bool) func(redisstore.Segment) bool {
	return func(seg redisstore.Segment) bool {
		of, ok := known[seg]
		return ok && !slices.ContainsFunc(of, func(h head) bool { return has(h.ID) })
	}
}

// within says whether it is known of a segment that it has no others than some messages.
func (known heads) within(has func(id string) bool) func(redisstore.Segment) bool {
	return known.without(func(id string) bool { return !has(id) })
}

// part is a segment of a history, or what is at hand of it.
type part struct {
	heads []head
	raw   []json.RawMessage // nil: it was not read
}

// parts walks a history as it was, each message once. Segments of which the heads are known are read only if one of
// their messages is wanted.
func (s *histories) parts(ctx context.Context, p pinned, wanted func(id string) bool) iter.Seq2[part, error] {
	return func(yield func(part, error) bool) {
		if p.History == nil {
			return
		}
		// What a trim moves from now on is in both, and shown where it was.
		hot := map[string]bool{}
		for _, id := range p.IDs() {
			hot[id] = true
		}
		known, at := p.heads.without(wanted), 0
		for some := range slices.Chunk(p.segments, 32) {
			unread := slices.DeleteFunc(slices.Clone(some), known)
			read, err := s.readEach(ctx, p.Key(), unread)
			for i := 0; i < len(some) && err == nil; i++ {
				seg, one := some[i], part{heads: p.heads[some[i]]}
				if len(unread) > 0 && unread[0] == seg {
					of := read[0]
					unread, read = unread[1:], read[1:]
					if of.absent != nil {
						err = p.lost(webapi.HistoryGap{Offset: at, Messages: seg.Messages}, of.absent)
					}
					one = part{headsOf(of.raw), of.raw}
					if p.heads != nil && !of.changed && of.absent == nil && len(of.raw) == seg.Messages {
						p.heads[seg] = one.heads
					}
				}
				at += seg.Messages
				if err == nil && !yield(one.without(hot), nil) {
					return
				}
			}
			if err != nil {
				yield(part{}, err)
				return
			}
		}
		raw := p.Identified().Raw(0)
		yield(part{headsOf(raw), raw}, nil)
	}
}

// without is a part without some messages.
func (p part) without(ids map[string]bool) (left part) {
	if !slices.ContainsFunc(p.heads, func(h head) bool { return ids[h.ID] }) {
		return p
	}
	for i, h := range p.heads {
		if !ids[h.ID] {
			left.heads = append(left.heads, h)
			if p.raw != nil {
				left.raw = append(left.raw, p.raw[i])
			}
		}
	}
	return left
}

// walk gives the messages of a history as it was, each once.
func (s *histories) walk(ctx context.Context, p pinned) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for one, err := range s.parts(ctx, p, everyID) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, raw := range one.raw {
				if !yield(raw, nil) {
					return
				}
			}
		}
	}
}

// everyID and noID are about all messages, and about none.
func everyID(string) bool { return true }
func noID(string) bool    { return false }
