package loader

import (
	"encoding/xml"
	"strconv"
	"strings"
)

// readOpenDocument reads a text (.odt), a spreadsheet (.ods) or a presentation
// (.odp): headings, paragraphs, lists, notes, tables, and a section for each sheet
// or slide. Deleted and hidden text is left out, as are comments.
func readOpenDocument(b *builder, f file) error {
	a, err := b.unpack(f, labelOpen)
	if err != nil {
		return err
	}
	a.elements("META-INF/manifest.xml", func(e xml.StartElement) {
		if e.Name.Local == "encryption-data" {
			b.fail(refuse(Encrypted, "the document is encrypted: save it without a password"))
		}
	})
	if !a.has("content.xml") {
		return refuse(Damaged, "the file is damaged: it is %s without its text", labelOpen)
	}
	b.doc.Title = a.textOf("meta.xml", "title")
	r := openReader{builder: b, styles: markStyles{}}
	a.elements("styles.xml", r.define)
	a.walk("content.xml", &r)
	return nil
}

// openReader turns the elements of OpenDocument (ISO/IEC 26300) into text. Where
// paragraphs lie in each other, as those of notes and text boxes, the inner ones
// follow the outer one.
type openReader struct {
	*builder
	styles markStyles
	style  *markStyle // the style being defined
	marks  []mark     // of the open paragraphs and spans

	open   []*openParagraph // the innermost last
	later  []string         // inner paragraphs of the outermost one
	lists  int              // open ones
	pages  int              // slides so far
	titled bool             // the open frame is the slide's title
	object bool             // the open frame has an object, and a picture stands for it
	table  openTable
}

// openParagraph is one that is not read to its end.
type openParagraph struct {
	flow
	level int // of a heading, 0 for none
}

// openTable is the outermost open table.
type openTable struct {
	depth  int
	sheet  *rowWriter // of a spreadsheet, else nil
	text   grid       // of any other document
	values []string   // of the open row
	cell   []string   // paragraphs of the open cell
	repeat int        // of the open cell
	again  int        // of the open row
	column int        // columns so far
	unseen map[int]bool
}

// openSkipped are elements that are left out, and what they count as.
var openSkipped = map[string]string{
	"annotation": "comments", "hidden-text": "hidden pieces of text", "plugin": "embedded objects",
	"tracked-changes": "", "forms": "", "note-citation": "", "ruby-text": "", "desc": "", "title": "",
}

func (r *openReader) write(text string) {
	if n := len(r.open); n > 0 {
		p := r.open[n-1]
		r.run(&p.flow, text, r.mark())
		r.room(p.Len())
	}
}

// openMarked are elements whose style may draw marks.
var openMarked = map[string]bool{"p": true, "h": true, "span": true, "a": true}

// mark returns the marks of the text that follows.
func (r *openReader) mark() mark {
	if n := len(r.marks); n > 0 {
		return r.marks[n-1]
	}
	return 0
}

// define reads what styles say of marks (ODF 1.3 part 3, 20.387 and 20.398).
func (r *openReader) define(e xml.StartElement) {
	switch name := e.Name.Local; name {
	case "style":
		r.style = &markStyle{base: attribute(e, "parent-style-name")}
		r.styles[attribute(e, "name")] = r.style
	case "text-properties", "table-properties", "drawing-page-properties":
		if r.style == nil {
			return
		}
		if display := attribute(e, "display"); display == "none" || display == "false" ||
			attribute(e, "visibility") == "hidden" {
			r.style.put(hidden, true)
		}
		for _, attr := range e.Attr {
			switch attr.Name.Local {
			case "text-position": // "super 58%", "-33% 58%"
				by, _ := strconv.ParseFloat(strings.TrimSuffix(strings.Fields(attr.Value + " 0")[0], "%"), 64)
				r.style.put(raised, by > 0 || strings.HasPrefix(attr.Value, "super"))
				r.style.put(lowered, by < 0 || strings.HasPrefix(attr.Value, "sub"))
			case "text-line-through-style", "text-line-through-type":
				r.style.put(struck, attr.Value != "none")
			}
		}
	}
}

// hides says whether an element is left out, and counts it.
func (r *openReader) hides(e xml.StartElement) bool {
	name := e.Name.Local
	what, found := openSkipped[name]
	switch {
	case found:
	case r.styles.of(attribute(e, "style-name")).on&hidden != 0 || name == "section" && attribute(e, "display") == "none":
		what = map[string]string{"table": "hidden sheets", "page": "hidden slides"}[name]
		if what == "" {
			what = "hidden pieces of text"
		}
	case name == "table-row" && (attribute(e, "visibility") == "collapse" || attribute(e, "visibility") == "filter"):
		what = "hidden rows" // a great many empty ones may be one element
	default:
		return false
	}
	if what != "" {
		r.skip(what, 1)
	}
	return true
}

