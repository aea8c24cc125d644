package chats

import (
	"context"
	"math"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// errForkChanged rejects a fork if its source lost messages during the copy.
var errForkChanged = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeChatBusy, Retryable: true,
	Message: "Something was taken out of the chat while it was read; please try again."}

// PostFork handles POST …/fork. The new chat copies source up to body.LastID, or all of it. PostFork holds the new
// chat's lease throughout, and the lease of source only while it pins the histories.
func (s *Portable) PostFork(c *gin.Context, source memory.Chat, body webapi.ForkRequest) error {
	if body.As.IsZero() {
		return problem.BadRequest("as is missing: the id of the new chat.")
	}
	as, err := source.Tenant().Chat(body.As.ID())
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	headCache := past.Heads{}
	if err := s.forkable(ctx, source, as, body.LastID, headCache); err != nil {
		return err
	}
	var out webapi.Imported
	err = s.Leaser.UnderTurn(ctx, as, func(ctx context.Context, w *runs.Writer) error {
		if err := s.Histories.IsEmpty(ctx, as); err != nil {
			return err
		}
		var v past.View
		err := s.Leaser.UnderTurn(ctx, source, func(ctx context.Context, src *runs.Writer) (err error) {
			v, err = s.Histories.Pin(ctx, src.Histories, headCache)
			return err
		})
		if err != nil {
			return err
		}
		// Record the user before messages posted under that user exist.
		if err := s.Store.Users.PostedLike(ctx, as, source); err != nil {
			return err
		}
		if err := s.quarantineLike(ctx, as, source); err != nil {
			return err
		}
		l := &past.Boundary{LastIndex: math.MaxInt} // everything stays
		if body.LastID != "" {
			if l, err = s.Histories.Locate(ctx, source, v.OverGaps(), body.LastID); err != nil {
				return err
			}
		}
		title := ""
		out, err = s.fillWhole(ctx, w, func(in *importing) (err error) {
			if title, err = s.Store.Chats.TitleSet(ctx, source); err != nil {
				return err
			}
			return s.copyInto(ctx, in, source, v, l) // also detects redactions during the copy
		})
		if err != nil || title == "" {
			return err
		}
		if _, err := s.Store.Chats.ChangeCard(ctx, as, &title, nil, nil); err != nil {
			s.Log.Warn().Err(err).Str("chat", as.String()).Msg("a fork has not got the title of its source")
		}
		return nil
	})
	return api.Answer(c.Writer, http.StatusCreated, out, err)
}

// quarantineLike copies the quarantine of source to as. Call it before as has messages.
func (s *Portable) quarantineLike(ctx context.Context, as, source memory.Chat) error {
	entries, err := s.Store.Chats.Quarantined(ctx, source)
	if err == nil && len(entries) > 0 {
		_, err = s.Store.Chats.Quarantine(ctx, as, false, entries...)
	}
	return err
}

// forkable returns an error if the fork is impossible. PostFork calls it before it waits for a lease.
func (s *Portable) forkable(ctx context.Context, source, as memory.Chat, lastID string, headCache past.Heads) error {
	if err := fair.Block(ctx, func() error { return s.Tier.Wake(ctx, as) }); err != nil {
		return err
	}
	if err := s.Histories.IsEmpty(ctx, as); err != nil {
		return err
	}
	v, err := s.Histories.Look(ctx, source, headCache)
	if err == nil && len(v) == 0 {
		err = problem.ErrUnknownChat
	}
	if err == nil && lastID != "" {
		_, err = s.Histories.Locate(ctx, source, v.OverGaps(), lastID)
	}
	return err
}

// copyInto adds the messages of v that l retains, and the notes that are not from later messages.
func (s *Portable) copyInto(ctx context.Context, in *importing, source memory.Chat, v past.View,
	l *past.Boundary) error {
	keys, err := s.Store.Chats.Keys(ctx, source, s.Cfg.Agents()...)
	if err != nil {
		return err
	}
	notes, err := s.Store.Notes.Read(ctx, keys...)
	if err != nil {
		return err
	}
	noteSources := map[string]bool{"": true} // source messages of notes: whether each is copied
	for _, n := range slices.Concat(notes...) {
		if n.Message != "" {
			noteSources[n.Message] = false
		}
	}
	for _, key := range v.Keys() {
		src := v[key]
		src.OnGap = func(gap webapi.HistoryGap, _ error) error { in.missing += max(gap.Messages, 1); return nil }
		for raw, err := range s.Histories.Staying(ctx, src, l) {
			if _, id := past.HeadOf(raw); err == nil && key.Agent() == "" {
				if _, ok := noteSources[id]; ok {
					noteSources[id] = true
				}
			}
			if err == nil {
				err = in.add(ctx, webapi.ExportLine{Subagent: key.Agent(), Message: raw})
			}
			if err != nil {
				return err
			}
			fair.Yield(ctx)
		}
	}
	for i, key := range keys {
		target := memory.ChatKey(in.writer.Chat)
		if key.Agent() != "" {
			target = memory.SubagentKey(key.Agent(), in.writer.Chat)
		}
		for _, n := range notes[i] {
			if noteSources[n.Message] && (n.Message != "" || l.Ts == 0 || n.TS <= l.Ts) {
				in.notes[target] = append(in.notes[target], n)
				in.noteCount++
			}
		}
	}
	// Messages erased, redacted or rewound during the copy must not survive in the new chat.
	for _, key := range v.Keys() {
		h, _, err := s.Histories.Current(ctx, key)
		if err != nil {
			return err
		}
		segments, err := s.Store.Archives.Segments(ctx, key)
		if err != nil {
			return err
		}
		if h.Cut() != v[key].Cut() || len(segments) < len(v[key].Segments) ||
			!slices.Equal(segments[:len(v[key].Segments)], v[key].Segments) {
			return errForkChanged
		}
	}
	return nil
}
