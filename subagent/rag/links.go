package rag

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"mneme/memory/envelope"
)

// maxHeld bounds, in bytes, what is held back until it is clear what it is. It is above
// envelope.MaxEscape, so that every escape is seen whole.
const maxHeld = 256

// screen sees to it that a program which shows an answer loads nothing: it would send an address, and what a model
// wrote into it, to a stranger. In every `![`, and in every tag of HTML that has an attribute with a value or holds a
// script or a style, a space is put behind the first character, in whatever spelling; so no image and no tag is left,
// and nothing of the answer is lost. Code between fences stays as it is, unless readers of Markdown could disagree
// where it ends. The text comes in pieces; how it is cut makes no difference to what is passed on.
type screen struct {
	pending string // not passed on yet
	inner   bool   // the line's first character is behind
	word    bool   // so is one that is not white space and no mark of a list or a quotation
	fence   string // the backticks that opened the code under way, empty outside of code
	doubt   bool   // no more code is trusted: it is not clear where it would end
}

// pass takes a piece, the last one with final, and returns what may be shown.
func (s *screen) pass(text string, final bool) string {
	s.pending += text
	view := s.pending
	if !final {
		view = settled(view)
	}
	var out strings.Builder
	pos := 0
	for pos < len(view) {
		v := view[pos:min(len(view), pos+maxHeld)]
		n, spaced := s.next(v, final)
		if n == 0 {
			break
		}
		out.WriteString(v[:n])
		if spaced {
			out.WriteByte(' ')
		}
		s.inner = v[0] != '\n'
		s.word = s.inner && v[0] != '\r' && (s.word || strings.IndexByte(" \t>*+-", v[0]) < 0)
		pos += n
	}
	s.pending = s.pending[pos:]
	return out.String()
}

// openEscape matches the end of a text that could be the beginning of an escape.
var openEscape = regexp.MustCompile(`[&\\%][a-zA-Z0-9#;{}&\\%]*$`)

// settled is a text without what its next piece could complete: a character or an escape.
func settled(text string) string {
	for n := 1; n < min(utf8.UTFMax, len(text)+1); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRuneInString(tail) {
			text = text[:len(text)-n]
		}
	}
	start := max(0, len(text)-envelope.MaxEscape)
	if m := openEscape.FindStringIndex(text[start:]); m != nil {
		text = text[:start+m[0]]
	}
	return text
}

// next is how many bytes at the beginning of v may be passed on, and whether a space belongs behind them; 0 bytes if
// that depends on what follows. v has at most maxHeld bytes.
func (s *screen) next(v string, final bool) (n int, spaced bool) {
	complete := final || len(v) == maxHeld
	c := v[0]
	if c == '`' || c == '~' && s.fence == "" {
		run := len(v) - len(strings.TrimLeft(v, v[:1]))
		if run < 3 && (run < len(v) || complete) {
			return run, false
		}
		return s.fenceLine(v, run, complete), false
	}
	if s.fence != "" {
		return 1, false
	}
	// A line like these may begin HTML, mathematics or a container, in which fences mean nothing.
	s.doubt = s.doubt || !s.word && strings.IndexByte(`<$:\{%`, c) >= 0
	if c < utf8.RuneSelf && strings.IndexByte(`!<&\%`, c) < 0 {
		return 1, false
	}
	f := envelope.FoldSome(v, 1)
	if f.Text == "" || f.Start[0] > 0 {
		_, n = utf8.DecodeRuneInString(v) // an invisible character
		return n, false
	}
	n = f.End[0]
	last := f.Text[len(f.Text)-1]
	if last != '!' && last != '<' {
		if strings.Contains(f.Text, "<") { // as in &ltimg, which counts as one character: it is parted
			return 1, true
		}
		return n, false
	}
	switch follows := envelope.FoldSome(v[n:], 1).Text; {
	case follows == "" && !complete:
		return 0, false
	case follows == "" || last == '!':
		return n, strings.HasPrefix(follows, "[") || follows == "" && len(v) == maxHeld
	case follows[0] < 'a' || follows[0] > 'z':
		return n, false
	}
	// A value cannot come before an equals sign, and no tag ends before a bracket that is written as itself.
	inside, _, closed := strings.Cut(v[n:], ">")
	tag := envelope.Fold(inside).Text
	if strings.Contains(tag, "=") {
		return n, true
	}
	if !closed && !complete {
		return 0, false
	}
	return n, runs.MatchString(tag) || !closed && len(v) == maxHeld
}

var (
	fenceOpens = regexp.MustCompile("^`{3,}[a-zA-Z0-9_+#.-]*[ \t]*\r?$")
	runs       = regexp.MustCompile(`^(?:[a-z0-9_-]+:)?(?:script|style)`)
)

