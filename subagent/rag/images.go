package rag

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"mneme/subagent/envelope"
)

// Bounds, in bytes, of what is held back until it is clear what it is.
const (
	maxHeld   = 2 << 10 // of an image or an element
	maxInline = 1 << 10 // of code within a line, or of a label
)

// imageRemoved stands where an image was. It also keeps what stood on both sides
// from becoming another one.
const imageRemoved = "(image removed)"

// screen takes images out of a text that comes in pieces: a program that shows the text
// would load an image, and so send its address, and what a model wrote into it, to a
// stranger. How the text is cut into pieces makes no difference to what is passed on.
// Images are those of Markdown, with their address or with a reference, and every element
// of HTML that loads something, in whatever spelling. Code stays as it is: an image is
// not loaded there. Where readers of Markdown could disagree whether something is code it
// is taken for none.
type screen struct {
	emit    func(text string, code bool)
	removed func(text string)

	buf      string          // not passed on yet
	begun    bool            // the line's beginning is behind
	blank    bool            // nothing but space in the line so far
	fence    string          // that opened the code under way, empty outside of code
	indent   int             // of fence
	distrust bool            // no more code: it is not clear where it would end
	loose    map[int]bool    // lengths of backtick runs that have no partner, in this paragraph
	images   map[string]bool // labels that could be images if they are defined
	defined  map[string]bool // labels that are
	gap      bool            // the last thing passed on is imageRemoved
	bracket  bool            // the last character passed on is a closing bracket

	strict bool // also what is an image only if its label is defined is taken out
}

func newScreen(strict bool, emit func(text string, code bool), removed func(text string)) *screen {
	return &screen{strict: strict, emit: emit, removed: removed, blank: true, loose: map[int]bool{},
		images: map[string]bool{}, defined: map[string]bool{}}
}

// write takes a piece.
func (s *screen) write(text string) {
	s.buf += text
	s.advance(false)
}

// close passes on what is left.
func (s *screen) close() { s.advance(true) }

// advance passes on all of which it is clear what it is.
func (s *screen) advance(final bool) {
	for s.buf != "" {
		view := s.buf
		if !final {
			view = view[:len(view)-incomplete(view)]
		}
		n := 0
		switch {
		case view == "":
		case s.fence != "":
			if n = s.inFence(view, final); n == 0 && s.fence == "" {
				continue
			}
		case !s.begun:
			if n = s.lineBegins(view, final); n == 0 && s.begun {
				continue
			}
		default:
			n = s.inLine(view, final)
		}
		if n == 0 {
			return
		}
		s.buf = s.buf[n:]
	}
}

// incomplete is how many bytes at the end could be part of a character that goes on.
func incomplete(s string) int {
	n := 0
	for i := 1; i <= min(3, len(s)); i++ {
		if c := s[len(s)-i]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-i:]) {
				n = i
			}
			break
		}
	}
	from := max(0, len(s)-n-envelope.MaxEscape)
	for i := len(s) - n - 1; i >= from; i-- {
		switch c := s[i]; {
		case c == '&' || c == '\\' || c == '%':
			// An escape may begin in another one, as in &amp;lt; or \\u003c.
			for i > from && (s[i-1] == '\\' && c == '\\') {
				i--
			}
			n = len(s) - i
		case c == '#' || c == ';' || c == '{' || c == '}' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' &&
			c <= 'Z':
		default:
			return n
		}
	}
	return n
}

// pass passes on a piece as it is.
func (s *screen) pass(text string, code bool) int {
	if text == "" {
		return 0
	}
	s.gap, s.bracket = false, text[len(text)-1] == ']'
	s.emit(text, code)
	for i := range len(text) {
		switch text[i] {
		case '\n':
			if s.blank {
				clear(s.loose)
			}
			s.begun, s.blank = false, true
		case ' ', '\t', '\r':
		default:
			s.blank = false
		}
	}
	return len(text)
}

// drop takes a piece out.
func (s *screen) drop(text string) int {
	s.removed(text)
	switch {
	case s.gap:
		return len(text)
	case s.bracket: // which parentheses would make a link
		s.pass(" "+imageRemoved, false)
	default:
		s.pass(imageRemoved, false)
	}
	s.gap = true
	return len(text)
}

