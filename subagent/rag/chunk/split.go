// Package chunk holds what is known of a document's text and cuts it into
// passages: pieces that are found, shown and cited by themselves.
//
// A Document is its text and what lies where in it; all places are byte offsets
// into that text. Split follows the headings first, then paragraphs, sentences
// (English and Russian) and words, and repeats the end of a passage at the
// beginning of the next one.
package chunk

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Options are the sizes of passages in characters (runes).
type Options struct {
	// Target is how long the new text of a passage should be.
	Target int
	// Max is what no passage exceeds. A document of at most Max characters is one
	// passage.
	Max int
	// Overlap is how much of a passage's end the next one of the same section may
	// repeat; it is never more than 15 % of the next one. Below zero: nothing.
	Overlap int
}

// Default gives passages of 200 to 350 words: about what answers one question, so
// that five of them fit any model.
func Default() Options { return Options{Target: 1500, Max: 2000, Overlap: 200} }

// maxOverlap is the largest part of a passage that may repeat the one before, in
// percent.
const maxOverlap = 15

// smallest is the least Max: below it there is no room for a boundary to choose.
const smallest = 20

// sane gives options that can be kept: zeros are the defaults, and what
// contradicts Max gives way to it.
func (o Options) sane() Options {
	d := Default()
	if o.Max <= 0 {
		o.Max = max(d.Max, o.Target)
	}
	o.Max = max(o.Max, smallest)
	if o.Target <= 0 {
		o.Target = o.Max * d.Target / d.Max
	}
	o.Overlap = cmp.Or(o.Overlap, o.Max*d.Overlap/d.Max)
	o.Overlap = max(0, min(o.Overlap, o.Max*maxOverlap/100))
	// A passage's new text and the overlap together must fit.
	o.Target = max(1, min(o.Target, o.Max-o.Overlap))
	return o
}

// Passage is a piece of a document: Text is the document's text at Span, without
// white space at its ends.
type Passage struct {
	Span
	Ordinal int    // from 0
	Section string // the headings above it, "A > B"; those that all of it has in common
	Page    int    // it is on, from 1; 0 for none
	Text    string
}

// Split cuts a document into passages in the order of the text. Every character
// that is no white space is in one of them. The same document and options always
// give the same passages; a text of white space gives none.
func Split(d Document, o Options) []Passage {
	s := splitter{doc: d, o: o.sane()}
	if size := utf8.RuneCountInString(d.Text); size <= s.o.Max && !s.manyPages() {
		s.add(0, len(d.Text), joinPath(commonPath(s.sections())))
		return s.passages
	}
	for _, block := range d.Blocks {
		text := d.Text[s.edge(block.Start):max(s.edge(block.Start), s.edge(block.End))]
		s.fits = append(s.fits, utf8.RuneCountInString(text) <= s.o.Max-s.o.Overlap)
	}
	for _, p := range s.parts() {
		s.part(p)
	}
	return s.passages
}

// splitter cuts one document.
type splitter struct {
	doc      Document
	o        Options
	fits     []bool // which of doc.Whole have room in any passage
	passages []Passage
}

// manyPages says whether the document has more than one page: what is on two of
// them is not one passage, so that each is cited with its page.
func (s *splitter) manyPages() bool {
	return len(s.doc.Sections) > 1 && s.doc.Sections[0].Page != s.doc.Sections[len(s.doc.Sections)-1].Page
}

// page is the page that lies at i.
func (s *splitter) page(i int) int {
	n, ok := slices.BinarySearchFunc(s.doc.Sections, i, func(b Section, i int) int { return b.Start - i })
	if !ok {
		n--
	}
	if n < 0 || i >= s.doc.Sections[n].End {
		return 0
	}
	return s.doc.Sections[n].Page
}

// part is a piece of text that is cut by itself.
type part struct {
	Span
	path  []string
	empty bool // headings without text under them
	size  int  // in characters
}

// sections are the document's sections with the text that belongs to none put in
// as sections without a path, so that nothing is left out.
func (s *splitter) sections() []Section {
	var list []Section
	pos, end := 0, len(s.doc.Text)
	for _, section := range s.doc.Sections {
		section.Start, section.End = s.edge(section.Start), s.edge(section.End)
		if section.Start < pos || section.End <= section.Start {
			continue // no order: its text still belongs to what is around it
		}
		if section.Start > pos {
			list = append(list, Section{Span: Span{pos, section.Start}, Body: pos})
		}
		list = append(list, section)
		pos = section.End
	}
	if pos < end {
		list = append(list, Section{Span: Span{pos, end}, Body: pos})
	}
	return list
}

