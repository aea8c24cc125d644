package loader

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"mneme/subagent/rag/chunk"
)

// builder collects a document's text and structure in reading order. Every
// reader of a format writes into one.
//
// Its error is sticky, as that of a bufio.Writer: the methods return none, and after the
// first one they add nothing. What walks through a file looks at err in its loop, so as
// not to read on in vain, and load reports it.
type builder struct {
	ctx      context.Context
	limits   Limits
	err      error
	doc      chunk.Document
	text     strings.Builder
	headings []heading // the open ones, the highest first
	inside   bool      // the last section is open
	items    []string  // of the list that is being read
	// Of the pages that were added, the illegible ones were left out.
	pages, illegible int
	loader           Loader // that the document is read by
	sheet            *styleSheet
	linked           func(name string) string // returns a linked style sheet; nil without style sheets
}

type heading struct {
	level int
	name  string
}

func newBuilder(ctx context.Context, limits Limits) *builder {
	return &builder{ctx: ctx, limits: limits}
}

// fail keeps the first error; nil is none.
func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// room says whether to go on: nothing has failed, the context is alive and n more bytes
// fit into the limit.
func (b *builder) room(n int) bool {
	if b.ctx.Err() != nil {
		b.fail(context.Cause(b.ctx))
	} else if b.text.Len()+n > b.limits.Text {
		b.fail(tooMuchText(b.limits))
	}
	return b.err == nil
}

func tooMuchText(l Limits) *Error {
	return refuse(TooLarge, "the file holds more than %s of text", size(int64(l.Text)))
}

// paragraph adds a block of text behind a blank line. Blank lines inside are the
// caller's.
func (b *builder) paragraph(text string) { b.block(text) }

// addBlock adds a code block or table, which stays in one passage where it fits.
func (b *builder) addBlock(text string) {
	if span := b.block(text); span.End > span.Start {
		b.doc.Blocks = append(b.doc.Blocks, span)
	}
}

// item adds to a list, which endList writes as one block. depth is the nesting of
// the item's list, from 0. number is its number, "" for a dash.
func (b *builder) item(depth int, number, text string) {
	b.items = append(b.items, strings.Repeat("  ", min(depth, 9))+cmp.Or(number, "-")+" "+oneLine(text))
	b.room(0)
}

func (b *builder) endList() {
	items := strings.Join(b.items, "\n")
	b.items = nil
	b.paragraph(items)
}

// block adds text behind a blank line and says where it lies. Lines keep their
// indentation.
func (b *builder) block(text string) chunk.Span {
	text = clean(strings.Trim(text, "\n"))
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	if !b.room(len(text)+2) || strings.TrimSpace(text) == "" {
		return chunk.Span{}
	}
	if b.text.Len() > 0 {
		b.text.WriteString("\n\n")
	}
	start := b.text.Len()
	b.text.WriteString(text)
	return chunk.Span{Start: start, End: b.text.Len()}
}

// heading starts a section. The first heading of the highest level names the
// document if nothing else does. Only the text has its number, not the section's name.
func (b *builder) heading(level int, number, name string) {
	name = oneLine(name)
	if name == "" {
		return
	}
	if level == 1 && b.doc.Title == "" {
		b.doc.Title = name
	}
	b.open(level, name)
	span := b.block(strings.TrimSpace(number + " " + name))
	last := &b.doc.Sections[len(b.doc.Sections)-1]
	last.Start, last.Body = span.Start, span.End
}

// open starts a section with a name that is no part of the text.
func (b *builder) open(level int, name string) {
	b.close()
	for len(b.headings) > 0 && b.headings[len(b.headings)-1].level >= level {
		b.headings = b.headings[:len(b.headings)-1]
	}
	b.headings = append(b.headings, heading{level, name})
	path := make([]string, len(b.headings))
	for i, h := range b.headings {
		path[i] = h.name
	}
	start := b.text.Len()
	b.doc.Sections = append(b.doc.Sections, chunk.Section{Span: chunk.Span{Start: start}, Path: path, Body: start})
	b.inside = true
}

// rename gives the open section another name, which its text tells only later.
func (b *builder) rename(name string) {
	if n := len(b.headings) - 1; b.inside && n >= 0 {
		b.headings[n].name = name
		path := b.doc.Sections[len(b.doc.Sections)-1].Path
		path[len(path)-1] = name
	}
}

// close ends the open section where the text ends now; one without text is none.
func (b *builder) close() {
	if !b.inside {
		return
	}
	b.inside = false
	n := len(b.doc.Sections) - 1
	if b.doc.Sections[n].End = b.text.Len(); b.doc.Sections[n].End <= b.doc.Sections[n].Start {
		b.doc.Sections = b.doc.Sections[:n]
	}
}

