package webmemory

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about notes: what must stand in every prompt of a chat, or of one of its
// subagents, or of all chats of a user. A person changes them by the public routes, those of a chat under its turn.

// NoteRoutes serves the notes of histories and users, and the settings of users. It changes a history's notes under the
// chat's turn.
type NoteRoutes struct {
	*Core
	Histories *Histories
	Leaser    *Leaser
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
	draft := NewNote(text, memory.NoteActive, memory.ByOperator)
	draft.Replaces = req.Replaces
	var n memory.Note
	err = s.changeNotes(c, func(notes []memory.Note) ([]memory.Note, error) {
		n = draft // also in a second attempt
		return AddNote(notes, &n)
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
		i := NoteAt(notes, c.Param("id"))
		if i < 0 {
			return nil, ErrUnknownNote
		}
		if text != "" && text != notes[i].Text {
			notes[i].Text, notes[i].Author = text, memory.ByOperator
		}
		if req.State != "" && notes[i].State != req.State {
			notes[i].State = req.State
			Supersede(notes, notes[i].Replaces)
		}
		n = notes[i]
		return notes, nil
	})
	return api.Answer(c.Writer, http.StatusOK, n, err)
}

// DeleteNote is DELETE …/notes/{id}.
func (s *NoteRoutes) DeleteNote(c *gin.Context) error {
	err := s.changeNotes(c, func(notes []memory.Note) ([]memory.Note, error) {
		i := NoteAt(notes, c.Param("id"))
		if i < 0 {
			return nil, ErrUnknownNote
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
	return s.Leaser.UnderTurn(c.Request.Context(), key.Chat(), func(ctx context.Context, w *Writer) error {
		return s.Store.Notes.Change(ctx, w.Number, key, change)
	})
}

// Active are those notes that models are shown.
func Active(notes []memory.Note) []memory.Note {
	return slices.DeleteFunc(notes, func(n memory.Note) bool { return n.State != memory.NoteActive })
}

// NewNote is a note that is made now.
func NewNote(text, state, author string) memory.Note {
	return memory.Note{ID: "n" + strings.ToLower(rand.Text()[:11]), Text: text, State: state, Author: author,
		TS: event.Seconds(time.Now())}
}

func NoteAt(notes []memory.Note, id string) int {
	return slices.IndexFunc(notes, func(n memory.Note) bool { return n.ID == id })
}

// AddNote appends a note to the notes of a history, or sets n to the existing note with the same text.
func AddNote(notes []memory.Note, n *memory.Note) ([]memory.Note, error) {
	if n.Replaces != "" && NoteAt(notes, n.Replaces) < 0 {
		return nil, ErrUnknownNote
	}
	same := func(old memory.Note) bool { return memory.SameNote(old.Text, n.Text) }
	if i := slices.IndexFunc(notes, same); i >= 0 && (notes[i].State == memory.NoteActive ||
		n.State != memory.NoteActive) {
		replaces := n.Replaces
		if *n = notes[i]; n.State == memory.NoteActive && replaces != n.ID {
			Supersede(notes, replaces)
		}
		return notes, nil
	}
	notes = append(slices.DeleteFunc(notes, same), *n)
	if n.State == memory.NoteActive {
		Supersede(notes, n.Replaces)
	}
	waiting := 0
	for _, old := range notes {
		if old.State == memory.NoteProposed {
			waiting++
		}
	}
	proposed := func(old memory.Note) bool { return old.State == memory.NoteProposed && old.ID != n.ID }
	superseded := func(old memory.Note) bool { return old.State == memory.NoteSuperseded }
	notes = removeOldest(notes, waiting-MaxProposed, proposed)
	notes = removeOldest(notes, len(notes)-memory.MaxNotes, superseded)
	notes = removeOldest(notes, len(notes)-memory.MaxNotes, proposed)
	if len(notes) > memory.MaxNotes {
		return nil, errNotesFull
	}
	return notes, nil
}

// maxProposed is how many notes may wait for a person's yes.
const MaxProposed = 50

// removeOldest leaves the oldest notes of a kind out, as many as are too many.
func removeOldest(notes []memory.Note, tooMany int, match func(memory.Note) bool) []memory.Note {
	return slices.DeleteFunc(notes, func(n memory.Note) bool {
		if tooMany <= 0 || !match(n) {
			return false
		}
		tooMany--
		return true
	})
}

// Supersede takes an active note out of the prompts for the sake of another one.
func Supersede(notes []memory.Note, id string) {
	if i := NoteAt(notes, id); i >= 0 && notes[i].State == memory.NoteActive {
		notes[i].State = memory.NoteSuperseded
	}
}

var (
	ErrUnknownNote = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownNote,
		Message: "There is no such note here; GET …/notes lists those that there are."}
	errNotesFull = &api.Problem{Status: http.StatusInsufficientStorage, Code: webapi.CodeNotesFull,
		Message: fmt.Sprintf("There are %d active notes already; delete some of them first.", memory.MaxNotes)}
)