var (
	fenceLine = regexp.MustCompile("^( *)(`{3,}|~{3,})([^\n]*)")
	// deepFence is a fence in a list or a quotation: its end depends on where that ends.
	deepFence = regexp.MustCompile(
		"^(?:[ \t]*(?:[>*+-]|[0-9]{1,9}[.)]))+[ \t]*(?:`{3}|~{3})|^ *\t[ \t]*(?:`{3}|~{3})|^ {4,}~{3}",
	)
	lineMarks  = regexp.MustCompile(`^[ \t]*(?:(?:[>*+-]|[0-9]{1,9}[.)]?)[ \t]*)*`)
	fenceClose = regexp.MustCompile("^ *(`*|~*)[ \t\r]*$")
)

// lineBegins looks at the beginning of a line that is in no code. It gives 0 and sets
// begun when the line is one as any other.
func (s *screen) lineBegins(v string, final bool) int {
	rest := v[len(lineMarks.FindString(v[:min(len(v), maxInline)])):]
	if rest == "" && !final && len(v) < maxInline {
		return 0
	}
	if strings.HasPrefix(rest, "`") || strings.HasPrefix(rest, "~") {
		run := len(rest) - len(strings.TrimLeft(rest, rest[:1]))
		if run == len(rest) && !final && run < maxInline {
			return 0
		}
		if deepFence.MatchString(v) {
			s.distrust = true
		} else if run >= 3 && !s.distrust {
			line := v[:min(len(v), maxInline)]
			end := strings.IndexByte(line, '\n')
			if end < 0 && !final && len(v) < maxInline {
				return 0
			}
			m := fenceLine.FindStringSubmatch(line)
			if m != nil && end >= 0 && (m[2][0] == '~' || !strings.Contains(m[3], "`")) {
				s.fence, s.indent = m[2], len(m[1])
				return s.pass(v[:end+1], true)
			}
			s.distrust = s.distrust || end < 0
		}
	}
	if strings.HasPrefix(rest, "<") {
		if len(rest) == 1 && !final {
			return 0
		}
		// In a block of HTML backticks mean nothing.
		if len(rest) > 1 && (rest[1] == '/' || rest[1] == '!' || rest[1] == '?' || rest[1]|0x20 >= 'a' &&
			rest[1]|0x20 <= 'z') {
			s.distrust = true
		}
	}
	if strings.HasPrefix(rest, "[") {
		label, size, known := definition(rest, final)
		if !known {
			return 0
		}
		if size > 0 && s.images[label] {
			line := v[:min(len(v), maxHeld)]
			end := strings.IndexByte(line, '\n')
			if end < 0 && !final && len(v) < maxHeld {
				return 0
			}
			if end < 0 {
				end = len(line)
			}
			s.begun = true
			return s.drop(v[:end])
		}
		if size > 0 {
			s.defined[label] = true
		}
	}
	s.begun = true
	return 0
}

// definition reads "[label]:"; size is 0 if it is none, known is false as long as
// that is not clear.
func definition(v string, final bool) (label string, size int, known bool) {
	v = v[:min(len(v), maxInline)]
	whole := final || len(v) == maxInline
	if end := strings.Index(v, "\n\n"); end >= 0 {
		v, whole = v[:end+1], true
	}
	end := closing(v, 0, '[', ']')
	if end < 0 || end+1 == len(v) {
		return "", 0, whole
	}
	if v[end+1] != ':' {
		return "", 0, true
	}
	return normalLabel(v[1:end]), end + 2, true
}

func normalLabel(label string) string {
	return strings.Join(strings.Fields(envelope.Fold(label).Text), " ")
}

// inFence passes on code until its fence closes, or a line stands further left than
// the fence: that could be the end of the list that the code is in.
func (s *screen) inFence(v string, final bool) int {
	end := strings.IndexByte(v, '\n')
	line := v
	if end >= 0 {
		line = v[:end]
	}
	if !s.begun {
		text := strings.TrimLeft(line, " ")
		if end < 0 && !final && (text == "" || fenceClose.MatchString(line) && len(line) < maxInline) {
			return 0
		}
		if strings.TrimSpace(text) != "" && len(line)-len(text) < s.indent {
			s.fence, s.distrust = "", true
			return 0
		}
		if m := fenceClose.FindStringSubmatch(line); m != nil && strings.HasPrefix(m[1], s.fence) {
			s.fence = ""
		}
		s.begun = true
	}
	if end >= 0 {
		return s.pass(v[:end+1], true)
	}
	return s.pass(v, true)
}

// suspects are the characters at which an image may begin, or what is not one.
var suspects = func() (table [utf8.RuneSelf]bool) {
	for _, c := range "!<&\\%`\n" {
		table[c] = true
	}
	return table
}()

