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

// PostRemember handles POST …/notes of a run's agents, see memory.RememberRequest. The model may be manipulated by a
// text that it read. So the note becomes active only if the user asserts it in the message that the run answers. Other
// notes are proposals for a person.
//
// The note is written under the turn of the lease that the run's driver holds.
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
	if n.Message, err = s.messageOf(ctx, r, started); err != nil { // also for a proposal, which may repeat the message
		return err
	}
	n.Replaces = req.Replaces
	if req.OfUser {
		n.Chat = r.Chat.ID()
	}
	draft := n
	change := func(notes []memory.Note) ([]memory.Note, error) {
		n = draft // change may run more than once
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

// rememberOfUser stores a note of the run's user. A removal of the message has a newer turn and looks in the chat for
// users with notes from it. So the chat records the user before the note is stored. If a newer turn exists afterwards,
// the removal may have missed the note. rememberOfUser then deletes it and returns memory.ErrMoved.
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
	if errors.Is(err, memory.ErrMoved) && n.ID == id { // otherwise the note existed before
		void := func(notes []memory.Note) ([]memory.Note, error) {
			return slices.DeleteFunc(notes, func(n memory.Note) bool { return n.ID == id }), nil
		}
		err = errors.Join(err, s.Store.Users.ChangeNotes(ctx, r.User, void))
	}
	return err
}

var errOperatorsNote = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeOperatorsNote,
	Message: "That note is the operator's: only a person replaces it. Leave replaces out."}

// messageOf returns the id of the run's user message. A run that retries a failed run has none, so messageOf returns
// the newest user message with the same text.
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
