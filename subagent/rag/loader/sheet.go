package loader

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/xuri/excelize/v2"
)

const (
	// largestPart bounds the bytes of the parts that excelize keeps in memory as
	// structures: all but sheets and strings.
	largestPart = 8 << 20
	mostMerged  = 10_000
)

// readSheets reads an .xlsx: each sheet is a section, its rows are written as
// those of CSV, with values as people see them. Hidden sheets, rows and columns
// are left out.
func readSheets(b *builder, f file) error {
	a, main, related, err := b.office(f, labelSheets, "xl/workbook.xml")
	if err != nil {
		return err
	}
	if path.Ext(main) == ".bin" {
		return refuse(Unsupported, "the file is a binary Excel workbook (.xlsb), which is not read here: save it as .xlsx")
	}
	r := sheetsReader{builder: b, archive: a}
	if err := r.admit(related); err != nil || b.err != nil {
		return err
	}
	r.book, err = excelize.OpenReader(bytes.NewReader(f.data), excelize.Options{
		UnzipSizeLimit: b.limits.Unpacked, UnzipXMLSizeLimit: b.limits.Unpacked, // no temporary files
		CultureInfo: excelize.CultureNameZhCN, // for the formats that only East Asian versions have
	})
	if err != nil {
		return damaged(labelSheets, err)
	}
	defer r.book.Close()
	a.elements(main, func(e xml.StartElement) {
		if e.Name.Local != "sheet" {
			return
		}
		if state := attribute(e, "state"); state == "hidden" || state == "veryHidden" {
			b.skip("hidden sheets", 1)
			return
		}
		for _, rel := range related {
			if rel.id == attribute(e, "r:id") && rel.kind == "worksheet" {
				b.fail(r.sheet(attribute(e, "name"), rel.target))
				return
			}
		}
		b.skip("charts", 1) // a sheet that is one
	})
	return nil
}

// sheetsReader reads the sheets of a workbook.
type sheetsReader struct {
	*builder
	archive *archive
	book    *excelize.File
	longest int // bytes of the longest of the strings that cells share

	struckStyles  map[int]bool   // of cells
	markedStrings map[int]string // shared strings with marks, rendered, by index
}

// admit looks at the parts that excelize reads as a whole.
func (r *sheetsReader) admit(related []relation) error {
	streamed := map[string]bool{}
	for _, rel := range related {
		streamed[partKey(rel.target)] = rel.kind == "worksheet" || rel.kind == "sharedStrings"
	}
	for key, part := range r.archive.parts {
		if kind := path.Ext(key); (kind == ".xml" || kind == ".rels") && !streamed[key] &&
			part.UncompressedSize64 > largestPart {
			return refuse(TooLarge, "the workbook's part %s is larger than %s", part.Name, size(largestPart))
		}
	}
	r.readStyles(related)
	r.markedStrings = map[int]string{}
	count, length, number, rich := 0, 0, 0, richText{}
	r.archive.tokens(targetOf(related, "sharedStrings", "xl/sharedStrings.xml"), func(t xml.Token) {
		rich.token(r.builder, t)
		switch t := t.(type) {
		case xml.EndElement:
			if t.Name.Local == "si" {
				if rich.marked {
					r.markedStrings[number] = rich.String()
				}
				number++
			}
		case xml.StartElement:
			switch t.Name.Local {
			case "si":
				length = 0
				fallthrough
			case "r":
				if count++; count > 2*r.limits.Rows {
					r.fail(refuse(TooLarge, "the workbook has more than %d different texts", 2*r.limits.Rows))
				}
			}
		case xml.CharData:
			length += len(t)
			r.longest = max(r.longest, length)
		}
	})
	return nil
}

// sheetShape is what has to be known of a sheet before its rows are read.
type sheetShape struct {
	hidden map[int]bool // columns, from 0, and whether one held something
	merged []cell       // by their first row, those to come
	table  table
	marks  cellReader
}

