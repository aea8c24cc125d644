package webmemory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
)

// This file is about the beginning of a run: it gets the chat's lease, is recorded, and
// the apiserver is asked for it. A post that is refused before the apiserver has accepted
// leaves nothing behind.

// starter brings a post from its chat's turn to a run that the apiserver has taken. It writes the run's record, its
// note as the chat's open run and, for a post that says where it stands, a rewind: each before the apiserver is asked,
// and undone if that refuses the post.
type starter struct {
	*core
	storeWatch *storeWatch
	histories  *histories
	rewinder   *rewinder
	eraser     *eraser
	runner     *runner
	restorer   *restorer
	leaser     *leaser
}

var (
	// errAsked: the apiserver was asked to run, and may do so though it did not say.
	errAsked = errors.New("asking the apiserver")
	// errMayRun: that could not be taken back, since Redis went away: a process that looks
	// after the chat may find the run and bring it to its end.
	errMayRun = &api.Problem{
		Status: http.StatusBadGateway, Code: webapi.CodeOutcomeUnknown, Retryable: true,
		Message: "The message may be answered or not; repeat it with its Idempotency-Key, or read the chat's history.",
	}
)

// start gets the chat's lease, has the apiserver run what was posted, and leaves the run to
// a driver. A record instead: another process has run it meanwhile.
func (s *starter) start(ctx context.Context, r *run, p webapi.MessageRequest) (*redisstore.Record, error) {
	if record, err := s.mayFollow(ctx, r, p); err != nil || record != nil {
		return record, err
	}
	if record, err := s.mayStore(ctx, r); err != nil || record != nil { // before a run that waits is closed
		return record, err
	}
	r.user, _ = r.chat.Tenant().User(p.User) // a user of another form has no notes
	ctx = beginSpan(ctx, s.cfg.Traces, r, p.Message, p.User, "")
	w, err := s.leaser.turnOf(ctx, r, places[p.OnBusy])
	if own, ok := errors.AsType[*ownRunError](err); ok {
		return own.record, nil
	}
	if err != nil {
		return nil, err
	}
	rewindID, record, err := s.goBack(ctx, r, p, w)
	if err == nil && record == nil {
		record, err = s.note(ctx, r, w)
	}
	if err == nil && record == nil && w.Open == nil {
		err = s.open(ctx, r, p, w)
	}
	if err == nil && rewindID != "" {
		s.writeAudit(ctx, r.chat.Tenant(), besideEntries[r.goesBack], "chats/"+r.chat.ID()+"/runs/"+r.id)
	}
	switch {
	case err == nil && w.Open != nil:
		s.runner.resume(w) // it goes on, only Redis had forgotten it
		return &redisstore.Record{Body: r.body}, nil
	case err == nil && record == nil:
		d := s.runner.driver(r, w, w.openRun.Load().Events)
		s.workers.Go(func() { s.runner.work(d) })
		return nil, nil
	}
	log := r.trail.Logger(s.log)
	if err != nil && rewindID != "" {
		s.undo(w, rewindID)
	}
	if w.release(w.end, &log) != nil && errors.Is(err, errAsked) {
		err = fmt.Errorf("%w: %w", errMayRun, err)
	}
	return record, err
}

// mayStore returns errStorageFull if the tenant has reached its limit. The record instead: the message is stored already.
func (s *starter) mayStore(ctx context.Context, r *run) (record *redisstore.Record, err error) {
	if _, err = s.room(ctx, r.chat.Tenant()); err != nil && r.keyed {
		if record, _ = recordOf(ctx, s.store, r); record != nil {
			return record, nil
		}
	}
	return nil, err
}

// note keeps a record of a run under its chat's lease: found is one that is there already,
// since another process has run it, or since Redis is told of it again. If the run goes
// on, and only Redis had forgotten it, it is the lease's open run then.
func (s *starter) note(ctx context.Context, r *run, w *writer) (record *redisstore.Record, err error) {
	if record, err = s.runner.noteRun(ctx, r); err != nil || record != nil {
		return record, err
	}
	record, err = s.restorer.forgotten(ctx, r, w)
	return record, s.orWithdraw(ctx, r, err)
}

// orWithdraw takes back what was noted of a run, if err says that it was not begun.
func (s *starter) orWithdraw(ctx context.Context, r *run, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return errors.Join(err, s.store.Runs.Withdraw(ctx, r.chat, r.id))
}

