// Package chunk holds what is known of a document's text and cuts it into
// passages: pieces that are found, shown and cited by themselves.
//
// A Document is its text and what lies where in it; all places are byte offsets
// into that text. Split follows the headings first, then paragraphs, sentences
// (English and Russian) and words, and repeats the end of a passage at the
// beginning of the next one.
package chunk

import (
	"path"
	"strings"
)

// Document is a text and its structure. The text is UTF-8.
type Document struct {
	Title  string
	Source string // where it came from: a path, an address
	Text   string
	// Sections lie one behind the other, in order and without overlap. What lies
	// before the first or between two of them belongs to none.
	Sections []Section
	// Whole are the code blocks and tables, in order and without overlap; one that
	// fits a passage is not cut.
	Whole    []Span
	Metadata map[string]string
	// Skipped counts what of the file is no text and was left out, by what it is in
	// the plural: "pictures", "formulas".
	Skipped map[string]int
	// Unread are the pages, from 1, ascending, whose text could not be read or is not
	// legible; the others are in Text.
	Unread []int
}

// Span is a piece of a document's text, in bytes: Start is the first one, End the
// one behind the last.
type Span struct{ Start, End int }

// Section is the text under one heading, up to the next heading of any level. The
// heading's own line belongs to it.
type Section struct {
	Span
	// Path are the heading and those above it, the highest first.
	Path []string
	// Body is where the text behind the heading starts; Start if the section has
	// no line of its own for it, as a page of a PDF.
	Body int
	// Page is the number of the page that it is, from 1; 0 if it is none.
	Page int
}

// TitleOf is the title of a document that names none: its file's name without
// extension, with spaces for _ and -.
func TitleOf(name string) string {
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	if short := strings.TrimSuffix(name, path.Ext(name)); short != "" {
		name = short
	}
	return strings.TrimSpace(strings.NewReplacer("_", " ", "-", " ").Replace(name))
}

// joinPath writes headings as "A > B".
func joinPath(headings []string) string { return strings.Join(headings, " > ") }
