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

// OverGaps changes v to skip damaged and missing segments, and returns v.
func (v View) OverGaps() View {
	for key, p := range v {
		p.OnGap = func(webapi.HistoryGap, error) error { return nil }
		v[key] = p
	}
	return v
}

// View holds all histories of a chat from one moment, by key. A change walks them before it takes the chat's lease, and
// again under the lease. The second walk reads only segments that are new or that the change modifies.
type View map[memory.Key]Pinned

// Pinned is a history and its archive segments at that moment.
type Pinned struct {
	*memory.History
	Segments []redisstore.Segment
	heads    Heads                                // heads of the segments read so far; nil caches none
	OnGap    func(webapi.HistoryGap, error) error // called for each damaged or missing segment
}

// Keys returns the keys of a view in the order of an export: the chat's own key first, then by name.
func (v View) Keys() []memory.Key {
	return slices.SortedFunc(maps.Keys(v), func(a, b memory.Key) int { return strings.Compare(a.String(), b.String()) })
}

// Head holds the fields that locate a message.
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

// Heads holds the message heads of segments. A segment's description includes a checksum, so its heads stay valid as
// long as the segment is listed.
type Heads map[redisstore.Segment][]Head

// ContainsNone returns a function that reports whether a segment is known to contain no message selected by has.
func (hs Heads) ContainsNone(has func(id string) bool) func(redisstore.Segment) bool {
	return func(seg redisstore.Segment) bool {
		list, ok := hs[seg]
		return ok && !slices.ContainsFunc(list, func(h Head) bool { return has(h.ID) })
	}
}

// ContainsOnly returns a function that reports whether a segment is known to contain only messages selected by has.
func (hs Heads) ContainsOnly(has func(id string) bool) func(redisstore.Segment) bool {
	return hs.ContainsNone(func(id string) bool { return !has(id) })
}

// part is an archive segment of a history, or the messages outside the archive.
type part struct {
	Heads []Head
	Raw   []json.RawMessage // nil if the segment was not read
}

// Parts iterates over the segments of a history and then over its messages outside the archive. Each message occurs
// once. A segment with known heads is read only if match selects one of its messages.
func (s *Histories) Parts(ctx context.Context, p Pinned, match func(id string) bool) iter.Seq2[part, error] {
	return func(yield func(part, error) bool) {
		if p.History == nil {
			return
		}
		// A trim during the walk copies messages into segments. Such messages occur only at their old position.
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

// exclude returns p without the messages in ids.
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

// Walk iterates over the messages of a history and its archive, each once.
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
