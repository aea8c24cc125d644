package loader

import (
	"cmp"
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
	r := openReader{builder: b, styles: markStyles{}, listed: map[string]*numbering{}}
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

	open     []*openParagraph      // the innermost last
	deferred []string              // inner paragraphs of the outermost one
	lists    []openList            // the innermost last
	listed   map[string]*numbering // by style
	levels   *numbering            // of the list's style being defined
	pages    int                   // slides so far
	titled   bool                  // the open frame is the slide's title
	object   bool                  // the open frame has an object, and a picture stands for it
	table    openTable
}

// openList is an open list.
type openList struct {
	style string
	fresh bool // no paragraph of the open item was read
}

// openParagraph is one that is not read to its end.
type openParagraph struct {
	flow
	level  int    // of a heading, 0 for none
	number string // of an item or heading
}

// openTable is the outermost open table.
type openTable struct {
	depth                int
	sheet                *rowWriter // of a spreadsheet, else nil
	table                           // of the document, or the row of a spreadsheet
	paragraphs           []string   // of the open cell
	value                string     // of the open cell without a paragraph
	repeat, across, down int        // of the open cell
	rowRepeat            int        // of the open row
	place                int        // columns so far
	names                bool       // rows name the columns
}

// openSkipped are elements that are left out, and what they count as.
var openSkipped = map[string]string{
	"annotation": "comments", "hidden-text": "hidden pieces of text", "plugin": "embedded objects",
	"placeholder": "placeholder prompts", "control": "form controls", "tracked-changes": "", "forms": "",
	"note-citation": "", "ruby-text": "", "title": "", "number": "",
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

// define reads what styles say of marks and numbers (ODF 1.3 part 3, 19.880, 20.387 and 20.398).
func (r *openReader) define(e xml.StartElement) {
	switch name := e.Name.Local; name {
	case "list-style", "outline-style":
		r.levels = &numbering{counts: new([deepestList]int)}
		r.listed[map[string]string{"list-style": attribute(e, "name"), "outline-style": outlineStyle}[name]] = r.levels
	case "list-level-style-number", "outline-level-style":
		r.defineLevel(e)
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
				offset, _ := strconv.ParseFloat(strings.TrimSuffix(strings.Fields(attr.Value + " 0")[0], "%"), 64)
				r.style.put(raised, offset > 0 || strings.HasPrefix(attr.Value, "super"))
				r.style.put(lowered, offset < 0 || strings.HasPrefix(attr.Value, "sub"))
			case "text-line-through-style", "text-line-through-type":
				r.style.put(struck, attr.Value != "none")
			case "font-name", "font-family":
				r.style.font(strings.Trim(attr.Value, "'"))
			}
		}
	}
}

// outlineStyle is the name of the list that numbers headings.
const outlineStyle = "\x00outline"

// defineLevel reads the number format of a level of a list.
func (r *openReader) defineLevel(e xml.StartElement) {
	level, err := strconv.Atoi(attribute(e, "level"))
	format := attribute(e, "num-format")
	if r.levels == nil || err != nil || level < 1 || level > deepestList || format == "" {
		return
	}
	displayLevels, _ := strconv.Atoi(attribute(e, "display-levels"))
	var numbers []string
	for i := level - max(min(displayLevels, level), 1) + 1; i <= level; i++ {
		numbers = append(numbers, "%"+strconv.Itoa(i))
	}
	start, err := strconv.Atoi(attribute(e, "start-value"))
	if err != nil {
		start = 1
	}
	r.levels.levels[level-1] = numberLevel{format: format, start: start,
		text: attribute(e, "num-prefix") + strings.Join(numbers, ".") + attribute(e, "num-suffix")}
}

// startList starts a list. It may continue the numbers of the last list with its style.
func (r *openReader) startList(e xml.StartElement) {
	style := attribute(e, "style-name")
	if n := len(r.lists); n > 0 && style == "" {
		style = r.lists[n-1].style
	}
	if list := r.listed[style]; list != nil && len(r.lists) == 0 && attribute(e, "continue-numbering") != "true" &&
		attribute(e, "continue-list") == "" && style != outlineStyle {
		list.restart(0)
	}
	r.lists = append(r.lists, openList{style: style})
}

func (r *openReader) startItem(start string) {
	n := len(r.lists)
	if n == 0 {
		return
	}
	r.lists[n-1].fresh = true
	first, err := strconv.Atoi(start)
	if list := r.listed[r.lists[n-1].style]; err == nil && list != nil && n <= deepestList {
		list.counts[n-1] = first - list.levels[n-1].start
	}
}

// number returns the number of the next paragraph if it starts an item or is a heading.
func (r *openReader) number(level int) string {
	style := outlineStyle
	if n := len(r.lists); n > 0 {
		list := &r.lists[n-1]
		if !list.fresh {
			return ""
		}
		list.fresh, style, level = false, list.style, n
	}
	if list := r.listed[style]; list != nil && level > 0 && len(r.open) == 0 {
		return list.next(level - 1)
	}
	return ""
}