// include adds another document as a section of that name, with its own sections
// below it.
func (b *builder) include(name string, d chunk.Document) {
	b.heading(1, "", name)
	offset := b.block(d.Text).Start
	if b.err != nil {
		return
	}
	own := &b.doc.Sections[len(b.doc.Sections)-1]
	if own.End, b.inside = b.text.Len(), false; len(d.Sections) > 0 {
		own.End = offset + d.Sections[0].Start
	}
	for _, s := range d.Sections {
		b.doc.Sections = append(b.doc.Sections, chunk.Section{Path: append([]string{name}, s.Path...),
			Span: chunk.Span{Start: offset + s.Start, End: offset + s.End}, Body: offset + s.Body})
	}
	for _, w := range d.Blocks {
		b.doc.Blocks = append(b.doc.Blocks, chunk.Span{Start: offset + w.Start, End: offset + w.End})
	}
	for what, count := range d.Skipped {
		b.skip(what, count)
	}
	b.skip("unreadable pages", len(d.Unread))
}

// deepestFile bounds the nesting of embedded files and of the parts of a message.
const deepestFile = 10

// embed adds the text of an embedded file. It counts a file that it cannot read.
func (b *builder) embed(f file) {
	title := b.doc.Title
	f.depth++
	err := error(refuse(Skipped, "it lies too deep"))
	if f.depth <= deepestFile {
		var reader Extractor
		var label string
		if reader, label, err = b.loader.reader(f); err == nil {
			err = guard(label, func() error { return reader.extract(b, f) })
		}
	}
	b.doc.Title = title
	switch code := CodeOf(err); {
	case err == nil:
	case code == "" || code == TooLarge || code == Timeout:
		b.fail(err)
	default:
		b.skip("embedded files", 1)
	}
}

// meta notes what is known of the document beside its text. It is bounded: only
// the first values of a document that has many are kept.
func (b *builder) meta(name, value string) {
	const most, longest = 50, 1000
	name, value = oneLine(name), oneLine(value)
	if name == "" || value == "" || len(name) > longest || len(value) > longest || len(b.doc.Metadata) >= most {
		return
	}
	if b.doc.Metadata == nil {
		b.doc.Metadata = map[string]string{}
	}
	b.doc.Metadata[name] = value
}

// skip counts what is left out of the text: pictures, charts and the like.
func (b *builder) skip(what string, count int) {
	if count <= 0 {
		return
	}
	if b.doc.Skipped == nil {
		b.doc.Skipped = map[string]int{}
	}
	b.doc.Skipped[what] += count
}

// unread notes a page, from 1, with text that could not be read or is not legible.
func (b *builder) unread(page int) { b.doc.Unread = append(b.doc.Unread, page) }

// page adds the text of a page, a section of its own. One that is not legible is
// left out; unmapped says that most of its characters have no known meaning.
func (b *builder) page(number int, text string, unmapped bool) {
	b.pages++
	text = squeeze(clean(text))
	if !legiblePage(text, unmapped) {
		b.illegible++
		b.unread(number)
		b.room(0)
		return
	}
	b.open(1, "page "+strconv.Itoa(number))
	b.doc.Sections[len(b.doc.Sections)-1].Page = number
	b.paragraph(text)
}

// document ends the work.
func (b *builder) document() chunk.Document {
	b.close()
	b.doc.Text = b.text.String()
	return b.doc
}

var terminal = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]`)

// clean gives text with line feeds and tabs as its only control characters, and
// without the invisible characters that could hide or reorder what a reader
// sees. The joiners stay: scripts and emoji are spelled with them.
func clean(text string) string {
	if isPlain(text) {
		return text
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\r\n", "\n")
	if strings.Contains(text, "\x1b[") { // colours of a terminal
		text = terminal.ReplaceAllString(text, "")
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\u200c' || r == '\u200d' || r >= ' ' && r < 0x7f:
			return r
		case r == '\r' || r == '\f' || r == '\u0085' || r == '\u2028' || r == '\u2029':
			return '\n'
		case unicode.In(r, unicode.Cc, unicode.Cf):
			return -1
		}
		return r
	}, text)
}

// isPlain reports whether a text has only letters of ASCII, line feeds and tabs.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// oneLine is cleaned text as one line of words.
func oneLine(text string) string {
	if text = clean(text); !strings.ContainsAny(text, "\n\t") && !strings.Contains(text, "  ") && isPlain(text) {
		return strings.Trim(text, " ")
	}
	return strings.Join(strings.Fields(text), " ")
}