// open notes the run beside the chat's lease, so that it is finished whatever happens to
// this process, and asks the apiserver for it. One that the apiserver has already is the
// lease's open run then.
func (s *starter) open(ctx context.Context, r *run, p webapi.MessageRequest, w *writer) error {
	note := r.openRun(w.Number)
	note.Posted = true
	// Where its events will be as far as is known here: the apiserver that answers may name another process.
	note.Events, note.Process, note.Title = s.runs.EventsURL(r.id), s.spool.Name(), memory.Title(p.Message)
	loss, err := s.store.Turns.Open(ctx, r.chat, w.token, s.cfg.Lease, note)
	w.opened(note)
	if err != nil {
		return s.orWithdraw(ctx, r, err)
	}
	if r.epoch, r.reportsLoss = s.storeWatch.lossOf(ctx, r.chat, loss); r.reportsLoss {
		if err := s.restorer.closeLost(ctx, w); err != nil {
			return s.orWithdraw(ctx, r, err)
		}
	}
	var notes api.RunNotes
	if loss.Notes {
		if notes, err = s.notesShown(ctx, w); err != nil {
			return s.orWithdraw(ctx, r, err)
		}
	}
	notes.UserNotes = active(loss.UserNotes)
	accepted, err := s.ask(ctx, r, p, w, notes, loss)
	if r.keyed && hasRun(err) {
		w.Open = &note
		return nil
	}
	if err != nil {
		return s.orWithdraw(ctx, r, fmt.Errorf("%w: %w", errAsked, err))
	}
	if note.Events == accepted.Events {
		return nil
	}
	note.Events = accepted.Events
	w.opened(note)
	note.Posted = false
	if _, err := s.store.Turns.Open(context.WithoutCancel(ctx), r.chat, w.token, s.cfg.Lease, note); err != nil {
		// It is noted without its URL: the process that comes after this one asks the configured apiserver.
		s.log.Warn().Err(err).EmbedObject(r.trail).Msg("a run's place was not noted")
	}
	return nil
}

// postTimeout bounds a request to the apiserver that starts a run: one with images may have tens of MiB, which both
// sides check.
func postTimeout(r api.RunRequest) time.Duration {
	size := 0
	for _, image := range slices.Concat(r.Images, r.ImagesBefore) {
		size += len(image)
	}
	return storeTimeout + time.Duration(size>>20)*time.Second
}

// ask posts the run with what the memory holds.
func (s *starter) ask(ctx context.Context, r *run, p webapi.MessageRequest, w *writer, notes api.RunNotes,
	loss redisstore.Loss) (api.RunAccepted, error) {
	for key, h := range w.histories {
		if h.Size() > s.cfg.FullAt {
			return api.RunAccepted{}, fmt.Errorf("%s: %w", key, memory.ErrFull)
		}
	}
	key := memory.ChatKey(r.chat)
	chat := w.history(key)
	question, hidden := openQuestion(chat, p.Message), loss.Quarantine
	retried := r.retryOf != "" && question >= 0
	if retried { // a first attempt that was to forget something is hidden, with the question
		hidden = slices.DeleteFunc(slices.Clone(hidden), func(entry string) bool {
			return entry == memory.ForgetEntry+memory.RunOf(chat.IDs()[question])
		})
	}
	lines := []string{sessionLine("request: %s", p.Message),
		sessionLine("history of the chat loaded: %d messages", chat.Len())}
	req := api.RunRequest{
		RunID: r.id, Message: p.Message, ChatID: r.chat, AgentVersion: p.AgentVersion,
		ConversationID:   w.Conversation,
		Context:          hidden.Filter(chat.Window(s.cfg.ContextWindow)),
		SubagentContexts: map[memory.Agent][]json.RawMessage{},
		RunNotes:         notes, User: p.User, Tools: p.Tools, Wishes: p.Wishes, Approved: loss.Approved,
		Instructions: p.Instructions, Pasted: p.Pasted, Metadata: p.Metadata, Images: p.Images, ImagesBefore: p.ImagesBefore,
		TimeZone: zoneOf(ctx, s.core, p.TimeZone, r.user),
	}
	windows := map[memory.Key]windowed{key: {chat, req.Context}}
	if retried {
		req.RetryOf = r.retryOf
	}
	if len(p.Context) > 0 && p.AgentVersion == webapi.Master {
		if req.Context = slices.Clone(p.Context); req.RetryOf != "" {
			req.Context = append(req.Context, chat.Raw(question)...)
		}
		windows[key] = windowed{chat, nil}
	}
	for _, a := range w.agents {
		h := w.history(memory.SubagentKey(a, r.chat))
		req.SubagentContexts[a] = hidden.Filter(h.Window(s.cfg.SubagentContextWindow))
		windows[h.Key()] = windowed{h, req.SubagentContexts[a]}
		if len(p.Context) > 0 && p.AgentVersion == string(a) {
			req.SubagentContexts[a], windows[h.Key()] = p.Context, windowed{h, nil}
		}
		lines = append(lines, sessionLine("history of %s loaded: %d messages", a, h.Len()))
	}
	s.sessions.write(r.chat, lines...)
	r.startPayloads = []event.Payload{&event.RunStarted{
		ChatID: r.chat, AgentVersion: p.AgentVersion, Subagents: w.agents, Message: p.Message, RetryOf: req.RetryOf,
		Pasted: p.Pasted, Metadata: p.Metadata, Images: r.images,
	}}
	if req.MemoryReset = r.reportsLoss; r.reportsLoss {
		r.startPayloads = append(r.startPayloads, &event.MemoryReset{})
	}
	r.turn.Store(w.Number)
	if s.cfg.SelfURL != "" {
		r.mu.Lock()
		r.leaseToken = w.token
		r.mu.Unlock()
		req.Memory = s.runner.access(r, windows)
	}
	// A client that leaves meanwhile cancels nothing: the run is the service's.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout(req))
	defer cancel()
	accepted, err := s.runs.PostRun(ctx, req)
	if err != nil {
		// It may have arrived all the same; without a reader it must not go on.
		if !hasRun(err) {
			s.workers.Go(func() { s.runner.forget(r) })
		}
		return accepted, asking(err)
	}
	return accepted, nil
}

