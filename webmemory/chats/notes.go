package chats

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
)

// This file is about notes: what must stand in every prompt of a chat, or of one of its
// subagents, or of all chats of a user. A person changes them by the public routes, those of a chat under its turn.

// NoteRoutes serves the notes of histories and users, and the settings of users. It changes a history's notes under the
// chat's turn.
type NoteRoutes struct {
	*node.Core
	Histories *past.Histories
	Leaser    *turns.Leaser
}

// GetNotes is GET …/notes of a chat, of one of its subagents, or of a user.
func (s *NoteRoutes) GetNotes(c *gin.Context) error {
	notes, err := s.notesOf(c)
	return api.Answer(c.Writer, http.StatusOK, webapi.NoteList{Notes: append([]memory.Note{}, notes...)}, err)
}

// GetUser is GET /v1/users/{user}.
func (s *NoteRoutes) GetUser(c *gin.Context, u memory.User) error {
	zone, err := s.Store.Users.Zone(c.Request.Context(), u)
	return api.Answer(c.Writer, http.StatusOK, webapi.UserSettings{TimeZone: zone}, err)
}

// PutUser is PUT /v1/users/{user}.
func (s *NoteRoutes) PutUser(c *gin.Context, set webapi.UserSettings) error {
	u, err := problem.UserOf(c)
	if err == nil {
		_, err = api.ReadZone(set.TimeZone)
	}
	if err == nil {
		err = s.Store.Users.SetZone(c.Request.Context(), u, set.TimeZone)
	}
	return api.Answer(c.Writer, http.StatusOK, set, err)
}

// notesOf are the notes of a route's history or user.
func (s *NoteRoutes) notesOf(c *gin.Context) ([]memory.Note, error) {
	ctx := c.Request.Context()
	if problem.IsOfUser(c) {
		u, err := problem.UserOf(c)
		if err != nil {
			return nil, err
		}
		return s.Store.Users.Notes(ctx, u)
	}
	key, err := problem.KeyOf(c)
	if err != nil {
		return nil, err
	}
	notes, err := s.Store.Notes.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	return notes[0], nil
}

// PostNote is POST …/notes: an operator's note, active at once.
func (s *NoteRoutes) PostNote(c *gin.Context, req webapi.NoteRequest) error {
	text, err := memory.NoteText(req.Text)
	if err != nil {
		return err
	}
	draft := past.NewNote(text, memory.NoteActive, memory.ByOperator)
	draft.Replaces = req.Replaces
	var n memory.Note
	err = s.changeNotes(c, func(notes []memory.Note) ([]memory.Note, error) {
		n = draft // also in a second attempt
		return past.AddNote(notes, &n)
	})
	return api.Answer(c.Writer, http.StatusCreated, n, err)
}

// PatchNote is PATCH …/notes/{id}: a person's yes to a note, or other words for it.
func (s *NoteRoutes) PatchNote(c *gin.Context, req webapi.NoteChange) error {
	if req.State == "" && req.Text == "" {
		return problem.BadRequest("There is nothing to change: give state or text.")
	}
	if req.State != "" && req.State != memory.NoteActive {
		return problem.BadRequest("state is %q, or left out, not %.40q.", memory.NoteActive, req.State)
	}
	text := ""
	if req.Text != "" {
		var err error
		if text, err = memory.NoteText(req.Text); err != nil {
			return err
		}
	}
	var n memory.Note
	err := s.changeNotes(c, func(notes []memory.Note) ([]memory.Note, error) {
		i := past.NoteAt(notes, c.Param("id"))
		if i < 0 {
			return nil, problem.ErrUnknownNote
		}
		if text != "" && text != notes[i].Text {
			notes[i].Text, notes[i].Author = text, memory.ByOperator
		}
		if req.State != "" && notes[i].State != req.State {
			notes[i].State = req.State
			past.Supersede(notes, notes[i].Replaces)
		}
		n = notes[i]
		return notes, nil
	})
	return api.Answer(c.Writer, http.StatusOK, n, err)
}

// DeleteNote is DELETE …/notes/{id}.
func (s *NoteRoutes) DeleteNote(c *gin.Context) error {
	err := s.changeNotes(c, func(notes []memory.Note) ([]memory.Note, error) {
		i := past.NoteAt(notes, c.Param("id"))
		if i < 0 {
			return nil, problem.ErrUnknownNote
		}
		return slices.Delete(notes, i, i+1), nil
	})
	return api.Answer(c.Writer, http.StatusNoContent, nil, err)
}

// changeNotes changes the notes of a route's user, or those of its history as the chat's only writer.
func (s *NoteRoutes) changeNotes(c *gin.Context, change func([]memory.Note) ([]memory.Note, error)) error {
	if problem.IsOfUser(c) {
		u, err := problem.UserOf(c)
		if err != nil {
			return err
		}
		return s.Store.Users.ChangeNotes(c.Request.Context(), u, change)
	}
	key, err := problem.KeyOf(c)
	if err != nil {
		return err
	}
	return s.Leaser.UnderTurn(c.Request.Context(), key.Chat(), func(ctx context.Context, w *runs.Writer) error {
		return s.Store.Notes.Change(ctx, w.Number, key, change)
	})
}
