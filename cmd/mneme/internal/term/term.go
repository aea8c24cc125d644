// Package term makes text from elsewhere safe and pleasant on a terminal.
package term

import (
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/mattn/go-isatty"
)

// Clean drops what could steer a terminal or disguise text: control characters
// other than tab and line feed, and the marks that turn the writing direction.
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

// OneLine is Clean text on one line, cut after limit characters.
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

// IsTerminal says whether f, a reader or a writer, is a terminal.
func IsTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// Style dresses text. The zero Style leaves it plain.
type Style struct{ colours bool }

// StyleFor picks the Style for w: plain unless it is a terminal that takes
// colours and NO_COLOR is empty.
func StyleFor(w io.Writer) Style {
	return Style{colours: IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// InColour is the Style of a terminal with colours.
func InColour() Style { return Style{colours: true} }

// Coloured says whether the Style uses colours.
func (s Style) Coloured() bool { return s.colours }

// Dim is for what stands in the background.
func (s Style) Dim(text string) string { return s.wrap("2", text) }

// Bold is for what the eye should find.
func (s Style) Bold(text string) string { return s.wrap("1", text) }

// Red is for what went wrong.
func (s Style) Red(text string) string { return s.wrap("31", text) }

func (s Style) wrap(code, text string) string {
	if !s.colours || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
