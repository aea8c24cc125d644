package webmemory

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
)

// This file is about posts that say where they stand: behind which message of the chat (after), which is a
// rewind and a message under one turn, and which message they take for the chat's last one (if_last), a
// compare-and-set.

var errMoreSaid = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeMessagesSince,
	Message: "Another message than if_last is the chat's last one; nothing was changed. Read the history and decide anew."}

// isPlaced says whether a post says where it stands.
func isPlaced(p webapi.MessageRequest) bool { return p.ParentID != nil || p.IfLast != nil }

// fits gives the message to which a chat's histories are to go back for a post, nil if they need not; or why the
// post does not follow what they say, or may not take so much back. closed is the run that was ended for the post, ""
// for none.
func (s *starter) fits(ctx context.Context, r *run, p webapi.MessageRequest, closed string,
	histories map[memory.Key]*memory.History, headCache heads) (target *string, err error) {
	own := histories[memory.ChatKey(r.chat)]
	if own == nil {
		own = memory.Empty(memory.ChatKey(r.chat))
	}
	if r.retryOf != "" && openQuestion(own, p.Message) >= 0 {
		return nil, nil // it stands there already
	}
	ids, last := own.IDs(), ""
	if len(ids) > 0 {
		last = ids[len(ids)-1]
	}
	if p.IfLast != nil && *p.IfLast != last && !onlyEnded(own, ids, *p.IfLast, closed, p.OnBusy == webapi.Interrupt) {
		went, err := s.wentBack(ctx, r.chat, p, histories)
		if err == nil && !went {
			err = errMoreSaid
		}
		if err != nil {
			return nil, err
		}
	}
	if p.ParentID == nil || *p.ParentID == last {
		return nil, nil
	}
	v, err := s.histories.pin(ctx, histories, headCache)
	if err != nil {
		return nil, err
	}
	l, err := s.histories.locate(ctx, r.chat, v, *p.ParentID)
	if err != nil {
		return nil, err
	}
	newest, err := s.newestAlone(ctx, v, l)
	if r.goesBack = rewinds; newest {
		r.goesBack = regenerates
	}
	if no := new(access.Refusal); errors.As(checkRight(ctx, r.goesBack), &no) && err == nil {
		refusal := *no
		refusal.Message = "More than the newest exchange would be taken back. " + no.Message
		return nil, &refusal
	}
	return p.ParentID, err
}

// newestAlone says whether nothing of a chat goes but its newest exchange. From the start all goes that a subagent
// remembers, also where the chat's own history was erased before.
func (s *starter) newestAlone(ctx context.Context, v view, l *boundary) (bool, error) {
	if l.newest < 0 || l.lastIndex < l.newest-1 {
		return false, nil
	}
	for key, p := range v {
		if !l.start || key.Agent() == "" {
			continue
		}
		for one, err := range s.histories.parts(ctx, p, noID) {
			if err != nil || slices.ContainsFunc(one.heads, func(h head) bool { return h.Timestamp < l.newestTS }) {
				return false, err
			}
		}
	}
	return true, nil
}

// onlyEnded says whether nothing stands behind a message but what its run left when it was ended for a post:
// the run closed, or, of a post that interrupts, one that was cut short.
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

// wentBack says whether the histories stand as the rewind left them that a post asks for: it was posted before,
// to a process that died then.
func (s *starter) wentBack(ctx context.Context, chat memory.Chat, p webapi.MessageRequest,
	histories map[memory.Key]*memory.History) (bool, error) {
	setAsides, err := s.store.Rewinds.List(ctx, chat)
	if err != nil || p.ParentID == nil || len(setAsides) == 0 || setAsides[len(setAsides)-1].Target != *p.ParentID {
		return false, err
	}
	a := &setAsides[len(setAsides)-1]
	if err := s.histories.unchangedSince(ctx, histories, a); err != nil {
		if errors.Is(err, errMessagesSince) {
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
		for piece, err := range s.store.Rewinds.Pieces(ctx, chat, a.ID, ah) {
			if err != nil {
				return false, err
			}
			_, last = headOf(piece.Messages[len(piece.Messages)-1])
		}
	}
	return last == *p.IfLast, nil
}

// mayFollow refuses a post that is to end a run and does not follow what the chat says, before that run is
// ended. The record instead: another process has the post's run.
func (s *starter) mayFollow(ctx context.Context, r *run, p webapi.MessageRequest) (*redisstore.Record, error) {
	if !isPlaced(p) {
		return nil, nil
	}
	if p.OnBusy != webapi.Interrupt {
		if rest, err := s.store.Suspensions.Rest(ctx, r.chat); err != nil || rest == nil {
			return nil, err // nothing is ended for it; it is looked at under the turn
		}
	}
	histories, err := s.histories.currentAll(ctx, r.chat)
	if err == nil {
		_, err = s.fits(ctx, r, p, "", histories, nil)
	}
	if err == nil || !r.keyed {
		return nil, err
	}
	record, unknown := recordOf(ctx, s.store, r)
	if record != nil {
		return record, nil
	}
	return nil, errors.Join(err, unknown)
}

// goBack has the chat's histories end where a post stands, under its turn. back is the id of what is set
// aside for it, "" for nothing. The record instead: another process has the post's run.
func (s *starter) goBack(ctx context.Context, r *run, p webapi.MessageRequest, w *writer) (rewindID string,
	record *redisstore.Record, err error) {
	if !isPlaced(p) {
		return "", nil, nil
	}
	if r.keyed {
		if record, err = recordOf(ctx, s.store, r); err != nil || record != nil {
			return "", record, err
		}
	}
	headCache := heads{}
	target, err := s.fits(ctx, r, p, w.closed, w.histories, headCache)
	if err != nil || target == nil {
		return "", nil, err
	}
	// What follows must not end with the client, half way.
	ctx, cancel := changeContext(w)
	defer cancel()
	setAside, err := s.rewinder.rewindUnder(ctx, w, *target, headCache)
	if err != nil || setAside.ID == "" {
		return "", nil, err
	}
	return setAside.ID, nil, s.eraser.freshConversation(ctx, w)
}

// undo puts back what was taken back for a post that was refused then.
func (s *starter) undo(w *writer, rewindID string) {
	ctx, cancel := changeContext(w)
	defer cancel()
	a, err := s.store.Rewinds.Read(ctx, w.chat, rewindID)
	if err == nil && a != nil {
		err = s.rewinder.restoreUnder(ctx, w, a)
	}
	if err != nil {
		s.log.Warn().Err(err).Str("chat", w.chat.String()).Msg("what a refused message took back is still set aside")
	}
}

// changeContext is a context for a change of a chat's memory: it ends with the loss of the lease, and not when a client
// leaves.
func changeContext(w *writer) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.ctx, scanTimeout)
}