// hides says whether an element is left out, and counts it.
func (r *openReader) hides(e xml.StartElement) bool {
	name := e.Name.Local
	what, ok := openSkipped[name]
	switch {
	case ok:
	case r.styles.resolve(attribute(e, "style-name")).on&hidden != 0 || name == "section" &&
		(attribute(e, "display") == "none" || isTrue(attribute(e, "is-hidden"))):
		what = cmp.Or(map[string]string{"table": "hidden sheets", "page": "hidden slides"}[name], "hidden pieces of text")
	case name == "table-row" && (attribute(e, "visibility") == "collapse" || attribute(e, "visibility") == "filter"):
		what = "hidden rows" // a great many empty ones may be one element
	default:
		return false
	}
	if what != "" {
		r.skip(what, 1)
	}
	if name == "table-row" && r.table.depth == 1 {
		r.table.row += repeats(e, "number-rows-repeated", mostRows)
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
		r.marks = append(r.marks, r.styles.resolve(attribute(e, "style-name")).apply(r.mark()))
	}
	switch name {
	case "h":
		level, _ := strconv.Atoi(attribute(e, "outline-level"))
		level = min(max(level, 1), 9)
		r.open = append(r.open, &openParagraph{level: level, number: r.number(level)})
	case "p", "desc": // of a picture
		r.open = append(r.open, &openParagraph{number: r.number(0)})
	case "s":
		count, _ := strconv.Atoi(attribute(e, "c"))
		r.write(strings.Repeat(" ", min(max(count, 1), 100)))
	case "tab":
		r.write("\t")
	case "hidden-paragraph":
		if n := len(r.open) - 1; n >= 0 && len(r.marks) > 0 && isTrue(attribute(e, "is-hidden")) {
			r.marks[len(r.marks)-1] |= hidden
			r.open[n].Reset()
		}
	case "line-break":
		r.write("\n")
	case "list":
		r.startList(e)
	case "list-item":
		r.startItem(attribute(e, "start-value"))
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
			t.sheet.hidden, t.place = map[int]bool{}, 0
		}
	case "table-column":
		for range repeats(e, "number-columns-repeated", mostColumns) {
			if t.depth == 1 && t.sheet != nil && attribute(e, "visibility") == "collapse" && t.place < mostColumns {
				t.sheet.hidden[t.place] = true
			}
			t.place++
		}
	case "table-header-rows":
		t.names = t.depth == 1
	case "table-row":
		if t.depth == 1 {
			t.rowRepeat, t.place = repeats(e, "number-rows-repeated", mostRows), 0
		}
	case "table-cell", "covered-table-cell":
		if t.depth == 1 {
			t.paragraphs, t.repeat = nil, repeats(e, "number-columns-repeated", mostColumns)
			t.across = repeats(e, "number-columns-spanned", mostColumns)
			t.value = cmp.Or(attribute(e, "string-value"), attribute(e, "date-value"), attribute(e, "value"))
			t.down = repeats(e, "number-rows-spanned", mostRows)
		}
	}
}

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
	case "h", "p", "desc":
		r.endParagraph()
	case "list":
		if r.lists = r.lists[:max(0, len(r.lists)-1)]; len(r.lists) == 0 {
			r.endList()
		}
	case "frame":
		r.titled = false
	case "shapes":
		r.paragraph(strings.Join(r.table.paragraphs, "\n"))
	case "table-cell", "covered-table-cell":
		if r.table.depth == 1 {
			r.endCell()
		}
	case "table-row":
		if r.table.depth == 1 {
			r.endOpenRow()
		}
	case "table-header-rows":
		r.table.names = false
	case "table":
		r.endOpenTable()
	}
}

// endParagraph puts the paragraph where it belongs.
func (r *openReader) endParagraph() {
	n := len(r.open) - 1
	if n < 0 {
		return
	}
	p := r.open[n]
	r.open, r.table.value = r.open[:n], ""
	text := strings.TrimSpace(p.String())
	switch {
	case text == "":
	case r.table.depth > 0:
		r.table.paragraphs = append(r.table.paragraphs, strings.TrimSpace(p.number+" "+text))
	case n > 0:
		r.deferred = append(r.deferred, text)
	case p.level > 0:
		r.endList()
		r.heading(p.level, p.number, text)
	case r.titled:
		r.doc.Title = cmp.Or(r.doc.Title, oneLine(text))
		r.titled = false
		r.rename("slide " + strconv.Itoa(r.pages) + ": " + oneLine(text))
		r.paragraph(text)
		return
	case len(r.lists) > 0:
		r.item(len(r.lists)-1, p.number, text)
	default:
		r.paragraph(squeeze(text))
	}
	if n == 0 && len(r.deferred) > 0 {
		r.endList()
		r.paragraph(strings.Join(r.deferred, "\n\n"))
		r.deferred = nil
	}
	r.room(0)
}

func (r *openReader) endCell() {
	t := &r.table
	text := strings.Join(t.paragraphs, "\n")
	if t.paragraphs = nil; t.sheet != nil && text == "" {
		text = t.value
	}
	for range t.repeat {
		if text != "" || t.sheet == nil {
			t.cellAt(t.place, text, t.across, t.down)
		}
		t.place++
	}
}

func (r *openReader) endOpenRow() {
	t := &r.table
	r.room(0)
	if t.sheet == nil {
		r.endRow(&t.table, t.names)
		return
	}
	cells := t.takeRow()
	for n := 0; n < t.rowRepeat && r.err == nil && cells != nil; n++ {
		t.sheet.row(cells)
	}
}

func (r *openReader) endOpenTable() {
	t := &r.table
	if t.depth = max(0, t.depth-1); t.depth > 0 {
		return
	}
	if t.sheet == nil {
		r.endTable(&t.table)
		return
	}
	t.sheet.close()
	t.table, t.sheet = table{}, &rowWriter{b: r.builder}
}