// inLine passes on text up to what may be an image, or decides what that is.
func (s *screen) inLine(v string, final bool) int {
	for i, r := range v {
		if r < utf8.RuneSelf && !suspects[r] || r >= utf8.RuneSelf && !suspectRune(r) {
			continue
		}
		if i > 0 {
			return s.pass(v[:i], false)
		}
		switch {
		case r == '\n':
			return s.pass("\n", false)
		case r == '`':
			return s.backticks(v, final)
		case r == '\\' && len(v) > 1 && v[1] == '`':
			return s.pass(v[:2], false)
		}
		return s.suspect(v, final)
	}
	return s.pass(v, false)
}

func suspectRune(r rune) bool {
	like, known := envelope.Lookalikes[r]
	return known && like == '<' || r == '！' || r == '﹗' || r == '＜' || r == '﹤' || r == '︕' || r == '‼' || r == '⁉' ||
		r == '＆' || r == '﹠'
}

// backticks decides whether they open code within the line.
func (s *screen) backticks(v string, final bool) int {
	run := len(v) - len(strings.TrimLeft(v, "`"))
	if run == len(v) && !final && run < maxInline {
		return 0
	}
	if s.distrust || s.loose[run] {
		return s.pass(v[:run], false)
	}
	line := v[:min(len(v), maxInline)]
	whole := final || len(v) >= maxInline
	if end := strings.IndexByte(line, '\n'); end >= 0 {
		line, whole = line[:end], true
	}
	for at := run; at < len(line); {
		next := strings.IndexByte(line[at:], '`')
		if next < 0 {
			break
		}
		at += next
		size := len(line[at:]) - len(strings.TrimLeft(line[at:], "`"))
		if at+size == len(line) && !whole {
			return 0
		}
		if size == run {
			if strings.Contains(line[run:at], "|") && strings.ContainsAny(line[run:at], "!<&") {
				break // in a table the cell could end before
			}
			return s.pass(v[:at+size], true)
		}
		at += size
	}
	if !whole {
		return 0
	}
	s.loose[run] = true
	return s.pass(v[:run], false)
}

// loading are the elements that load something, or that change what an address
// means.
var loading = []string{
	"img", "image", "picture", "source", "iframe", "frame", "frameset", "svg", "object", "embed", "video", "audio",
	"track", "script",
	"style", "link", "base", "meta", "input", "portal", "applet", "bgsound", "feimage", "foreignobject", "use", "body",
	"html", "head",
}

var (
	tagStart = regexp.MustCompile(`^<[\s/\x00]*`)
	tagName  = regexp.MustCompile(`^[a-z][a-z0-9:_-]*`)
	// loads is an attribute that loads something, or runs.
	loads = regexp.MustCompile(
		`(?:^|[\s"'/])(?:style|src[a-z]*|poster|background|data|dynsrc|lowsrc|on[a-z]+|xlink:href|action|formaction|ping|cite|longdesc|manifest)\s*=`,
	)
)

// suspect decides what begins at a character that could begin an image. The pattern
// is looked for in the text as it could be read, see fold: first in a small piece,
// since most are short, and in no more when what would end it is not there.
func (s *screen) suspect(v string, final bool) int {
	over := final || len(v) >= maxHeld
	if n := harmless(v); n > 0 {
		return s.pass(v[:n], false)
	}
	window := v[:min(len(v), maxHeld)]
	f := envelope.FoldSome(window, shortImage)
	whole := len(f.End) == 0 || f.End[len(f.End)-1] == len(window)
	if n := s.imageOrElement(v, f, final && whole, over && whole); n > 0 || whole {
		return n
	}
	if !strings.ContainsFunc(window, closes) && !final {
		if !over {
			return 0
		}
		return s.imageOrElement(v, f, false, true)
	}
	return s.imageOrElement(v, envelope.Fold(window), final, over)
}

// shortImage is a length, in bytes, that most images and elements do not reach.
const shortImage = 256

// closes says whether a character could be, or begin, one that ends an image or an
// element.
func closes(r rune) bool { return r >= utf8.RuneSelf || strings.IndexByte("]>&\\%", byte(r)) >= 0 }

func (s *screen) imageOrElement(v string, f envelope.Folding, final, over bool) int {
	first := len(v)
	if len(f.End) > 0 {
		first = f.End[0]
	}
	switch {
	case strings.HasPrefix(f.Text, "!"):
		return s.markdownImage(v, f, first, over)
	case strings.HasPrefix(f.Text, "<"):
		return s.element(v, f, first, final, over)
	}
	return s.pass(v[:first], false)
}

