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

// NoteRoutes serves the notes of histories and users, and the settings of users. Notes are part of every prompt of a
// chat, of a subagent in a chat, or of a user's chats. A history's notes change under the chat's lease.
type NoteRoutes struct {
	*node.Core
	Histories *past.Histories
	Leaser    *turns.Leaser
}

// GetNotes handles GET …/notes of a chat, a subagent or a user.
func (s *NoteRoutes) GetNotes(c *gin.Context) error {
	notes, err := s.notesOf(c)
	return api.Answer(c.Writer, http.StatusOK, webapi.NoteList{Notes: append([]memory.Note{}, notes...)}, err)
}

// GetUser handles GET /v1/users/{user}.
func (s *NoteRoutes) GetUser(c *gin.Context, u memory.User) error {
	zone, err := s.Store.Users.Zone(c.Request.Context(), u)
	return api.Answer(c.Writer, http.StatusOK, webapi.UserSettings{TimeZone: zone}, err)
}

// PutUser handles PUT /v1/users/{user}.
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

// PostNote handles POST …/notes. The new note is by the operator and active at once.
func (s *NoteRoutes) PostNote(c *gin.Context, req webapi.NoteRequest) error {
	text, err := memory.NoteText(req.Text)
	if err != nil {
		return err
	}
	draft := past.NewNote(text, memory.NoteActive, memory.ByOperator)
	draft.Replaces = req.Replaces
	var n memory.Note
	err = s.changeNotes(c, func(notes []memory.Note) ([]memory.Note, error) {
		n = draft // the function may run more than once
		return past.AddNote(notes, &n)
	})
	return api.Answer(c.Writer, http.StatusCreated, n, err)
}

// PatchNote handles PATCH …/notes/{id}. It activates a note or changes its text.
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

// DeleteNote handles DELETE …/notes/{id}.
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

// changeNotes applies change to the notes of the path's user or history, for a history under the chat's lease.
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
