package turns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// This file is about the beginning of a run: it gets the chat's lease, is recorded, and
// the apiserver is asked for it. A post that is refused before the apiserver has accepted
// leaves nothing behind.

// Starter brings a post from its chat's turn to a run that the apiserver has taken. It writes the run's record, its
// note as the chat's open run and, for a post that says where it stands, a rewind: each before the apiserver is asked,
// and undone if that refuses the post.
type Starter struct {
	*node.Core
	StoreWatch *node.StoreWatch
	Histories  *past.Histories
	Rewinder   *erase.Rewinder
	Eraser     *erase.Eraser
	Runner     *runs.Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

var (

	// errAsked: the apiserver was asked to run, and may do so though it did not say.
	errAsked = errors.New("asking the apiserver")
)

// start gets the chat's lease, has the apiserver run what was posted, and leaves the run to
// a driver. A record instead: another process has run it meanwhile.
func (s *Starter) start(ctx context.Context, r *runs.Run, p webapi.MessageRequest) (*redisstore.Record, error) {
	if record, err := s.mayFollow(ctx, r, p); err != nil || record != nil {
		return record, err
	}
	if record, err := s.mayStore(ctx, r); err != nil || record != nil { // before a run that waits is closed
		return record, err
	}
	r.User, _ = r.Chat.Tenant().User(p.User) // a user of another form has no notes
	ctx = runs.BeginSpan(ctx, s.Cfg.Traces, r, p.Message, p.User, "")
	w, err := s.Leaser.turnOf(ctx, r, places[p.OnBusy])
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
		s.WriteAudit(ctx, r.Chat.Tenant(), node.BesideEntries[r.GoesBack], "chats/"+r.Chat.ID()+"/runs/"+r.ID)
	}
	switch {
	case err == nil && w.Open != nil:
		s.Runner.Resume(w) // it goes on, only Redis had forgotten it
		return &redisstore.Record{Body: r.Body}, nil
	case err == nil && record == nil:
		d := s.Runner.Driver(r, w, w.OpenRun.Load().Events)
		s.Workers.Go(func() { s.Runner.Work(d) })
		return nil, nil
	}
	log := r.Trail.Logger(s.Log)
	if err != nil && rewindID != "" {
		s.undo(w, rewindID)
	}
	if w.Release(w.End, &log) != nil && errors.Is(err, errAsked) {
		err = fmt.Errorf("%w: %w", problem.ErrMayRun, err)
	}
	return record, err
}

// mayStore returns errStorageFull if the tenant has reached its limit. The record instead: the message is stored already.
func (s *Starter) mayStore(ctx context.Context, r *runs.Run) (record *redisstore.Record, err error) {
	if _, err = s.Room(ctx, r.Chat.Tenant()); err != nil && r.Keyed {
		if record, _ = runs.RecordOf(ctx, s.Store, r); record != nil {
			return record, nil
		}
	}
	return nil, err
}

// note keeps a record of a run under its chat's lease: found is one that is there already,
// since another process has run it, or since Redis is told of it again. If the run goes
// on, and only Redis had forgotten it, it is the lease's open run then.
func (s *Starter) note(ctx context.Context, r *runs.Run, w *runs.Writer) (record *redisstore.Record, err error) {
	if record, err = s.Runner.NoteRun(ctx, r); err != nil || record != nil {
		return record, err
	}
	record, err = s.Restorer.forgotten(ctx, r, w)
	return record, s.orWithdraw(ctx, r, err)
}

// orWithdraw takes back what was noted of a run, if err says that it was not begun.
func (s *Starter) orWithdraw(ctx context.Context, r *runs.Run, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.StoreTimeout)
	defer cancel()
	return errors.Join(err, s.Store.Runs.Withdraw(ctx, r.Chat, r.ID))
}

