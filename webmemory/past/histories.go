package past

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// Histories reads histories from the cache, Redis and the archives, and locates messages in them. It needs no turn and
// changes no history.
type Histories struct {
	*node.Core
	StoreWatch *node.StoreWatch
}

// Current returns a history as stored. If Redis is unavailable, it returns a cached copy for up to node.StaleFor and
// sets stale.
func (s *Histories) Current(ctx context.Context, key memory.Key) (h *memory.History, stale bool, err error) {
	loaded, err := s.Cache.Load(ctx, 0, memory.Empty(key))
	if err == nil {
		return loaded[0], false, nil
	}
	start := s.StoreWatch.Health.Get().DownSince
	h = s.Cache.Peek(key)
	if !errors.Is(err, memory.ErrUnavailable) || h == nil || !start.IsZero() && time.Since(start) > node.StaleFor {
		return nil, false, err
	}
	return h, true, nil
}

// CurrentAll returns the current histories of a chat and of further keys, without a turn.
func (s *Histories) CurrentAll(ctx context.Context, chat memory.Chat, further ...memory.Key) (
	map[memory.Key]*memory.History, error) {
	keys, err := s.Store.Chats.Keys(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return nil, err
	}
	histories := map[memory.Key]*memory.History{}
	for _, key := range append(keys, further...) {
		if histories[key], _, err = s.Current(ctx, key); err != nil {
			return nil, err
		}
	}
	return histories, nil
}

// Look returns a view of a chat's non-empty histories, without a turn.
func (s *Histories) Look(ctx context.Context, chat memory.Chat, headCache Heads) (View, error) {
	histories, err := s.CurrentAll(ctx, chat)
	if err != nil {
		return nil, err
	}
	return s.Pin(ctx, histories, headCache)
}

// Pin returns a view of the non-empty histories with their current archive segments. Its OnGap rejects damaged segments
// and skips missing ones.
func (s *Histories) Pin(ctx context.Context, histories map[memory.Key]*memory.History, headCache Heads) (View, error) {
	v := View{}
	for key, h := range histories {
		segments, err := s.Store.Archives.Segments(ctx, key)
		if err != nil {
			return nil, err
		}
		if h.Len()+len(segments) > 0 {
			v[key] = Pinned{h, segments, headCache, func(_ webapi.HistoryGap, why error) error {
				if errors.Is(why, memory.ErrDamaged) { // a change cannot carry it over
					return why
				}
				return nil
			}}
		}
	}
	return v, nil
}

// readEach reads segments in one call, or one by one if any is damaged. A segment that was deliberately changed after
// it was listed is read as it is now. Damaged and missing segments are logged and counted.
func (s *Histories) readEach(ctx context.Context, key memory.Key, segments []redisstore.Segment) (
	[]segmentRead, error) {
	out := make([]segmentRead, len(segments))
	messages, err := s.Store.Archives.Read(ctx, key, segments...)
	if err != nil && !errors.Is(err, memory.ErrDamaged) {
		return nil, err
	}
	for i, seg := range segments {
		raw, cause := [][]json.RawMessage{nil}, err
		if seg.Missing {
			cause = errGone
		} else if cause == nil {
			raw[0] = messages[i]
		} else if raw, cause = s.Store.Archives.Read(ctx, key, seg); cause != nil && !errors.Is(cause, memory.ErrDamaged) {
			return nil, cause
		}
		if cause == nil && len(raw[0]) == seg.Messages {
			out[i].raw = raw[0]
			continue
		}
		listed, err := s.Store.Archives.AllSegments(ctx, key)
		if err != nil {
			return nil, err
		}
		pos := slices.IndexFunc(listed, func(l redisstore.Segment) bool {
			return l.Position == seg.Position && l.Missing == seg.Missing
		})
		if pos >= 0 && listed[pos] != seg {
			raw, cause = s.Store.Archives.Read(ctx, key, listed[pos])
		}
		switch {
		case pos < 0: // dropped from the archive
		case listed[pos] != seg && cause == nil:
			out[i].raw, out[i].changed = raw[0], true
		default:
			out[i].absent = cmp.Or(cause, errGone)
			s.Store.Counts.Damaged.Add(1)
			s.Telemetry.Often.Error().Err(out[i].absent).Str("key", key.String()).Int("position", seg.Position).Msg(
				"a part of an archive is damaged or gone: histories, exports and forks name it, searches say partial")
		}
	}
	return out, nil
}

// Remembered iterates over a history and its archive, each message once and with its id. onGap is called for each
// damaged or missing segment.
func (s *Histories) Remembered(ctx context.Context, key memory.Key,
	onGap func(webapi.HistoryGap, error) error) func(func(json.RawMessage, error) bool) {
	return func(yield func(json.RawMessage, error) bool) {
		h, _, err := s.Current(ctx, key)
		if err != nil {
			yield(nil, err)
			return
		}
		segments, err := s.Store.Archives.Segments(ctx, key)
		if err != nil {
			yield(nil, err)
			return
		}
		for raw, err := range s.Walk(ctx, Pinned{h, segments, nil, onGap}) {
			if !yield(raw, err) {
				return
			}
		}
	}
}

// IsEmpty returns problem.ErrNotEmpty if a chat has histories.
func (s *Histories) IsEmpty(ctx context.Context, chat memory.Chat) error {
	stored, err := s.Store.Chats.Histories(ctx, chat, s.Cfg.Agents()...)
	if err == nil && len(stored) > 0 {
		err = problem.ErrNotEmpty
	}
	return err
}

// UnchangedSince returns problem.ErrMessagesSince unless each history has the length and the last message id that are
// recorded in a.
func (s *Histories) UnchangedSince(ctx context.Context, histories map[memory.Key]*memory.History,
	a *redisstore.SetAside) error {
	remaining := map[string]redisstore.AsideHistory{}
	for _, ah := range a.Histories {
		remaining[ah.Key] = ah
	}
	for key, h := range histories {
		n, err := s.Store.Archives.Remembered(ctx, h)
		if err != nil {
			return err
		}
		last := ""
		if h.Len() > 0 {
			_, last = HeadOf(h.Identified().Raw(h.Len() - 1)[0])
		}
		if ah := remaining[key.String()]; ah.Remaining != n || ah.Last != last {
			return problem.ErrMessagesSince
		}
		delete(remaining, key.String())
	}
	for _, ah := range remaining {
		if ah.Remaining > 0 {
			return problem.ErrMessagesSince
		}
	}
	return nil
}

// KeysThere returns the keys of a chat's own history and of its subagents' histories in Redis.
func (s *Histories) KeysThere(ctx context.Context, chat memory.Chat) ([]memory.Key, error) {
	keys := []memory.Key{memory.ChatKey(chat)}
	candidates, err := s.Store.Chats.Keys(ctx, chat, s.Cfg.Agents()...)
	if err != nil {
		return nil, err
	}
	exists, err := s.Store.Chats.Exist(ctx, candidates...)
	if err != nil {
		return nil, err
	}
	for i, k := range candidates {
		if exists[i] && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
