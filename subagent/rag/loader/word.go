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
	if err := a.elements(targetOf(related, "styles", "word/styles.xml"), w.style); err != nil {
		return err
	}
	for _, part := range []string{main, targetOf(related, "footnotes", "word/footnotes.xml"),
		targetOf(related, "endnotes", "word/endnotes.xml")} {
		if err := a.tokens(part, w.token); err != nil {
			return err
		}
	}
	return a.skipRelated(b, related)
}

// wordReader turns the elements of WordprocessingML into text.
type wordReader struct {
	*builder
	levels map[string]int  // heading level by style
	lists  map[string]bool // styles that are items of a list
	styled string          // the style being defined

	text   strings.Builder // of the paragraph
	level  int             // of the paragraph as a heading, 0 for none
	item   int             // its depth in lists, from 1, 0 for none
	inText bool
	vanish bool // the run is hidden text
	hidden int  // depth of elements whose text does not count

	tables int      // open ones
	rows   []string // of the outermost open table
	cells  []string // of its open row
	cell   []string // paragraphs of its open cell
	items  []string // of the list before this paragraph
}

// style learns which styles are headings and lists: their ids are the language's
// of who wrote the document, their names are English.
func (w *wordReader) style(start xml.StartElement) error {
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
	return nil
}

// unshown are elements whose text is not the document's: what was deleted, the
// second version of a drawing, instructions for fields.
var unshown = map[string]bool{"del": true, "moveFrom": true, "Fallback": true, "instrText": true, "delText": true}

// formulaMarks stand before the parts of a formula.
var formulaMarks = map[string]string{"sup": "^", "sub": "_", "den": "/"}

func (w *wordReader) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		return w.start(t)
	case xml.EndElement:
		return w.end(t.Name.Local)
	case xml.CharData:
		if w.inText && w.hidden == 0 && w.vanish {
			w.skip("hidden pieces of text", 1)
		} else if w.inText && w.hidden == 0 {
			w.text.Write(t)
			return w.check(w.text.Len())
		}
	}
	return nil
}

func (w *wordReader) start(e xml.StartElement) error {
	name := e.Name.Local
	if w.hidden > 0 || unshown[name] {
		w.hidden++
		return nil
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
		w.level, w.item = 0, 0
		return w.endParagraph() // of a text box's anchor
	case "pStyle":
		style := attribute(e, "val")
		w.level = w.levels[style]
		if w.lists[style] {
			w.item = max(w.item, 1)
		}
	case "outlineLvl":
		if level, err := strconv.Atoi(attribute(e, "val")); err == nil && level < 9 && w.level == 0 {
			w.level = level + 1
		}
	case "ilvl":
		level, _ := strconv.Atoi(attribute(e, "val"))
		w.item = 1 + max(0, min(level, 9))
	case "numId":
		if attribute(e, "val") == "0" {
			w.item = 0
		} else {
			w.item = max(w.item, 1)
		}
	case "tbl":
		w.tables++
		return w.endList()
	}
	return nil
}

func (w *wordReader) end(name string) error {
	if w.hidden > 0 {
		w.hidden--
		return nil
	}
	switch name {
	case "t":
		w.inText = false
	case "p":
		return w.endParagraph()
	case "tc":
		if w.tables == 1 {
			w.cells = append(w.cells, oneLine(strings.Join(w.cell, " ")))
			w.cell = nil
		}
	case "tr":
		if w.tables == 1 && len(w.cells) > 0 {
			w.rows = append(w.rows, "| "+strings.Join(w.cells, " | ")+" |")
			w.cells = nil
		}
	case "tbl":
		if w.tables = max(0, w.tables-1); w.tables == 0 {
			rows := strings.Join(w.rows, "\n")
			w.rows, w.cells, w.cell = nil, nil, nil
			return w.whole(rows)
		}
	case "body", "footnotes", "endnotes":
		return w.endList()
	}
	return nil
}

// endParagraph puts the paragraph where it belongs.
func (w *wordReader) endParagraph() error {
	text := strings.TrimSpace(w.text.String())
	w.text.Reset()
	switch {
	case text == "":
		return nil
	case w.tables > 0:
		w.cell = append(w.cell, text)
		return w.check(0)
	case w.level > 0 && w.level <= 9:
		if err := w.endList(); err != nil {
			return err
		}
		return w.heading(w.level, text)
	case w.item > 0:
		w.items = append(w.items, strings.Repeat("  ", w.item-1)+"- "+oneLine(text))
		return w.check(0)
	}
	if err := w.endList(); err != nil {
		return err
	}
	return w.paragraph(squeeze(text))
}

// endList writes the items of the list that has ended.
func (w *wordReader) endList() error {
	items := strings.Join(w.items, "\n")
	w.items = nil
	return w.paragraph(items)
}
