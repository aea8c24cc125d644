package chats

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/telling"
)

// This file is about notes that the agents of a run make. A model may have been talked into
// anything by what it read; so what it asks for becomes an active note only if the user
// tells it in the very message that the run answers. Anything else is proposed to a person.

// PostRemember is POST …/notes of a run's agents, see memory.RememberRequest. The run's driver
// holds the chat's turn; the note is written under its number.
func (s *NoteRoutes) PostRemember(c *gin.Context, r *runs.Run, req memory.RememberRequest) error {
	text, err := memory.NoteText(req.Quote)
	if err != nil {
		return err
	}
	if r.OwnCalls != nil {
		return problem.BadRequest("Nothing is noted in a run without a chat.")
	}
	key := memory.ChatKey(r.Chat)
	if req.Subagent != "" {
		if !slices.Contains(s.Cfg.Agents(), req.Subagent) {
			return problem.BadRequest("There is no subagent %.80q.", string(req.Subagent))
		}
		key = memory.SubagentKey(req.Subagent, r.Chat)
	}
	turn := r.Turn.Load()
	if turn == 0 {
		return problem.ErrNotHeld
	}
	if req.OfUser && (r.User.IsZero() || req.Subagent != "") {
		return problem.BadRequest("Only the master of a run that has a user makes notes of the user's.")
	}
	ctx := c.Request.Context()
	n, started := past.NewNote(text, memory.NoteProposed, memory.ByModel), r.StartEvent()
	if started == nil {
		return problem.ErrNotHeld
	}
	if telling.Asserts(started.Message, text) {
		n.State, n.Author = memory.NoteActive, memory.ByUser
	}
	if n.Message, err = s.messageOf(ctx, r, started); err != nil { // also of a proposal, which may repeat what it says
		return err
	}
	n.Replaces = req.Replaces
	if req.OfUser {
		n.Chat = r.Chat.ID()
	}
	draft := n
	change := func(notes []memory.Note) ([]memory.Note, error) {
		n = draft // also in a second attempt
		if i := past.NoteAt(notes, n.Replaces); i >= 0 && notes[i].Author == memory.ByOperator &&
			n.State == memory.NoteActive {
			return nil, errOperatorsNote
		}
		return past.AddNote(notes, &n)
	}
	span, _ := s.Cfg.Traces.Start(telemetry.FromContext(ctx), tracing.Begin{Operation: tracing.CreateMemory,
		Subject: tracing.Notes})
	span.SetInput(text)
	if req.OfUser {
		err = s.rememberOfUser(ctx, r, turn, &n, change)
	} else {
		err = s.Store.Notes.Change(ctx, turn, key, change)
	}
	node.EndMemory(span, 1, err)
	return api.Answer(c.Writer, http.StatusCreated, n, err)
}

// rememberOfUser makes a note of the run's user. What takes the message away does so under a newer turn of the chat
// and looks there for the users that have notes from it: so the chat knows before the note is there, and a note that
// came too late for that goes again.
func (s *NoteRoutes) rememberOfUser(ctx context.Context, r *runs.Run, turn int64, n *memory.Note,
	change func([]memory.Note) ([]memory.Note, error)) error {
	if err := s.Store.Users.NoteOfUser(ctx, turn, r.Chat, r.User); err != nil {
		return err
	}
	id := n.ID
	if err := s.Store.Users.ChangeNotes(ctx, r.User, change); err != nil {
		return err
	}
	err := s.Store.Users.NoteOfUser(ctx, turn, r.Chat, r.User)
	if errors.Is(err, memory.ErrMoved) && n.ID == id { // else it was there already
		void := func(notes []memory.Note) ([]memory.Note, error) {
			return slices.DeleteFunc(notes, func(n memory.Note) bool { return n.ID == id }), nil
		}
		err = errors.Join(err, s.Store.Users.ChangeNotes(ctx, r.User, void))
	}
	return err
}

var errOperatorsNote = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeOperatorsNote,
	Message: "That note is the operator's: only a person replaces it. Leave replaces out."}

// messageOf is the id of the run's user message. A run that tries a failed one once more has
// none of its own.
func (s *NoteRoutes) messageOf(ctx context.Context, r *runs.Run, started *event.RunStarted) (string, error) {
	own := memory.MessageID(r.ID, 1)
	if started.RetryOf == "" {
		return own, nil
	}
	h, _, err := s.Histories.Current(ctx, memory.ChatKey(r.Chat))
	if err != nil {
		return "", err
	}
	messages, err := h.Messages(0)
	if err != nil {
		return "", err
	}
	ids := h.IDs()
	for i, m := range slices.Backward(messages) {
		if m.Role == memory.RoleUser && m.Content == started.Message {
			return ids[i], nil
		}
	}
	return own, nil
}