// shape reads a sheet's columns and merged cells, and whether it is one that can
// be read within the limits.
func (r *sheetsReader) shape(part string) (s sheetShape) {
	s.hidden = map[int]bool{}
	s.marks = cellReader{sheetsReader: r, cells: map[[2]int]markedCell{}}
	cells, open := 0, false // open: a formula waits for its value
	r.archive.tokens(part, func(t xml.Token) {
		s.marks.token(t)
		e, _ := t.(xml.StartElement)
		switch e.Name.Local {
		case "row":
			cells = 0
		case "c":
			if cells++; cells > mostColumns {
				r.fail(refuse(TooLarge, "the workbook has a row of more than %d cells", mostColumns))
			}
			if cells*r.longest > 4*r.limits.Text {
				r.fail(refuse(TooLarge, "the workbook has rows of too many long texts"))
			}
			if open {
				r.skip("formulas without a stored value", 1)
			}
			open = false
		case "f":
			open = true
		case "v":
			open = false
		case "col":
			first, _ := strconv.Atoi(attribute(e, "min"))
			last, _ := strconv.Atoi(attribute(e, "max"))
			for c := max(first, 1); isTrue(attribute(e, "hidden")) && c <= min(last, mostColumns); c++ {
				s.hidden[c-1] = false
			}
		case "oddHeader", "oddFooter":
			r.skip("headers and footers", 1)
		case "mergeCell":
			start, end, _ := strings.Cut(attribute(e, "ref"), ":")
			column, first, err1 := excelize.CellNameToCoordinates(start)
			right, last, err2 := excelize.CellNameToCoordinates(end)
			if err1 == nil && err2 == nil && len(s.merged) < mostMerged {
				s.merged = append(s.merged, cell{column: column - 1, across: right - column + 1, first: first, last: last})
			}
		}
	})
	if open {
		r.skip("formulas without a stored value", 1)
	}
	slices.SortStableFunc(s.merged, func(a, b cell) int { return a.first - b.first })
	return s
}

func isTrue(value string) bool { return value == "1" || value == "true" }

// sheet reads one sheet.
func (r *sheetsReader) sheet(name, part string) error {
	shape := r.shape(part)
	if r.err != nil {
		return r.err
	}
	rows, err := r.book.Rows(name)
	if err != nil {
		return damaged(labelSheets, err)
	}
	defer rows.Close()
	r.open(1, oneLine(name))
	out := rowWriter{b: r.builder, hidden: shape.hidden}
	for number := 1; r.room(0) && rows.Next(); number++ {
		values, err := rows.Columns()
		if err != nil {
			return damaged(labelSheets, fmt.Errorf("%s: %w", part, err))
		}
		shape.marks.replace(number, values)
		cells := shape.row(number, values)
		if rows.GetRowOpts().Hidden {
			r.skip("hidden rows", min(len(cells), 1))
			continue
		}
		out.row(cells)
	}
	if err := rows.Error(); err != nil {
		return damaged(labelSheets, err)
	}
	out.close()
	r.drawn(part)
	return nil
}

// row returns the cells of a row. Merged cells are in each of their rows, so that each is understood alone.
func (s *sheetShape) row(number int, values []string) []cell {
	var merged map[int]cell
	for ; len(s.merged) > 0 && s.merged[0].first <= number; s.merged = s.merged[1:] {
		if s.merged[0].first == number {
			if merged == nil {
				merged = map[int]cell{}
			}
			merged[s.merged[0].column] = s.merged[0]
		}
	}
	s.table.row = number
	for i, value := range values {
		if m := merged[i]; value != "" {
			s.table.cellAt(i, value, m.across, m.last-m.first+1)
		}
	}
	return s.table.takeRow()
}

// drawn adds the text of a sheet's drawings and counts the other objects on the sheet.
func (r *sheetsReader) drawn(part string) {
	related := r.archive.relations(part)
	for _, rel := range related {
		if rel.kind == "drawing" {
			inner := r.archive.relations(rel.target)
			r.archive.drawn(append([]relation{{kind: "diagramData", target: rel.target}}, inner...))
			r.archive.skipRelated(inner)
		}
	}
	r.archive.skipRelated(related)
}
