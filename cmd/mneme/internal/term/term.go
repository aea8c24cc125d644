// Package term prints untrusted text safely on a terminal, and reads lines from one.
package term

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
)

// Clean removes control characters, except tab and line feed, and marks that change the writing direction.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s)
}

// OneLine returns s, cleaned, on one line of at most limit characters.
func OneLine(s string, limit int) string {
	s = strings.Join(strings.Fields(Clean(s)), " ")
	count := 0
	for i := range s {
		if count == limit {
			return s[:i] + "…"
		}
		count++
	}
	return s
}

// IsTerminal reports whether f, a reader or a writer, is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// Counter returns a function that shows on a terminal how far a long command is, a few times a second, and one that clears
// the line. Elsewhere they do nothing.
func Counter(w io.Writer) (tell func(format string, args ...any), end func()) {
	if !IsTerminal(w) {
		return func(string, ...any) {}, func() {}
	}
	const clear = "\r\x1b[K" // what the line has
	next := time.Now()
	return func(format string, args ...any) {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(200 * time.Millisecond)
			fmt.Fprintf(w, clear+format, args...)
		}
	}, func() { fmt.Fprint(w, clear) }
}

// Style formats text. The zero Style leaves it plain.
type Style struct{ colours bool }

// StyleFor returns the Style for w. It uses colours if w is a terminal that supports them and NO_COLOR is empty.
func StyleFor(w io.Writer) Style {
	return Style{colours: IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// InColour returns the Style of a terminal with colours.
func InColour() Style { return Style{colours: true} }

// Coloured reports whether the Style uses colours.
func (s Style) Coloured() bool { return s.colours }

// Dim formats secondary text.
func (s Style) Dim(text string) string { return s.wrap("2", text) }

// Bold formats headings.
func (s Style) Bold(text string) string { return s.wrap("1", text) }

// Red formats errors.
func (s Style) Red(text string) string { return s.wrap("31", text) }

func (s Style) wrap(code, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// UserFile returns the path of a file of the user by the XDG Base Directory Specification: in the folder of a variable,
// or in another one in the home. It is "" without a home.
func UserFile(getenv func(string) string, variable, inHome, name string) string {
	dir := getenv(variable)
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, inHome)
	}
	return filepath.Join(dir, "mneme", name)
}
