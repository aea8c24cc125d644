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
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/runs"
)

// postTimeout returns the timeout of a request to the apiserver that starts a run. A request with images may have tens
// of MiB, which both sides check.
func postTimeout(r api.RunRequest) time.Duration {
	size := 0
	for _, image := range slices.Concat(r.Images, r.ImagesBefore) {
		size += len(image)
	}
	return node.StoreTimeout + time.Duration(size>>20)*time.Second
}

// postRun sends the run and the windows of the histories to the apiserver.
func (s *Starter) postRun(ctx context.Context, post *post) (api.RunAccepted, error) {
	r, p, w := post.run, post.request, post.writer
	for key, h := range w.Histories {
		if h.Size() > s.Cfg.FullAt {
			return api.RunAccepted{}, fmt.Errorf("%s: %w", key, memory.ErrFull)
		}
	}
	key := memory.ChatKey(r.Chat)
	chat := w.History(key)
	question, hidden := openQuestion(chat, p.Message), post.loss.Quarantine
	retried := r.RetryOf != "" && question >= 0
	if retried { // a first attempt that proposed to forget a message is hidden with its question; show both again
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
		RunNotes:         post.notes, User: p.User, Tools: p.Tools, Wishes: p.Wishes, Approved: post.loss.Approved,
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
	// A disconnect cancels nothing: the service owns the run.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout(req))
	defer cancel()
	accepted, err := s.Runs.PostRun(ctx, req)
	if err != nil {
		// The request may have arrived anyway. Without a reader the run must not continue.
		if !node.HasRun(err) {
			s.Workers.Go(func() { s.Runner.Forget(r) })
		}
		return accepted, node.Unreachable(err)
	}
	return accepted, nil
}

// openQuestion returns the index of the question at the end of a chat's history if only failures answered it, otherwise
// -1. The question is message, so another attempt must not store it again. Older versions stored no failures, so such
// questions are not found.
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

// notesShown returns the notes that the agents of a chat see, in one round trip. It first sets aside stored values that
// are not lists of notes.
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