// fenceLine is given the text from three or more backticks or tildes on. Only a fence of backticks that stands alone at
// the beginning of a line opens or closes code that every reader takes for code.
func (s *screen) fenceLine(v string, run int, complete bool) int {
	end := strings.IndexByte(v+"\n", '\n')
	switch line := v[:end]; {
	case end == len(v) && !complete:
		return 0
	case !s.inner && !s.doubt && s.fence == "" && end < len(v) && fenceOpens.MatchString(line):
		s.fence = v[:run]
	case !s.inner && s.fence != "" && strings.TrimRight(line, " \t\r") == s.fence:
		s.fence = ""
	default:
		s.fence, s.doubt = "", true
	}
	return run
}

// linkRemoved takes the place of an address.
const linkRemoved = "(link removed)"

// linkPatterns match addresses in folded text: with any scheme; without one, as
// browsers complete them; and hosts with a path or a query, also when they are written so that they
// are not links.
var linkPatterns = regexp.MustCompile(strings.NewReplacer(
	"REST", `[^\s<>()\[\]"'`+"`"+`]`, "DOT", `(?:\.|\[\.\]|\(\.\)|\[dot\]|\(dot\)|\{\.\})`, "TLD",
	`(?:[a-z]{2,24}|xn--[a-z0-9-]+|p[ф])`,
).Replace(`[a-z][a-z0-9+.-]{1,30}:[/\\]{2}REST+` +
	`|h(?:tt|xx)ps?\s?:[/\\]*REST+` +
	`|(?:java|vb|live)script:REST+` +
	`|(?:\b|[0-9_])(?:ftps?|file|wss?|blob|mailto|view-source|ms-[a-z-]+):REST+` +
	`|\bdata:(?:[a-z]+/REST*|REST*,REST+|;REST+)` +
	`|(?:\b|[0-9_])www(?:\.|\[\.\]|\(\.\))REST+` +
	`|\](?:\(|:)\s*<?(?:[a-z][a-z0-9+.-]*:REST+|[/\\]\s?[/\\]REST*)` +
	`|(?:^|[\s(<"'=|])[/\\]{2}[\p{L}\p{N}-]+(?:DOT[\p{L}\p{N}-]+)+REST*` +
	`|(?:[\p{L}\p{N}_-]+DOT)+TLD(?::\d{1,5})?(?:/REST*|\?REST+)` +
	`|\b\d{1,3}(?:DOT\d{1,3}){3}(?::\d{1,5})?[/?][a-z?]REST*`))

// fileName matches a file's name that looks like a host. None of these endings is a top-level
// domain.
var fileName = regexp.MustCompile(
	`^[^/?#:]*\.(?:js|mjs|ts|tsx|jsx|json|ya?ml|txt|toml|xml|csv|tsv|pdf|docx?|xlsx|html?|css|cpp|go|exe|conf|cfg|ini|log|lock|mod|sum|sql|ipynb|gz|jar)/`,
)

// addressTail are characters that may follow an address without being part of it.
const addressTail = ".,;:!?*_~|…»”’\\"

// addresses returns the places of the addresses in a folded text.
func addresses(f envelope.Folding) (list [][2]int) {
	if !strings.ContainsAny(f.Text, `:/\?`) && !strings.Contains(f.Text, "www") {
		return nil
	}
	for _, m := range linkPatterns.FindAllStringIndex(f.Text, -1) {
		start := m[0] + len(f.Text[m[0]:m[1]]) - len(strings.TrimLeft(f.Text[m[0]:m[1]], "](: \t\n<\"'=|"))
		address := f.Text[start:m[1]]
		if fileName.MatchString(address) || private(address) {
			continue
		}
		list = append(list, [2]int{start, m[1]})
	}
	return list
}

// private reports whether an address without a scheme is on this machine or its own network, so
// that nothing can leak to it.
func private(address string) bool {
	host := address[:len(address)-len(strings.TrimLeft(address, "0123456789."))]
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsPrivate())
}

// links returns the changes that remove the addresses which are not allowed. The whole address has to be known: one that
// a longer address begins with allows nothing.
func (c *checker) links(text string, f envelope.Folding) (changes []envelope.Change) {
	for _, loc := range addresses(f) {
		start, end := f.Start[loc[0]], f.End[loc[1]-1]
		address := text[start:end]
		if c.scope.allowed(address) {
			continue
		}
		end = start + len(strings.TrimRight(address, ".,;:!?*|"))
		replacement := linkRemoved
		if strings.HasSuffix(text[:start], "]") { // a Markdown link would need the parenthesis here
			replacement = " " + replacement
		}
		c.flag(RemovedLink, text[start:end])
		changes = append(changes, envelope.Change{Start: start, End: end, Text: replacement})
	}
	return changes
}

// canonicalAddress removes what does not make an address a different one.
func canonicalAddress(address string) string {
	return strings.TrimSuffix(strings.TrimRight(address, addressTail), "/")
}
