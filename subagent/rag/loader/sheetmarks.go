package loader

import (
	"encoding/xml"
	"strconv"

	"github.com/xuri/excelize/v2"
)

// readStyles finds the styles of cells with struck text.
func (r *sheetsReader) readStyles(related []relation) {
	r.struckStyles = map[int]bool{}
	fonts, list, style := []bool{}, "", 0
	r.archive.elements(targetOf(related, "styles", "xl/styles.xml"), func(e xml.StartElement) {
		switch name := e.Name.Local; name {
		case "fonts", "fills", "cellStyleXfs", "cellXfs", "cellStyles", "dxfs":
			list = name
		case "font":
			fonts = append(fonts, false)
		case "strike":
			if list == "fonts" && len(fonts) > 0 {
				fonts[len(fonts)-1] = attribute(e, "val") == "" || isTrue(attribute(e, "val"))
			}
		case "xf":
			if list == "cellXfs" {
				font, err := strconv.Atoi(attribute(e, "fontId"))
				if err == nil && font >= 0 && font < len(fonts) && fonts[font] {
					r.struckStyles[style] = true
				}
				style++
			}
		}
	})
}

// richText collects the runs of a string of a workbook (ECMA-376 part 1, 18.4.8).
type richText struct {
	flow
	mark   mark // of the run
	marked bool // any run has a mark
	text   bool // an element with text is open
	ruby   bool
}

// token reads a token of the string.
func (t *richText) token(b *builder, token xml.Token) {
	switch e := token.(type) {
	case xml.StartElement:
		value := attribute(e, "val")
		switch e.Name.Local {
		case "si", "is":
			*t = richText{}
		case "r":
			t.mark = 0
		case "rPh":
			t.ruby = true
		case "t":
			t.text = !t.ruby
		case "strike":
			if value == "" || isTrue(value) {
				t.mark |= struck
			}
		case "vertAlign":
			t.mark |= map[string]mark{"superscript": raised, "subscript": lowered}[value]
		}
	case xml.EndElement:
		switch e.Name.Local {
		case "t":
			t.text = false
		case "rPh":
			t.ruby = false
		}
	case xml.CharData:
		if t.text {
			b.run(&t.flow, string(e), t.mark)
			t.marked = t.marked || t.mark != 0
		}
	}
}

// mostMarked is how many cells with marks a sheet may have.
const mostMarked = 1 << 20

// markedCell is a cell with marks.
type markedCell struct {
	text   string
	struck bool // as a whole
}

// cellReader finds the cells of a sheet with marks.
type cellReader struct {
	*sheetsReader
	row, column int
	kind        string // of the cell
	struck      bool   // the cell
	inValue     bool
	value       []byte
	rich        richText
	cells       map[[2]int]markedCell // by row and column, from 1
}

// token reads a token of the sheet.
func (c *cellReader) token(token xml.Token) {
	c.rich.token(c.builder, token)
	switch e := token.(type) {
	case xml.StartElement:
		c.start(e)
	case xml.EndElement:
		c.inValue = false
		if e.Name.Local == "c" {
			c.end()
		}
	case xml.CharData:
		if c.inValue && len(c.value) < 20 { // digits of a number
			c.value = append(c.value, e...)
		}
	}
}

func (c *cellReader) start(e xml.StartElement) {
	switch e.Name.Local {
	case "row":
		c.row++
		if row, err := strconv.Atoi(attribute(e, "r")); err == nil {
			c.row = row
		}
		c.column = 0
	case "c":
		c.column++
		if column, _, err := excelize.CellNameToCoordinates(attribute(e, "r")); err == nil {
			c.column = column
		}
		style, _ := strconv.Atoi(attribute(e, "s"))
		c.kind, c.struck, c.value, c.rich = attribute(e, "t"), c.struckStyles[style], c.value[:0], richText{}
	case "v":
		c.inValue = true
	}
}

// end keeps the cell if it has marks.
func (c *cellReader) end() {
	text, marked := c.rich.String(), c.rich.marked
	if c.kind == "s" {
		if number, err := strconv.Atoi(string(c.value)); err == nil {
			text, marked = c.markedStrings[number]
		}
	}
	if !marked && !c.struck {
		return
	}
	if len(c.cells) >= mostMarked {
		c.fail(refuse(TooLarge, "the workbook has a sheet of more than %d cells with struck or raised text", mostMarked))
	}
	c.cells[[2]int{c.row, c.column}] = markedCell{text, !marked}
}

// replace writes what marks leave of a row's values.
func (c *cellReader) replace(row int, values []string) {
	if len(c.cells) == 0 {
		return
	}
	for i, value := range values {
		cell, ok := c.cells[[2]int{row, i + 1}]
		if !ok || value == "" {
			continue
		}
		if values[i] = cell.text; cell.struck {
			c.skip("struck pieces of text", 1)
		}
	}
}
