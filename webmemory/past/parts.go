package past

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

// OverGaps is a view that passes over what is damaged or gone.
func (v View) OverGaps() View {
	for key, p := range v {
		p.OnGap = func(webapi.HistoryGap, error) error { return nil }
		v[key] = p
	}
	return v
}

// This file is about walking all that a chat remembers. A change walks it before the chat's lease is taken, and once
// more under the lease, where it reads only the segments that are new since, or that it changes.

// View is all of a chat's histories at one moment, by their keys.
type View map[memory.Key]Pinned

// Pinned is a history as it was, and the segments of its archive.
type Pinned struct {
	*memory.History
	Segments []redisstore.Segment
	heads    Heads                                // of its segments that were read before, and are; nil: they are not kept
	OnGap    func(webapi.HistoryGap, error) error // is told of each segment that is damaged or gone
}

// Keys are those of a view, the chat's own first and then by name: the order of an export.
func (v View) Keys() []memory.Key {
	return slices.SortedFunc(maps.Keys(v), func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
}

// Head is what is to be known of a message to place it.
type Head struct {
	ID        string
	Role      string
	Timestamp float64
}

// HeadOf returns the head and the id of an encoded message.
func HeadOf(raw json.RawMessage) (h Head, id string) {
	h = HeadsOf([]json.RawMessage{raw})[0]
	return h, h.ID
}

// HeadsOf returns the heads of encoded messages.
func HeadsOf(raw []json.RawMessage) []Head {
	out := make([]Head, len(raw))
	for i, id := range memory.IDs(raw) {
		role, ts := memory.HeadOf(raw[i])
		out[i] = Head{id, role, ts}
	}
	return out
}

// Heads are those of the messages of segments. A segment is named by its sum, so that what was read of one holds as
// long as it is listed.
type Heads map[redisstore.Segment][]Head

// ContainsNone says whether it is known of a segment that it has none of some messages.
func (hs Heads) ContainsNone(has func(id string) bool) func(redisstore.Segment) bool {
	return func(seg redisstore.Segment) bool {
		list, ok := hs[seg]
		return ok && !slices.ContainsFunc(list, func(h Head) bool { return has(h.ID) })
	}
}

// ContainsOnly says whether it is known of a segment that it has no others than some messages.
func (hs Heads) ContainsOnly(has func(id string) bool) func(redisstore.Segment) bool {
	return hs.ContainsNone(func(id string) bool { return !has(id) })
}

// part is a segment of a history, or what is at hand of it.
type part struct {
	Heads []Head
	Raw   []json.RawMessage // nil: it was not read
}

// Parts walks a history as it was, each message once. Segments of which the heads are known are read only if one of
// their messages is wanted.
func (s *Histories) Parts(ctx context.Context, p Pinned, match func(id string) bool) iter.Seq2[part, error] {
	return func(yield func(part, error) bool) {
		if p.History == nil {
			return
		}
		// What a trim moves from now on is in both, and shown where it was.
		hot := map[string]bool{}
		for _, id := range p.IDs() {
			hot[id] = true
		}
		skip, offset := p.heads.ContainsNone(match), 0
		for chunk := range slices.Chunk(p.Segments, 32) {
			unread := slices.DeleteFunc(slices.Clone(chunk), skip)
			read, err := s.readEach(ctx, p.Key(), unread)
			for i := 0; i < len(chunk) && err == nil; i++ {
				seg, one := chunk[i], part{Heads: p.heads[chunk[i]]}
				if len(unread) > 0 && unread[0] == seg {
					result := read[0]
					unread, read = unread[1:], read[1:]
					if result.absent != nil {
						err = p.OnGap(webapi.HistoryGap{Offset: offset, Messages: seg.Messages}, result.absent)
					}
					one = part{HeadsOf(result.raw), result.raw}
					if p.heads != nil && !result.changed && result.absent == nil && len(result.raw) == seg.Messages {
						p.heads[seg] = one.Heads
					}
				}
				offset += seg.Messages
				if err == nil && !yield(one.exclude(hot), nil) {
					return
				}
			}
			if err != nil {
				yield(part{}, err)
				return
			}
		}
		raw := p.Identified().Raw(0)
		yield(part{HeadsOf(raw), raw}, nil)
	}
}

// exclude is a part without some messages.
func (p part) exclude(ids map[string]bool) (rest part) {
	if !slices.ContainsFunc(p.Heads, func(h Head) bool { return ids[h.ID] }) {
		return p
	}
	for i, h := range p.Heads {
		if !ids[h.ID] {
			rest.Heads = append(rest.Heads, h)
			if p.Raw != nil {
				rest.Raw = append(rest.Raw, p.Raw[i])
			}
		}
	}
	return rest
}

// Walk gives the messages of a history as it was, each once.
func (s *Histories) Walk(ctx context.Context, p Pinned) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for one, err := range s.Parts(ctx, p, everyID) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, raw := range one.Raw {
				if !yield(raw, nil) {
					return
				}
			}
		}
	}
}

// everyID selects all messages.
func everyID(string) bool { return true }

// NoID selects no message.
func NoID(string) bool { return false }
