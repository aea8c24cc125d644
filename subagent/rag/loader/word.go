package loader

import (
	"encoding/xml"
	"strconv"
	"strings"
)

// readWord reads a .docx: headings, paragraphs, lists, tables, footnotes and
// endnotes. Deleted and hidden text is left out, as are comments.
func readWord(b *builder, f file) error {
	a, main, related, err := b.office(f, labelWord, "word/document.xml")
	if err != nil {
		return err
	}
	w := wordReader{builder: b, levels: map[string]int{}, lists: map[string]bool{}}
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
	styled string          // the style being defined

	text   strings.Builder // of the paragraph
	level  int             // of the paragraph as a heading, 0 for none
	depth  int             // of the paragraph in lists, from 1, 0 for none
	inText bool
	vanish bool // the run is hidden text

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
	}
}

// unshown are elements with text that is not the document's: what was deleted, the second
// version of a drawing, instructions for fields.
var unshown = map[string]bool{"del": true, "moveFrom": true, "Fallback": true, "instrText": true, "delText": true}

// formulaMarks stand before the parts of a formula.
var formulaMarks = map[string]string{"sup": "^", "sub": "_", "den": "/"}

func (w *wordReader) write(text string) {
	switch {
	case !w.inText:
	case w.vanish:
		w.skip("hidden pieces of text", 1)
	default:
		w.text.WriteString(text)
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
		w.vanish = false
	case "vanish":
		if value := attribute(e, "val"); value != "0" && value != "false" {
			w.vanish = true
		}
	case "sup", "sub", "den", "chr":
		if e.Name.Space == "m" { // of a formula
			w.text.WriteString(formulaMarks[name] + attribute(e, "m:val"))
		}
	case "tab":
		w.text.WriteByte('\t')
	case "br", "cr":
		w.text.WriteByte('\n')
	case "noBreakHyphen":
		w.text.WriteByte('-')
	case "p":
		w.level, w.depth = 0, 0
		w.endParagraph() // of a text box's anchor
	case "pStyle":
		style := attribute(e, "val")
		w.level = w.levels[style]
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
	}
	return true
}

func (w *wordReader) end(name string) {
	switch name {
	case "t":
		w.inText = false
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
