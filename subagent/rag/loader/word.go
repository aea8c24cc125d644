package loader

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"golang.org/x/net/html/charset"
)

// The parts of a Word document that are read.
const (
	wordMain   = "word/document.xml"
	wordStyles = "word/styles.xml"
	wordNotes  = "word/footnotes.xml"
	wordCore   = "docProps/core.xml"
)

const (
	// mostEntries is how many files an archive may hold.
	mostEntries = 10_000
	// A part that unpacks to more than ratioFrom bytes and maxRatio times its size
	// is a bomb: the XML of real documents is packed to about a tenth.
	ratioFrom = 4 << 20
	maxRatio  = 200
)

// readWord reads a .docx: headings, paragraphs, lists, tables and footnotes of
// its main part. Deleted text and comments are left out.
func readWord(b *builder, f file) error {
	z, err := zip.NewReader(bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		return damaged(labelWord, err)
	}
	a := archive{ctx: b.ctx, left: b.limits.Unpacked, depth: b.limits.Nesting, parts: map[string]*zip.File{}}
	if err := a.admit(z, b.limits); err != nil {
		return err
	}
	title := ""
	err = a.each(wordCore, func(path []string, text string) {
		if len(path) > 0 && path[len(path)-1] == "title" {
			title += text
		}
	})
	if err != nil {
		return err
	}
	b.doc.Title = oneLine(title)
	w := wordReader{builder: b, levels: map[string]int{}, lists: map[string]bool{}}
	for _, part := range []struct {
		name  string
		token func(xml.Token) error
	}{{wordStyles, w.style}, {wordMain, w.token}, {wordNotes, w.token}} {
		if err := a.tokens(part.name, part.token); err != nil {
			return err
		}
	}
	return nil
}

// archive unpacks within limits.
type archive struct {
	ctx   context.Context
	left  int64 // bytes that may still be unpacked
	depth int
	parts map[string]*zip.File
}

// admit looks at what the archive claims to hold.
func (a *archive) admit(z *zip.Reader, l Limits) error {
	if len(z.File) > mostEntries {
		return refuse(TooLarge, "the archive holds more than %d files", mostEntries)
	}
	total := uint64(0)
	for _, entry := range z.File {
		if entry.Flags&1 != 0 {
			return refuse(Encrypted, "the archive is encrypted: save it without a password")
		}
		if total += min(entry.UncompressedSize64, 1<<62); total > uint64(l.Unpacked) {
			return refuse(TooLarge, "the archive unpacks to more than %s", size(l.Unpacked))
		}
		if a.parts[entry.Name] == nil {
			a.parts[entry.Name] = entry
		}
	}
	return nil
}

// tokens reads a part of XML; one that is not there has none.
func (a *archive) tokens(name string, each func(xml.Token) error) error {
	part := a.parts[name]
	if part == nil {
		return nil
	}
	unpacked, err := part.Open()
	if err != nil {
		return damaged(labelWord, err)
	}
	defer unpacked.Close()
	limit := min(a.left, max(ratioFrom, int64(min(part.CompressedSize64, 1<<40))*maxRatio))
	counted := &io.LimitedReader{R: watched{a.ctx, unpacked}, N: limit + 1}
	defer func() { a.left -= limit + 1 - counted.N }()
	d := xml.NewDecoder(counted)
	d.CharsetReader = charset.NewReaderLabel
	d.Strict = false
	for depth := 0; ; {
		token, err := d.RawToken()
		switch {
		case a.ctx.Err() != nil:
			return context.Cause(a.ctx)
		case counted.N <= 0:
			return refuse(TooLarge, "the archive unpacks to far more than its size: %s is more than %s", name, size(limit))
		case err == io.EOF:
			return nil
		case err != nil:
			return damaged(labelWord, fmt.Errorf("%s: %w", name, err))
		}
		switch token.(type) {
		case xml.StartElement:
			if depth++; depth > a.depth {
				return refuse(TooLarge, "the document's elements lie more than %d deep in each other", a.depth)
			}
		case xml.EndElement:
			depth--
		}
		if err := each(token); err != nil {
			return err
		}
	}
}

// each gives the texts of a part with the names of the elements around them.
func (a *archive) each(name string, text func(path []string, text string)) error {
	var path []string
	return a.tokens(name, func(t xml.Token) error {
		switch t := t.(type) {
		case xml.StartElement:
			path = append(path, t.Name.Local)
		case xml.EndElement:
			path = path[:max(0, len(path)-1)]
		case xml.CharData:
			text(path, string(t))
		}
		return nil
	})
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
	hidden int // depth of elements whose text does not count

	tables int      // open ones
	rows   []string // of the outermost open table
	cells  []string // of its open row
	cell   []string // paragraphs of its open cell
	items  []string // of the list before this paragraph
}

// style learns which styles are headings and lists: their ids are the language's
// of who wrote the document, their names are English.
func (w *wordReader) style(t xml.Token) error {
	start, ok := t.(xml.StartElement)
	if !ok {
		return nil
	}
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

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// unshown are elements whose text is not the document's: what was deleted, the
// second version of a drawing, instructions for fields.
var unshown = map[string]bool{"del": true, "moveFrom": true, "Fallback": true, "instrText": true, "delText": true}

func (w *wordReader) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		return w.start(t)
	case xml.EndElement:
		return w.end(t.Name.Local)
	case xml.CharData:
		if w.inText && w.hidden == 0 {
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
	case "body", "footnotes":
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