func (r *openReader) start(e xml.StartElement) bool {
	if r.hides(e) {
		return false
	}
	r.define(e)
	name := e.Name.Local
	if openMarked[name] {
		r.marks = append(r.marks, r.styles.of(attribute(e, "style-name")).over(r.mark()))
	}
	switch name {
	case "h":
		level, _ := strconv.Atoi(attribute(e, "outline-level"))
		r.open = append(r.open, &openParagraph{level: min(max(level, 1), 9)})
	case "p":
		r.open = append(r.open, &openParagraph{})
	case "s":
		count, _ := strconv.Atoi(attribute(e, "c"))
		r.write(strings.Repeat(" ", min(max(count, 1), 100)))
	case "tab":
		r.write("\t")
	case "line-break":
		r.write("\n")
	case "list":
		r.lists++
	case "page":
		r.pages++
		r.builder.open(1, "slide "+strconv.Itoa(r.pages))
	case "frame":
		r.titled, r.object = attribute(e, "class") == "title", false
	case "object", "object-ole":
		r.object = true
		r.skip("embedded objects", 1)
	case "image":
		if !r.object {
			r.skip("pictures", 1)
		}
	default:
		r.startTable(name, e)
	}
	return true
}

func (r *openReader) startTable(name string, e xml.StartElement) {
	t := &r.table
	switch name {
	case "spreadsheet":
		t.sheet = &rowWriter{b: r.builder}
	case "table":
		if t.depth++; t.depth == 1 && t.sheet != nil {
			r.builder.open(1, oneLine(attribute(e, "name")))
			t.unseen, t.column = map[int]bool{}, 0
		}
	case "table-column":
		for range repeats(e, "number-columns-repeated", mostColumns) {
			if t.unseen != nil && attribute(e, "visibility") == "collapse" {
				t.unseen[t.column] = true
			}
			t.column++
		}
	case "table-row":
		if t.depth == 1 {
			t.again = repeats(e, "number-rows-repeated", mostRows)
			t.values, t.column = nil, 0
		}
	case "table-cell", "covered-table-cell":
		if t.depth == 1 {
			t.cell, t.repeat = nil, repeats(e, "number-columns-repeated", mostColumns)
		}
	}
}

// What a spreadsheet can have.
const (
	mostColumns = 16_384
	mostRows    = 1 << 20
)

// repeats is how many cells or rows one element stands for.
func repeats(e xml.StartElement, name string, most int) int {
	n, _ := strconv.Atoi(attribute(e, name))
	return min(max(n, 1), most)
}

func (r *openReader) end(name string) {
	if openMarked[name] {
		r.marks = r.marks[:max(0, len(r.marks)-1)]
	}
	switch name {
	case "h", "p":
		r.endParagraph()
	case "list":
		if r.lists = max(0, r.lists-1); r.lists == 0 {
			r.endList()
		}
	case "frame":
		r.titled = false
	case "table-cell", "covered-table-cell":
		if r.table.depth == 1 {
			r.endCell()
		}
	case "table-row":
		if r.table.depth == 1 {
			r.endRow()
		}
	case "table":
		r.endTable()
	}
}

// endParagraph puts the paragraph where it belongs.
func (r *openReader) endParagraph() {
	n := len(r.open) - 1
	if n < 0 {
		return
	}
	p := r.open[n]
	r.open = r.open[:n]
	text := strings.TrimSpace(p.String())
	switch {
	case text == "":
	case r.table.depth > 0:
		r.table.cell = append(r.table.cell, text)
	case n > 0:
		r.later = append(r.later, text)
	case p.level > 0:
		r.endList()
		r.heading(p.level, text)
	case r.titled:
		if r.doc.Title == "" {
			r.doc.Title = oneLine(text)
		}
		r.titled = false
		r.rename("slide " + strconv.Itoa(r.pages) + ": " + oneLine(text))
		r.paragraph(text)
		return
	case r.lists > 0:
		r.item(min(r.lists, 10)-1, text)
	default:
		r.paragraph(squeeze(text))
	}
	if n == 0 && len(r.later) > 0 {
		r.endList()
		r.paragraph(strings.Join(r.later, "\n\n"))
		r.later = nil
	}
	r.room(0)
}

func (r *openReader) endCell() {
	t := &r.table
	value := strings.Join(t.cell, "\n")
	t.cell = nil
	for range t.repeat {
		if !t.unseen[t.column] && (value != "" || t.sheet == nil) && len(t.values) < mostColumns {
			t.values = append(t.values, make([]string, max(0, min(t.column, mostColumns)-len(t.values)))...)
			t.values = append(t.values, value)
		}
		t.column++
	}
}

func (r *openReader) endRow() {
	t := &r.table
	r.room(0)
	switch {
	case filled(t.values) == 0:
	case t.sheet == nil:
		for _, value := range t.values {
			t.text.cell(value)
		}
		t.text.endRow()
		r.room(t.text.size)
	default:
		for n := 0; n < t.again && r.err == nil; n++ {
			t.sheet.add(t.values)
		}
	}
}

func (r *openReader) endTable() {
	t := &r.table
	if t.depth = max(0, t.depth-1); t.depth > 0 {
		return
	}
	t.unseen = nil
	if t.sheet == nil {
		r.whole(t.text.take())
		return
	}
	t.sheet.end()
	t.sheet = &rowWriter{b: r.builder}
}