// edge is the offset i, moved into the text and off the inside of a character.
func (s *splitter) edge(i int) int {
	i = max(0, min(i, len(s.doc.Text)))
	for i > 0 && i < len(s.doc.Text) && !utf8.RuneStart(s.doc.Text[i]) {
		i--
	}
	return i
}

// parts are the sections as they are cut. A heading without text goes with what
// follows it, and short sections under one heading go together.
func (s *splitter) parts() []part {
	var list []part
	for _, section := range s.sections() {
		text := s.doc.Text[section.Start:section.End]
		body := max(section.Start, min(s.edge(section.Body), section.End))
		next := part{Span: section.Span, path: section.Path, size: utf8.RuneCountInString(text),
			empty: blank(s.doc.Text[body:section.End])}
		if blank(text) {
			continue
		}
		if n := len(list) - 1; n >= 0 {
			previous := &list[n]
			common := commonPrefix(previous.path, next.path)
			switch {
			case previous.size+next.size > s.o.Target:
			case previous.empty:
				// The lower heading's path says it all, if it is a lower one.
				if len(common) < len(previous.path) {
					next.path = common
				}
				previous.merge(next, next.path)
				continue
			case len(common) > 0 && (previous.size < s.o.Target/4 || next.size < s.o.Target/4):
				previous.merge(next, common)
				continue
			}
		}
		list = append(list, next)
	}
	return list
}

func (p *part) merge(next part, path []string) {
	p.End, p.path, p.empty = next.End, path, next.empty
	p.size += next.size
}

// part cuts one part into passages of about the same length.
func (s *splitter) part(p part) {
	section := joinPath(p.path)
	cuts := s.cuts(p)
	for i, end := range cuts {
		start := p.Start
		if i > 0 {
			floor := p.Start
			if i > 1 {
				floor = cuts[i-2]
			}
			start = s.overlap(floor, cuts[i-1], end)
		}
		s.add(start, end, section)
	}
}

// cuts are the ends of a part's passages.
func (s *splitter) cuts(p part) []int {
	var offsets []int
	room := s.o.Max - s.o.Overlap
	for start, rest := p.Start, p.size; ; {
		limit := room
		if start == p.Start {
			limit = s.o.Max // nothing is repeated before it
		}
		if rest <= s.o.Target || len(offsets) == 0 && rest <= s.o.Max {
			return append(offsets, p.End)
		}
		// Equal passages are better than full ones and a scrap at the end.
		want := (rest + (rest-1)/s.o.Target) / ((rest-1)/s.o.Target + 1)
		end := s.cut(Span{start, p.End}, want, limit)
		if end >= p.End {
			return append(offsets, p.End)
		}
		offsets = append(offsets, end)
		rest -= utf8.RuneCountInString(s.doc.Text[start:end])
		start = end
	}
}

// add makes a passage of the text from start to end, less white space.
func (s *splitter) add(start, end int, section string) {
	text := strings.TrimLeftFunc(s.doc.Text[start:end], unicode.IsSpace)
	start = end - len(text)
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	if text == "" {
		return
	}
	s.passages = append(s.passages, Passage{Span: Span{start, start + len(text)}, Ordinal: len(s.passages),
		Section: section, Page: s.page(start), Text: text})
}

// commonPath is the path that all the sections have in common.
func commonPath(sections []Section) []string {
	if len(sections) == 0 {
		return nil
	}
	common := sections[0].Path
	for _, s := range sections[1:] {
		common = commonPrefix(common, s.Path)
	}
	return common
}

func commonPrefix(a, b []string) []string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n:n]
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// Document is a text and its structure. The text is UTF-8.
type Document struct {
	Title  string
	Source string // where it came from: a path, an address
	Text   string
	// Sections lie one behind the other, in order and without overlap. What lies
	// before the first or between two of them belongs to none.
	Sections []Section
	// Blocks are the code blocks and tables, in order and without overlap; one that
	// fits a passage is not cut.
	Blocks   []Span
	Metadata map[string]string
	// Skipped counts what of the file is no text and was left out, by what it is in
	// the plural: "pictures", "formulas".
	Skipped map[string]int
	// Unread are the pages, from 1, ascending, with text that could not be read or is not
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
