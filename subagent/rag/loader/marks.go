package loader

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html/atom"
)

// mark is a set of styles that change the meaning of a run of text.
type mark uint8

const (
	raised mark = 1 << iota
	lowered
	struck
	hidden
	ruby    // the reading of the characters beside it
	symbol  // in the font Symbol
	dingbat // in a font of Wingdings
	tiny    // without a size

	offLine = raised | lowered
)

// flow collects the runs of a paragraph. It renders the marks of every format.
type flow struct {
	strings.Builder
	last mark // of the last run
}

// Reset empties p.
func (p *flow) Reset() { *p = flow{} }

// run adds text with its marks to p. It leaves out readings, hidden text and struck text, and counts
// the last two. It writes a raised or lowered figure so that it does not join another one: "10^6".
func (b *builder) run(p *flow, text string, m mark) {
	if text == "" {
		return
	}
	if m&tiny != 0 {
		m |= hidden
	}
	if m&(symbol|dingbat) != 0 {
		text = strings.Map(m.drawn, text)
	}
	last, blank := p.last, strings.TrimSpace(text) == ""
	if p.last = m; blank {
		p.last &= last
	}
	omitted, what := hidden, "hidden pieces of text"
	if m&hidden == 0 {
		omitted, what = struck, "struck pieces of text"
	}
	switch {
	case m&ruby != 0:
	case m&omitted == 0:
		body := strings.TrimLeftFunc(text, unicode.IsSpace)
		space := text[:len(text)-len(body)]
		if last&struck != 0 && strings.HasSuffix(p.String(), " ") {
			space = strings.TrimLeft(space, " ")
		}
		p.WriteString(space + p.joint(text, body, m&offLine, last&offLine) + body)
	case !blank && last&omitted == 0:
		b.skip(what, 1)
		fallthrough
	default:
		// The words around struck text stay apart.
		end, _ := utf8.DecodeLastRuneInString(p.String())
		if omitted == struck && !unicode.IsSpace(end) && strings.ContainsFunc(text, unicode.IsSpace) {
			p.WriteByte(' ')
		}
	}
}

// joint returns what divides a figure from the text before it, which is drawn at another height.
// body is text without the white space at its start.
func (p *flow) joint(text, body string, m, last mark) string {
	first, _ := utf8.DecodeRuneInString(strings.TrimLeft(body, signs))
	if m == last || body == "" || !unicode.IsNumber(first) && (m == 0 || first != utf8.RuneError) {
		return ""
	}
	head := strings.TrimRightFunc(p.String(), unicode.IsSpace)
	if bare := strings.TrimRight(head, signs); bare != head && strings.HasSuffix(bare, "^") {
		return "" // it continues a sign
	}
	end, _ := utf8.DecodeLastRuneInString(head)
	separated := len(body) < len(text) || len(head) < p.Len()
	sign := (unicode.IsPunct(end) || unicode.IsSymbol(end)) &&
		!unicode.In(end, unicode.Ps, unicode.Pi) && end != '/' && end != '\u2044'
	switch {
	case head == "" || !unicode.IsNumber(end) && (separated || !sign || m == 0):
		return ""
	case m == raised:
		return "^"
	case m == lowered:
		return "_"
	case separated:
		return ""
	}
	return ") " // a raised figure before another one is a note: "1) 500"
}

// signs start a figure. They may be a run of their own.
const signs = "+-−–."

// tagMarks are the marks of HTML elements.
var tagMarks = map[atom.Atom]mark{atom.Sup: raised, atom.Sub: lowered, atom.S: struck, atom.Del: struck,
	atom.Strike: struck, atom.Rt: ruby, atom.Rp: ruby, atom.Rtc: ruby}

// marking is what a style says of marks: which it decides, and which of them are on.
type marking struct{ decided, on mark }

// put decides on marks.
func (s *marking) put(m mark, on bool) {
	s.decided |= m
	if s.on &^= m; on {
		s.on |= m
	}
}

// font sets the marks of fonts that draw other characters.
func (s *marking) font(name string) {
	if name = strings.ToLower(name); name != "" {
		s.put(symbol, name == "symbol")
		s.put(dingbat, strings.HasPrefix(name, "wingdings") || name == "webdings")
	}
}

// symbols are the characters of the font Symbol from 0x20 and from 0xa0
// (unicode.org/Public/MAPPINGS/VENDORS/ADOBE/symbol.txt).
var symbols = map[rune][]rune{
	0x20: []rune(` !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼`),
	0xa0: []rune("€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\uf8ff⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"),
}

// dingbats are the characters of Wingdings with a meaning. Others are bullets.
var dingbats = map[rune]rune{0xfb: '✗', 0xfc: '✓', 0xfd: '☒', 0xfe: '☑', 0x6f: '☐', 0xa8: '☐', 0xdf: '←', 0xe0: '→',
	0xe1: '↑', 0xe2: '↓', 0x4a: '☺', 0x4c: '☹', 0x28: '☎', 0x2a: '✉'}

// drawn returns the character that a symbol font draws for r, which may be a private-use character.
func (m mark) drawn(r rune) rune {
	code := r
	if r >= 0xf000 && r <= 0xf0ff {
		code -= 0xf000
	}
	if m&dingbat != 0 {
		switch {
		case dingbats[code] != 0:
			return dingbats[code]
		case code > 0x20 && code <= 0xff:
			return '•'
		}
		return r
	}
	for first, list := range symbols {
		if i := int(code - first); i >= 0 && i < len(list) {
			return list[i]
		}
	}
	return r
}

// apply returns the marks of text that had marks m without this style.
func (s marking) apply(m mark) mark { return m&^s.decided | s.on }

// markStyle is a style of a document, which may follow another one.
type markStyle struct {
	marking
	base string
}

// markStyles are the styles of a document by name.
type markStyles map[string]*markStyle

// deepestStyle bounds how many styles follow each other.
const deepestStyle = 20

// resolve returns what a style and those that it follows say.
func (s markStyles) resolve(name string) (result marking) {
	for range deepestStyle {
		style := s[name]
		if style == nil {
			break
		}
		result.on |= style.on &^ result.decided
		result.decided |= style.decided
		name = style.base
	}
	return result
}