// openQuestion returns the index of the question at the end of a chat's history that was answered by failures alone, or -1. The
// question is message, so that another attempt must not store it again. Older versions stored no failures; whether such a
// question failed is unknown.
func openQuestion(h *memory.History, message string) int {
	for i := h.Len() - 1; i >= 0; i-- {
		last, err := memory.Decode(h.Raw(i)[:1])
		if err != nil {
			return -1
		}
		if m := last[0]; m.Role != memory.RoleAssistant || m.Failure == "" {
			if i < h.Len()-1 && m.Role == memory.RoleUser && m.Content == message {
				return i
			}
			return -1
		}
	}
	return -1
}

// hasRun says whether the apiserver refused a run since it has one with this id: the
// post is a repetition of one with a record that Redis has lost.
func hasRun(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Code == api.RunConflict
}

// asking is a failure to reach the apiserver in a client's words.
func asking(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && (p.Status == http.StatusServiceUnavailable ||
		p.Status == http.StatusBadRequest || p.Status == http.StatusRequestEntityTooLarge || hasRun(err)) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
		Message: "The agents cannot be reached right now; please send the message again.",
	}, err)
}

// notesShown are the notes that the agents of a chat are shown, in one round trip. What is no
// list of notes is set aside.
func (s *starter) notesShown(ctx context.Context, w *writer) (out api.RunNotes, err error) {
	keys := []memory.Key{memory.ChatKey(w.chat)}
	for _, a := range w.agents {
		keys = append(keys, memory.SubagentKey(a, w.chat))
	}
	notes, err := s.store.Notes.Read(ctx, keys...)
	if errors.Is(err, memory.ErrDamaged) {
		for _, key := range keys {
			same := func(list []memory.Note) ([]memory.Note, error) { return list, nil }
			if err := s.store.Notes.Change(ctx, w.Number, key, same); err != nil {
				return out, err
			}
		}
		notes, err = s.store.Notes.Read(ctx, keys...)
	}
	if err != nil {
		return out, err
	}
	for i, key := range keys {
		activeNotes := active(notes[i])
		switch {
		case len(activeNotes) == 0:
		case key.Agent() == "":
			out.Notes = activeNotes
		default:
			if out.SubagentNotes == nil {
				out.SubagentNotes = map[memory.Agent][]memory.Note{}
			}
			out.SubagentNotes[key.Agent()] = activeNotes
		}
	}
	return out, nil
}
