package loader

import (
	"encoding/xml"
	"strconv"
	"strings"
)

// readWord reads a .docx: headings, paragraphs, lists, tables, footnotes and
// endnotes. Deleted, struck and hidden text is left out, as are comments.
func readWord(b *builder, f file) error {
	a, main, related, err := b.office(f, labelWord, "word/document.xml")
	if err != nil {
		return err
	}
	w := wordReader{builder: b, levels: map[string]int{}, lists: map[string]bool{}, styles: markStyles{}}
	a.elements(targetOf(related, "styles", "word/styles.xml"), w.style)
	for _, part := range []string{main, targetOf(related, "footnotes", "word/footnotes.xml"),
		targetOf(related, "endnotes", "word/endnotes.xml")} {
		a.walk(part, &w)
	}
	a.skipRelated(related)
	return nil
}

// wordReader turns the elements of WordprocessingML into text.
type wordReader struct {
	*builder
	levels map[string]int  // heading level by style
	lists  map[string]bool // styles that are items of a list
	styles markStyles
	styled string // the style being defined

	text   flow // of the paragraph
	level  int  // of the paragraph as a heading, 0 for none
	depth  int  // of the paragraph in lists, from 1, 0 for none
	inText bool
	base   mark // of the paragraph
	mark   mark // of the run

	tables int      // open ones
	table  grid     // the outermost of them
	cells  []string // paragraphs of its open cell
}

// style learns which styles are headings and lists: their ids are in the language of the
// document's author, their names are English.
func (w *wordReader) style(start xml.StartElement) {
	switch start.Name.Local {
	case "style":
		w.styled = attribute(start, "styleId")
		w.styles[w.styled] = &markStyle{}
	case "basedOn":
		if style := w.styles[w.styled]; style != nil {
			style.base = attribute(start, "val")
		}
	case "name":
		name := strings.ToLower(attribute(start, "val"))
		if level, ok := strings.CutPrefix(name, "heading "); ok {
			w.levels[w.styled], _ = strconv.Atoi(level)
		}
		if name == "title" {
			w.levels[w.styled] = 1
		}
		if strings.HasPrefix(name, "list ") && name != "list paragraph" {
			w.lists[w.styled] = true
		}
	case "outlineLvl":
		if level, err := strconv.Atoi(attribute(start, "val")); err == nil && level < 9 && w.levels[w.styled] == 0 {
			w.levels[w.styled] = level + 1
		}
	default:
		if style := w.styles[w.styled]; style != nil {
			wordMark(start, &style.marking)
		}
	}
}

// leastShift is by how many half-points text is raised or lowered at least. Converters of PDFs
// shift text by less to place it.
const leastShift = 6

// wordMark reads a property of a run that draws a mark.
func wordMark(e xml.StartElement, style *marking) {
	value := attribute(e, "val")
	on := value != "0" && value != "false" && value != "off"
	switch e.Name.Local {
	case "vanish":
		style.put(hidden, on)
	case "strike", "dstrike":
		style.put(struck, on)
	case "vertAlign":
		style.put(raised, value == "superscript")
		style.put(lowered, value == "subscript")
	case "position":
		points, _ := strconv.Atoi(value)
		style.put(raised, points >= leastShift)
		style.put(lowered, points <= -leastShift)
	}
}

// unshown are elements with text that is not the document's: what was deleted, the second
// version of a drawing, instructions for fields, readings, formatting that was changed.
var unshown = map[string]bool{"del": true, "moveFrom": true, "Fallback": true, "instrText": true, "delText": true,
	"rt": true, "rPrChange": true, "pPrChange": true}

// formulaMarks stand before the parts of a formula.
var formulaMarks = map[string]string{"sup": "^", "sub": "_", "den": "/"}

func (w *wordReader) write(text string) {
	if w.inText {
		w.run(&w.text, text, w.mark)
		w.room(w.text.Len())
	}
}

func (w *wordReader) start(e xml.StartElement) bool {
	name := e.Name.Local
	if unshown[name] {
		return false
	}
	switch name {
	case "t":
		w.inText = true
	case "r":
		w.mark = w.base
	case "rStyle":
		w.mark = w.styles.of(attribute(e, "val")).over(w.mark)
	case "sup", "sub", "den", "chr":
		if e.Name.Space == "m" { // of a formula
			w.text.WriteString(formulaMarks[name] + attribute(e, "m:val"))
		}
	case "tab":
		w.run(&w.text, "\t", w.mark)
	case "br", "cr":
		w.run(&w.text, "\n", w.mark)
	case "noBreakHyphen":
		w.run(&w.text, "-", w.mark)
	case "p":
		w.level, w.depth, w.base, w.mark = 0, 0, 0, 0
		w.endParagraph() // of a text box's anchor
	case "pStyle":
		style := attribute(e, "val")
		w.level, w.base = w.levels[style], w.styles.of(style).on
		if w.lists[style] {
			w.depth = max(w.depth, 1)
		}
	case "outlineLvl":
		if level, err := strconv.Atoi(attribute(e, "val")); err == nil && level < 9 && w.level == 0 {
			w.level = level + 1
		}
	case "ilvl":
		level, _ := strconv.Atoi(attribute(e, "val"))
		w.depth = 1 + max(0, min(level, 9))
	case "numId":
		if attribute(e, "val") == "0" {
			w.depth = 0
		} else {
			w.depth = max(w.depth, 1)
		}
	case "tbl":
		w.tables++
		w.endList()
	default:
		var direct marking
		wordMark(e, &direct)
		w.mark = direct.over(w.mark)
	}
	return true
}

func (w *wordReader) end(name string) {
	switch name {
	case "t":
		w.inText = false
	case "r":
		w.mark = w.base
	case "p":
		w.endParagraph()
	case "tc":
		if w.tables == 1 {
			w.table.cell(strings.Join(w.cells, " "))
			w.cells = nil
		}
	case "tr":
		if w.tables == 1 {
			w.table.endRow()
			w.room(w.table.size)
		}
	case "tbl":
		if w.tables = max(0, w.tables-1); w.tables == 0 {
			w.cells = nil
			w.whole(w.table.take())
		}
	case "body", "footnotes", "endnotes":
		w.endList()
	}
}

// endParagraph puts the paragraph where it belongs.
func (w *wordReader) endParagraph() {
	text := strings.TrimSpace(w.text.String())
	w.text.Reset()
	switch {
	case text == "":
	case w.tables > 0:
		w.cells = append(w.cells, text)
		w.room(0)
	case w.level > 0 && w.level <= 9:
		w.endList()
		w.heading(w.level, text)
	case w.depth > 0:
		w.item(w.depth-1, text)
	default:
		w.endList()
		w.paragraph(squeeze(text))
	}
}
