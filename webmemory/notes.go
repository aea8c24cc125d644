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

// noteRoutes serves the notes of histories and users, and the settings of users. It changes a history's notes under the
// chat's turn.
type noteRoutes struct {
	*core
	histories *histories
	leaser    *leaser
}

// getNotes is GET …/notes of a chat, of one of its subagents, or of a user.
func (s *noteRoutes) getNotes(c *gin.Context) error {
	found, err := s.notesOf(c)
	return api.Answer(c.Writer, http.StatusOK, webapi.NoteList{Notes: append([]memory.Note{}, found...)}, err)
}

// getUser is GET /v1/users/{user}.
func (s *noteRoutes) getUser(c *gin.Context, u memory.User) error {
	zone, err := s.store.Users.Zone(c.Request.Context(), u)
	return api.Answer(c.Writer, http.StatusOK, webapi.UserSettings{TimeZone: zone}, err)
}

// putUser is PUT /v1/users/{user}.
func (s *noteRoutes) putUser(c *gin.Context, set webapi.UserSettings) error {
	u, err := problem.UserOf(c)
	if err == nil {
		_, err = api.ReadZone(set.TimeZone)
	}
	if err == nil {
		err = s.store.Users.SetZone(c.Request.Context(), u, set.TimeZone)
	}
	return api.Answer(c.Writer, http.StatusOK, set, err)
}