// open notes the run beside the chat's lease, so that it is finished whatever happens to
// this process, and asks the apiserver for it. One that the apiserver has already is the
// lease's open run then.
func (s *Starter) open(ctx context.Context, r *runs.Run, p webapi.MessageRequest, w *runs.Writer) error {
	note := r.OpenRun(w.Number)
	note.Posted = true
	// Where its events will be as far as is known here: the apiserver that answers may name another process.
	note.Events, note.Process, note.Title = s.Runs.EventsURL(r.ID), s.Spool.Name(), memory.Title(p.Message)
	loss, err := s.Store.Turns.Open(ctx, r.Chat, w.Token, s.Cfg.Lease, note)
	w.Opened(note)
	if err != nil {
		return s.orWithdraw(ctx, r, err)
	}
	if r.Epoch, r.ReportsLoss = s.StoreWatch.LossOf(ctx, r.Chat, loss); r.ReportsLoss {
		if err := s.Restorer.closeLost(ctx, w); err != nil {
			return s.orWithdraw(ctx, r, err)
		}
	}
	var notes api.RunNotes
	if loss.Notes {
		if notes, err = s.notesShown(ctx, w); err != nil {
			return s.orWithdraw(ctx, r, err)
		}
	}
	notes.UserNotes = past.Active(loss.UserNotes)
	accepted, err := s.ask(ctx, r, p, w, notes, loss)
	if r.Keyed && node.HasRun(err) {
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
	w.Opened(note)
	note.Posted = false
	if _, err := s.Store.Turns.Open(context.WithoutCancel(ctx), r.Chat, w.Token, s.Cfg.Lease, note); err != nil {
		// It is noted without its URL: the process that comes after this one asks the configured apiserver.
		s.Log.Warn().Err(err).EmbedObject(r.Trail).Msg("a run's place was not noted")
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
	return node.StoreTimeout + time.Duration(size>>20)*time.Second
}

// ask posts the run with what the memory holds.
func (s *Starter) ask(ctx context.Context, r *runs.Run, p webapi.MessageRequest, w *runs.Writer, notes api.RunNotes,
	loss redisstore.Loss) (api.RunAccepted, error) {
	for key, h := range w.Histories {
		if h.Size() > s.Cfg.FullAt {
			return api.RunAccepted{}, fmt.Errorf("%s: %w", key, memory.ErrFull)
		}
	}
	key := memory.ChatKey(r.Chat)
	chat := w.History(key)
	question, hidden := openQuestion(chat, p.Message), loss.Quarantine
	retried := r.RetryOf != "" && question >= 0
	if retried { // a first attempt that was to forget something is hidden, with the question
		hidden = slices.DeleteFunc(slices.Clone(hidden), func(entry string) bool {
			return entry == memory.ForgetEntry+memory.RunOf(chat.IDs()[question])
		})
	}
	lines := []string{node.SessionLine("request: %s", p.Message),
		node.SessionLine("history of the chat loaded: %d messages", chat.Len())}
	req := api.RunRequest{
		RunID: r.ID, Message: p.Message, ChatID: r.Chat, AgentVersion: p.AgentVersion,
		ConversationID:   w.Conversation,
		Context:          hidden.Filter(chat.Window(s.Cfg.ContextWindow)),
		SubagentContexts: map[memory.Agent][]json.RawMessage{},
		RunNotes:         notes, User: p.User, Tools: p.Tools, Wishes: p.Wishes, Approved: loss.Approved,
		Instructions: p.Instructions, Pasted: p.Pasted, Metadata: p.Metadata, Images: p.Images, ImagesBefore: p.ImagesBefore,
		TimeZone: node.ZoneOf(ctx, s.Core, p.TimeZone, r.User),
	}
	windows := map[memory.Key]runs.Windowed{key: {History: chat, Window: req.Context}}
	if retried {
		req.RetryOf = r.RetryOf
	}
	if len(p.Context) > 0 && p.AgentVersion == webapi.Master {
		if req.Context = slices.Clone(p.Context); req.RetryOf != "" {
			req.Context = append(req.Context, chat.Raw(question)...)
		}
		windows[key] = runs.Windowed{History: chat, Window: nil}
	}
	for _, a := range w.Subagents {
		h := w.History(memory.SubagentKey(a, r.Chat))
		req.SubagentContexts[a] = hidden.Filter(h.Window(s.Cfg.SubagentContextWindow))
		windows[h.Key()] = runs.Windowed{History: h, Window: req.SubagentContexts[a]}
		if len(p.Context) > 0 && p.AgentVersion == string(a) {
			req.SubagentContexts[a], windows[h.Key()] = p.Context, runs.Windowed{History: h, Window: nil}
		}
		lines = append(lines, node.SessionLine("history of %s loaded: %d messages", a, h.Len()))
	}
	s.Sessions.Write(r.Chat, lines...)
	r.StartPayloads = []event.Payload{&event.RunStarted{
		ChatID: r.Chat, AgentVersion: p.AgentVersion, Subagents: w.Subagents, Message: p.Message, RetryOf: req.RetryOf,
		Pasted: p.Pasted, Metadata: p.Metadata, Images: r.Images,
	}}
	if req.MemoryReset = r.ReportsLoss; r.ReportsLoss {
		r.StartPayloads = append(r.StartPayloads, &event.MemoryReset{})
	}
	r.Turn.Store(w.Number)
	if s.Cfg.SelfURL != "" {
		r.Mu.Lock()
		r.LeaseToken = w.Token
		r.Mu.Unlock()
		req.Memory = s.Runner.Access(r, windows)
	}
	// A client that leaves meanwhile cancels nothing: the run is the service's.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout(req))
	defer cancel()
	accepted, err := s.Runs.PostRun(ctx, req)
	if err != nil {
		// It may have arrived all the same; without a reader it must not go on.
		if !node.HasRun(err) {
			s.Workers.Go(func() { s.Runner.Forget(r) })
		}
		return accepted, node.Unreachable(err)
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

// notesShown are the notes that the agents of a chat are shown, in one round trip. What is no
// list of notes is set aside.
func (s *Starter) notesShown(ctx context.Context, w *runs.Writer) (out api.RunNotes, err error) {
	keys := []memory.Key{memory.ChatKey(w.Chat)}
	for _, a := range w.Subagents {
		keys = append(keys, memory.SubagentKey(a, w.Chat))
	}
	notes, err := s.Store.Notes.Read(ctx, keys...)
	if errors.Is(err, memory.ErrDamaged) {
		for _, key := range keys {
			same := func(list []memory.Note) ([]memory.Note, error) { return list, nil }
			if err := s.Store.Notes.Change(ctx, w.Number, key, same); err != nil {
				return out, err
			}
		}
		notes, err = s.Store.Notes.Read(ctx, keys...)
	}
	if err != nil {
		return out, err
	}
	for i, key := range keys {
		activeNotes := past.Active(notes[i])
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