// harmless is how many bytes at the beginning of a text begin neither an image nor an
// element, whatever follows, as far as its first characters tell.
func harmless(v string) int {
	f := envelope.FoldSome(v, 2)
	switch {
	case f.Text == "":
		return 0
	case f.Text[0] == '!' && (len(f.Text) == 1 || f.Text[1] == '['):
		return 0
	case f.Text[0] == '<' && (len(f.Text) == 1 || strings.IndexByte(" /\t\n", f.Text[1]) >= 0 || f.Text[1] >= 'a' &&
		f.Text[1] <= 'z'):
		return 0
	}
	return f.End[0]
}

// markdownImage is given the piece that begins with an exclamation mark.
func (s *screen) markdownImage(v string, f envelope.Folding, first int, over bool) int {
	t := f.Text
	if len(t) == 1 && !over {
		return 0
	}
	if len(t) == 1 || t[1] != '[' {
		return s.pass(v[:first], false)
	}
	end := closing(t, 1, '[', ']')
	switch {
	case (end < 0 || end+1 == len(t)) && !over:
		return 0
	case end < 0:
		return s.drop(v[:first])
	}
	if end+1 < len(t) && (t[end+1] == '(' || t[end+1] == '[') {
		closes := byte(')')
		if t[end+1] == '[' {
			closes = ']'
		}
		last := closing(t, end+1, t[end+1], closes)
		switch {
		case last < 0 && !over:
			return 0
		case last < 0:
			return s.drop(v[:f.End[end+1]])
		}
		if number.MatchString(t[2:end]) && number.MatchString(t[end+2:last]) { // markers behind an exclamation
			return s.reference(v, normalLabel(t[end+2:last]), f.End[last], first)
		}
		return s.drop(v[:f.End[last]])
	}
	return s.reference(v, normalLabel(t[2:end]), f.End[end], first)
}

var number = regexp.MustCompile(`^\d+$`)

// reference is an image if its label is defined somewhere: what is defined by then
// goes with it, and later definitions of it are left out.
func (s *screen) reference(v, label string, size, first int) int {
	if s.defined[label] || s.strict && !number.MatchString(label) {
		return s.drop(v[:size])
	}
	s.images[label] = true
	return s.pass(v[:first], false)
}

// closing is where what opens at at is closed, or -1.
func closing(t string, at int, opens, closes byte) int {
	depth := 0
	for i := at; i < len(t); i++ {
		switch t[i] {
		case '\\':
			i++
		case opens:
			depth++
		case closes:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// element is given the piece that begins with an angle bracket.
func (s *screen) element(v string, f envelope.Folding, first int, final, over bool) int {
	t := f.Text
	at := len(tagStart.FindString(t))
	name := tagName.FindString(t[at:])
	end := at + len(name)
	if end == len(t) && !over {
		return 0
	}
	if name == "" {
		return s.pass(v[:first], false)
	}
	bad := slices.ContainsFunc(strings.Split(name, ":"), func(part string) bool { return slices.Contains(loading, part) })
	spaced := strings.TrimRight(t[:at], "/") != "<"
	if !bad && (spaced || end < len(t) && !strings.ContainsRune(" \t\n\r/>:\"'@", rune(t[end]))) {
		return s.pass(v[:first], false)
	}
	last := tagEnd(t, end)
	switch {
	case last < 0 && !over:
		return 0
	case last < 0 && bad && strings.Contains(t[end:], ">"):
		last = end + strings.IndexByte(t[end:], '>') // of unbalanced quotes
	case last < 0 && bad && final:
		return s.drop(v[:f.End[len(t)-1]])
	case last < 0 && bad:
		return s.drop(v[:f.End[end-1]])
	case last < 0 && (!final || loads.MatchString(t[end:])):
		return s.drop(v[:first])
	case last < 0:
		return s.pass(v[:first], false)
	}
	if bad || loads.MatchString(t[end:last]) {
		return s.drop(v[:f.End[last]])
	}
	return s.pass(v[:f.End[last]], false)
}

// tagEnd is where a tag ends; a quoted value may hold what would end it.
func tagEnd(t string, at int) int {
	for i := at; i < len(t); i++ {
		switch t[i] {
		case '>':
			return i
		case '=':
			value := len(t[i+1:]) - len(strings.TrimLeft(t[i+1:], " \t\r\n"))
			if q := i + 1 + value; q < len(t) && (t[q] == '"' || t[q] == '\'') {
				closed := strings.IndexByte(t[q+1:], t[q])
				if closed < 0 {
					return -1
				}
				i = q + 1 + closed
			}
		}
	}
	return -1
}
