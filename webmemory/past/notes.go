package past

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// Active filters notes in place and returns the active ones, which models see.
func Active(notes []memory.Note) []memory.Note {
	return slices.DeleteFunc(notes, func(n memory.Note) bool { return n.State != memory.NoteActive })
}

// NewNote returns a note with a new id and the current time.
func NewNote(text, state, author string) memory.Note {
	return memory.Note{ID: "n" + strings.ToLower(rand.Text()[:11]), Text: text, State: state, Author: author,
		TS: event.Seconds(time.Now())}
}

// NoteAt returns the index of the note with an id, or -1.
func NoteAt(notes []memory.Note, id string) int {
	return slices.IndexFunc(notes, func(n memory.Note) bool { return n.ID == id })
}

// AddNote appends n to notes. If notes has the same text already, AddNote sets *n to that note, unless only n is
// active. It drops excess proposed and superseded notes, oldest first. It returns problem.ErrUnknownNote if n replaces
// an unknown note, and errNotesFull if there is no room.
func AddNote(notes []memory.Note, n *memory.Note) ([]memory.Note, error) {
	if n.Replaces != "" && NoteAt(notes, n.Replaces) < 0 {
		return nil, problem.ErrUnknownNote
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

// MaxProposed is the maximum number of notes that wait for approval.
const MaxProposed = 50

// removeOldest deletes the tooMany oldest notes that match.
func removeOldest(notes []memory.Note, tooMany int, match func(memory.Note) bool) []memory.Note {
	return slices.DeleteFunc(notes, func(n memory.Note) bool {
		if tooMany <= 0 || !match(n) {
			return false
		}
		tooMany--
		return true
	})
}

// Supersede removes an active note from prompts because another note replaces it.
func Supersede(notes []memory.Note, id string) {
	if i := NoteAt(notes, id); i >= 0 && notes[i].State == memory.NoteActive {
		notes[i].State = memory.NoteSuperseded
	}
}

var (
	errNotesFull = &api.Problem{Status: http.StatusInsufficientStorage, Code: webapi.CodeNotesFull,
		Message: fmt.Sprintf("There are %d active notes already; delete some of them first.", memory.MaxNotes)}
)
