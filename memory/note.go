package memory

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Note is a short text that stands in every prompt of those whose memory it is of.
type Note struct {
	ID      string  `json:"id"`
	Text    string  `json:"text"`              // in one line, at most MaxNote characters
	State   string  `json:"state"`             // NoteActive, NoteProposed or NoteSuperseded
	Author  string  `json:"by"`                // whose words it is: one of the constants below
	Message string  `json:"message,omitempty"` // id of the message that it was made from; empty for none
	Chat    string  `json:"chat,omitempty"`    // of a user's note: id of the chat that the message is in; empty for none
	TS      float64 `json:"ts"`                // Unix seconds
	// Replaces is the id of the note that this one supersedes while it is active; empty for none.
	Replaces string `json:"replaces,omitempty"`
}

// States of a note. Only active ones are shown to models; a person makes any of them active.
const (
	NoteActive     = "active"
	NoteProposed   = "proposed"   // no person has said yes to it
	NoteSuperseded = "superseded" // an active one replaces it
)

// The author of a note's words.
const (
	ByUser     = "user"
	ByModel    = "model"
	ByTool     = "tool"
	ByDocument = "document"
	ByOperator = "operator"
)

// Bounds of notes.
const (
	MaxNote  = 500 // characters of one
	MaxNotes = 200 // of one history, or one user
)

// NoteText is a text as a note has it, its white space normalised. Errors are ErrBadName.
func NoteText(text string) (string, error) {
	if len(text) > 16*MaxNote {
		return "", fmt.Errorf("%w: a note has at most %d characters", ErrBadName, MaxNote)
	}
	text = OneLine(text)
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return "", fmt.Errorf("%w: a note is text in UTF-8", ErrBadName)
	case n == 0:
		return "", fmt.Errorf("%w: the note is empty", ErrBadName)
	case n > MaxNote:
		return "", fmt.Errorf("%w: the note has %d characters, at most %d are taken", ErrBadName, n, MaxNote)
	}
	return text, nil
}

// SameNote reports whether the texts of two notes differ in quotation marks, commas and the like, and the sign at the end
// only. A question is another note.
func SameNote(a, b string) bool { return unpunctuated(a) == unpunctuated(b) }

// between matches punctuation that changes nothing about a note.
var between = regexp.MustCompile(`["“”„«»]|[,;:]+(\s|$)|[.!…\s]+$`)

func unpunctuated(text string) string { return OneLine(between.ReplaceAllString(OneLine(text), " ")) }

// OneLine is a text in which a space stands for each run of white space, and for none at
// its ends.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
