package turns

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

var errNewerMessage = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeMessagesSince,
	Message: "Another message than if_last is the chat's last one; nothing was changed. Read the history and decide anew."}

// isPlaced reports whether a post has a position. ParentID (after) requests a rewind under the same turn. IfLast
// (if_last) is a compare-and-set on the chat's last message.
func isPlaced(p webapi.MessageRequest) bool { return p.ParentID != nil || p.IfLast != nil }

// fits returns the target of the rewind that a post needs in the chat's histories, or nil if it needs none. It returns
// an error if the post does not match the histories, or if the caller may not rewind that far. If a run was ended for
// the post, closed is that run, otherwise "".
func (s *Starter) fits(ctx context.Context, r *runs.Run, p webapi.MessageRequest, closed string,
	histories map[memory.Key]*memory.History, headCache past.Heads) (target *string, err error) {
	own := histories[memory.ChatKey(r.Chat)]
	if own == nil {
		own = memory.Empty(memory.ChatKey(r.Chat))
	}
	if r.RetryOf != "" && openQuestion(own, p.Message) >= 0 {
		return nil, nil // the question is at that position already
	}
	ids, last := own.IDs(), ""
	if len(ids) > 0 {
		last = ids[len(ids)-1]
	}
	if p.IfLast != nil && *p.IfLast != last && !onlyEnded(own, ids, *p.IfLast, closed, p.OnBusy == webapi.Interrupt) {
		went, err := s.wentBack(ctx, r.Chat, p, histories)
		if err == nil && !went {
			err = errNewerMessage
		}
		if err != nil {
			return nil, err
		}
	}
	if p.ParentID == nil || *p.ParentID == last {
		return nil, nil
	}
	v, err := s.Histories.Pin(ctx, histories, headCache)
	if err != nil {
		return nil, err
	}
	l, err := s.Histories.Locate(ctx, r.Chat, v, *p.ParentID)
	if err != nil {
		return nil, err
	}
	newest, err := s.newestAlone(ctx, v, l)
	if r.GoesBack = node.Rewinds; newest {
		r.GoesBack = node.Regenerates
	}
	if no := new(access.Refusal); errors.As(node.CheckRight(ctx, r.GoesBack), &no) && err == nil {
		refusal := *no
		refusal.Message = "More than the newest exchange would be taken back. " + no.Message
		return nil, &refusal
	}
	return p.ParentID, err
}

// newestAlone reports whether a rewind removes only the chat's newest exchange. A rewind to the start removes
// everything that subagents remember, even if the chat's own history was erased before.
func (s *Starter) newestAlone(ctx context.Context, v past.View, l *past.Boundary) (bool, error) {
	if l.Newest < 0 || l.LastIndex < l.Newest-1 {
		return false, nil
	}
	for key, p := range v {
		if !l.Start || key.Agent() == "" {
			continue
		}
		for one, err := range s.Histories.Parts(ctx, p, past.NoID) {
			if err != nil || slices.ContainsFunc(one.Heads, func(h past.Head) bool { return h.Timestamp < l.NewestTS }) {
				return false, err
			}
		}
	}
	return true, nil
}

// onlyEnded reports whether all messages after message id belong to its run and were written when that run was ended
// for a post. That run is closed or, for a post that interrupts, a run that was cut short.
func onlyEnded(own *memory.History, ids []string, id, closed string, interrupts bool) bool {
	pos, run := slices.Index(ids, id), memory.RunOf(id)
	if pos < 0 || run == "" {
		return false
	}
	for i, raw := range own.Raw(pos + 1) {
		if memory.RunOf(ids[pos+1+i]) != run {
			return false
		}
		var m memory.Message
		if closed != run && (!interrupts || json.Unmarshal(raw, &m) != nil || !m.Partial && m.Failure == "") {
			return false
		}
	}
	return true
}

// wentBack reports whether the histories are as the requested rewind leaves them. In that case the post was sent
// before, to a process that died.
func (s *Starter) wentBack(ctx context.Context, chat memory.Chat, p webapi.MessageRequest,
	histories map[memory.Key]*memory.History) (bool, error) {
	setAsides, err := s.Store.Rewinds.List(ctx, chat)
	if err != nil || p.ParentID == nil || len(setAsides) == 0 || setAsides[len(setAsides)-1].Target != *p.ParentID {
		return false, err
	}
	a := &setAsides[len(setAsides)-1]
	if err := s.Histories.UnchangedSince(ctx, histories, a); err != nil {
		if errors.Is(err, problem.ErrMessagesSince) {
			err = nil
		}
		return false, err
	}
	last := ""
	for _, ah := range a.Histories {
		if ah.Key != memory.ChatKey(chat).String() {
			continue
		}
		last = ah.Last
		for piece, err := range s.Store.Rewinds.Pieces(ctx, chat, a.ID, ah) {
			if err != nil {
				return false, err
			}
			_, last = past.HeadOf(piece.Messages[len(piece.Messages)-1])
		}
	}
	return last == *p.IfLast, nil
}

// checkPosition refuses a post whose position does not match the chat, if the post would close a run.
func (s *Starter) checkPosition(ctx context.Context, p *post) error {
	if !isPlaced(p.request) {
		return nil
	}
	if p.request.OnBusy != webapi.Interrupt {
		if rest, err := s.Store.Suspensions.Rest(ctx, p.run.Chat); err != nil || rest == nil {
			return err // no run is closed for the post; place checks the position under the lease
		}
	}
	histories, err := s.Histories.CurrentAll(ctx, p.run.Chat)
	if err == nil {
		_, err = s.fits(ctx, p.run, p.request, "", histories, nil)
	}
	if err == nil || !p.run.Keyed {
		return err
	}
	record, unknown := runs.RecordOf(ctx, s.Store, p.run)
	if record != nil {
		p.record = record
		return nil
	}
	return errors.Join(err, unknown)
}

// place rewinds the chat's histories to the position of a post that has one. p.rewindID identifies the set-aside
// messages. If another process has the run's record, the steps end before anything changes.
func (s *Starter) place(ctx context.Context, p *post) (err error) {
	if !isPlaced(p.request) {
		return nil
	}
	if p.run.Keyed {
		if p.record, err = runs.RecordOf(ctx, s.Store, p.run); err != nil || p.record != nil {
			return err
		}
	}
	headCache := past.Heads{}
	target, err := s.fits(ctx, p.run, p.request, p.writer.Closed, p.writer.Histories, headCache)
	if err != nil || target == nil {
		return err
	}
	ctx, cancel := changeContext(p.writer) // a disconnect must not stop the rewind halfway
	defer cancel()
	setAside, err := s.Rewinder.RewindUnder(ctx, p.writer, *target, headCache)
	if err != nil || setAside.ID == "" {
		return err
	}
	p.rewindID = setAside.ID
	return s.Eraser.FreshConversation(ctx, p.writer)
}

// undo restores the messages that a rewind removed for a post that was refused later.
func (s *Starter) undo(w *runs.Writer, rewindID string) {
	ctx, cancel := changeContext(w)
	defer cancel()
	a, err := s.Store.Rewinds.Read(ctx, w.Chat, rewindID)
	if err == nil && a != nil {
		err = s.Rewinder.RestoreUnder(ctx, w, a)
	}
	if err != nil {
		s.Log.Warn().Err(err).Str("chat", w.Chat.String()).Msg("what a refused message took back is still set aside")
	}
}

// changeContext returns a context for a change of a chat's memory. It ends when the lease is lost, but not when the
// client disconnects.
func changeContext(w *runs.Writer) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.Ctx, node.ScanTimeout)
}