// notesOf are the notes of a route's history or user.
func (s *noteRoutes) notesOf(c *gin.Context) ([]memory.Note, error) {
	ctx := c.Request.Context()
	if problem.IsOfUser(c) {
		u, err := problem.UserOf(c)
		if err != nil {
			return nil, err
		}
		return s.store.Users.Notes(ctx, u)
	}
	key, err := problem.KeyOf(c)
	if err != nil {
		return nil, err
	}
	found, err := s.store.Notes.Read(ctx, key)
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// postNote is POST …/notes: an operator's note, active at once.
func (s *noteRoutes) postNote(c *gin.Context, asked webapi.NoteRequest) error {
	text, err := memory.NoteText(asked.Text)
	if err != nil {
		return err
	}
	made := newNote(text, memory.NoteActive, memory.ByOperator)
	made.Replaces = asked.Replaces
	var n memory.Note
	err = s.changeNotes(c, func(all []memory.Note) ([]memory.Note, error) {
		n = made // also in a second attempt
		return addNote(all, &n)
	})
	return api.Answer(c.Writer, http.StatusCreated, n, err)
}

// patchNote is PATCH …/notes/{id}: a person's yes to a note, or other words for it.
func (s *noteRoutes) patchNote(c *gin.Context, asked webapi.NoteChange) error {
	if asked.State == "" && asked.Text == "" {
		return problem.BadRequest("There is nothing to change: give state or text.")
	}
	if asked.State != "" && asked.State != memory.NoteActive {
		return problem.BadRequest("state is %q, or left out, not %.40q.", memory.NoteActive, asked.State)
	}
	text := ""
	if asked.Text != "" {
		var err error
		if text, err = memory.NoteText(asked.Text); err != nil {
			return err
		}
	}
	var n memory.Note
	err := s.changeNotes(c, func(all []memory.Note) ([]memory.Note, error) {
		i := noteAt(all, c.Param("id"))
		if i < 0 {
			return nil, errUnknownNote
		}
		if text != "" && text != all[i].Text {
			all[i].Text, all[i].Author = text, memory.ByOperator
		}
		if asked.State != "" && all[i].State != asked.State {
			all[i].State = asked.State
			supersede(all, all[i].Replaces)
		}
		n = all[i]
		return all, nil
	})
	return api.Answer(c.Writer, http.StatusOK, n, err)
}

// deleteNote is DELETE …/notes/{id}.
func (s *noteRoutes) deleteNote(c *gin.Context) error {
	err := s.changeNotes(c, func(all []memory.Note) ([]memory.Note, error) {
		i := noteAt(all, c.Param("id"))
		if i < 0 {
			return nil, errUnknownNote
		}
		return slices.Delete(all, i, i+1), nil
	})
	return api.Answer(c.Writer, http.StatusNoContent, nil, err)
}

// changeNotes changes the notes of a route's user, or those of its history as the chat's only writer.
func (s *noteRoutes) changeNotes(c *gin.Context, change func([]memory.Note) ([]memory.Note, error)) error {
	if problem.IsOfUser(c) {
		u, err := problem.UserOf(c)
		if err != nil {
			return err
		}
		return s.store.Users.ChangeNotes(c.Request.Context(), u, change)
	}
	key, err := problem.KeyOf(c)
	if err != nil {
		return err
	}
	return s.leaser.underTurn(c.Request.Context(), key.Chat(), func(ctx context.Context, w *writer) error {
		return s.store.Notes.Change(ctx, w.Number, key, change)
	})
}

// active are those notes that models are shown.
func active(notes []memory.Note) []memory.Note {
	return slices.DeleteFunc(notes, func(n memory.Note) bool { return n.State != memory.NoteActive })
}

// newNote is a note that is made now.
func newNote(text, state, by string) memory.Note {
	return memory.Note{ID: "n" + strings.ToLower(rand.Text()[:11]), Text: text, State: state, Author: by,
		TS: event.Seconds(time.Now())}
}

func noteAt(all []memory.Note, id string) int {
	return slices.IndexFunc(all, func(n memory.Note) bool { return n.ID == id })
}

// addNote appends a note to the notes of a history, or sets n to the existing note with the same text.
func addNote(all []memory.Note, n *memory.Note) ([]memory.Note, error) {
	if n.Replaces != "" && noteAt(all, n.Replaces) < 0 {
		return nil, errUnknownNote
	}
	same := func(old memory.Note) bool { return memory.SameNote(old.Text, n.Text) }
	if i := slices.IndexFunc(all, same); i >= 0 && (all[i].State == memory.NoteActive || n.State != memory.NoteActive) {
		replaces := n.Replaces
		if *n = all[i]; n.State == memory.NoteActive && replaces != n.ID {
			supersede(all, replaces)
		}
		return all, nil
	}
	all = append(slices.DeleteFunc(all, same), *n)
	if n.State == memory.NoteActive {
		supersede(all, n.Replaces)
	}
	waiting := 0
	for _, old := range all {
		if old.State == memory.NoteProposed {
			waiting++
		}
	}
	proposed := func(old memory.Note) bool { return old.State == memory.NoteProposed && old.ID != n.ID }
	superseded := func(old memory.Note) bool { return old.State == memory.NoteSuperseded }
	all = without(all, waiting-maxProposed, proposed)
	all = without(all, len(all)-memory.MaxNotes, superseded)
	all = without(all, len(all)-memory.MaxNotes, proposed)
	if len(all) > memory.MaxNotes {
		return nil, errNotesFull
	}
	return all, nil
}

// maxProposed is how many notes may wait for a person's yes.
const maxProposed = 50

// without leaves the oldest notes of a kind out, as many as are too many.
func without(all []memory.Note, tooMany int, of func(memory.Note) bool) []memory.Note {
	return slices.DeleteFunc(all, func(n memory.Note) bool {
		if tooMany <= 0 || !of(n) {
			return false
		}
		tooMany--
		return true
	})
}

// supersede takes an active note out of the prompts for the sake of another one.
func supersede(all []memory.Note, id string) {
	if i := noteAt(all, id); i >= 0 && all[i].State == memory.NoteActive {
		all[i].State = memory.NoteSuperseded
	}
}

var (
	errUnknownNote = &api.Problem{Status: http.StatusNotFound, Code: webapi.CodeUnknownNote,
		Message: "There is no such note here; GET …/notes lists those that there are."}
	errNotesFull = &api.Problem{Status: http.StatusInsufficientStorage, Code: webapi.CodeNotesFull,
		Message: fmt.Sprintf("There are %d active notes already; delete some of them first.", memory.MaxNotes)}
)
