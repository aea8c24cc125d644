package loader

import (
	"cmp"
	"encoding/xml"
	"slices"
	"strconv"
	"strings"
)

// readSlides reads a .pptx: a section for each slide in the order of the
// presentation, with its text, tables, diagrams and the speaker's notes. Hidden
// slides are left out.
func readSlides(b *builder, f file) error {
	a, main, related, err := b.office(f, labelSlides, "ppt/presentation.xml")
	if err != nil {
		return err
	}
	var slides []string
	a.elements(main, func(e xml.StartElement) {
		if e.Name.Local != "sldId" {
			return
		}
		for _, r := range related {
			if r.id == attribute(e, "r:id") && r.kind == "slide" {
				slides = append(slides, r.target)
			}
		}
		if len(slides) > b.limits.Pages {
			b.fail(refuse(TooLarge, "the presentation has more than %d slides", b.limits.Pages))
		}
	})
	for i, slide := range slides {
		a.slide(i+1, slide)
	}
	return nil
}

// slide reads one slide and what belongs to it.
func (a *archive) slide(number int, part string) {
	s := slideReader{builder: a.b, name: "slide " + strconv.Itoa(number)}
	s.open(1, s.name)
	if a.walk(part, &s); s.unshown {
		s.skip("hidden slides", 1)
		return
	}
	s.doc.Title = cmp.Or(s.doc.Title, s.title)
	related := a.relations(part)
	a.drawn(related)
	a.skipRelated(related)
}

// drawn adds the text of diagrams, and of a slide's notes.
func (a *archive) drawn(related []relation) {
	for _, r := range related {
		switch r.kind {
		case "diagramData":
			a.walk(r.target, &slideReader{builder: a.b})
		case "notesSlide": // which has the slide's number and picture too, as placeholders
			a.walk(r.target, &slideReader{builder: a.b, prefix: "Notes: "})
		}
	}
}

// slideReader turns the elements of a slide (PresentationML and DrawingML) into
// blocks of text. The slide's title, which may be anywhere on it, names the section.
type slideReader struct {
	*builder
	name    string // of the section, "" outside of slides
	title   string
	prefix  string // of the first block
	unshown bool   // the slide is hidden

	shapes      []bool   // the open shapes and groups, whether they are hidden
	placeholder string   // the type of the open shape, "" for none
	shape       []string // paragraphs of the open shape or cell
	text        flow
	mark        mark // of the run
	inText      bool
	tables      int // open ones
	table       table
	merged      string    // "h" or "v" for a cell that belongs to another one, else ""
	numbers     numbering // of the shape's paragraphs
	level       int       // of the paragraph
	bullet      xml.StartElement
	styles      [deepestList]xml.StartElement // bullets of the shape's levels
}

func (s *slideReader) write(text string) {
	if s.inText {
		s.run(&s.text, text, s.mark)
		s.room(s.text.Len())
	}
}

func (s *slideReader) start(e xml.StartElement) bool {
	name := e.Name.Local
	if name == "Fallback" {
		return false
	}
	switch name {
	case "sld":
		s.unshown = attribute(e, "show") == "0" || attribute(e, "show") == "false"
		return !s.unshown
	case "cNvPr":
		if n := len(s.shapes) - 1; n >= 0 && isTrue(attribute(e, "hidden")) {
			s.shapes[n] = true
			s.skip("hidden pieces of text", 1)
		}
		if !slices.Contains(s.shapes, true) {
			s.paragraph(description(e))
		}
	case "sp", "grpSp", "graphicFrame", "pic", "cxnSp":
		s.placeholder, s.shape, s.styles = "", nil, [deepestList]xml.StartElement{}
		s.shapes = append(s.shapes, false)
	case "ph":
		s.placeholder = attribute(e, "type")
	case "t":
		s.inText = !slices.Contains(s.shapes, true)
	case "r", "fld":
		s.mark = 0
	case "rPr":
		s.mark = slideMark(e)
	case "sym", "latin":
		var font marking
		font.font(attribute(e, "typeface"))
		s.mark |= font.on
	case "sup", "sub", "den":
		s.text.WriteString(formulaMarks[name])
	case "br":
		s.run(&s.text, "\n", 0)
	case "tab":
		s.run(&s.text, "\t", 0)
	case "p":
		s.level, s.bullet = 0, xml.StartElement{}
	case "pPr":
		s.level, _ = strconv.Atoi(attribute(e, "lvl"))
		s.level = min(max(s.level, 0), deepestList-1)
	case "lvl1pPr", "lvl2pPr", "lvl3pPr", "lvl4pPr", "lvl5pPr", "lvl6pPr", "lvl7pPr", "lvl8pPr", "lvl9pPr":
		s.level, s.bullet = int(name[3]-'1'), xml.StartElement{}
	case "buAutoNum", "buChar", "buNone", "buBlip":
		s.bullet = e
	case "tbl":
		s.tables++
	case "tc":
		s.merged, s.numbers = "", numbering{}
		for _, way := range []string{"h", "v"} { // a cell may belong to both
			if isTrue(attribute(e, way+"Merge")) {
				s.merged = way
			}
		}
	}
	return true
}

// slideMark returns the marks of a run's properties (ECMA-376 part 1, 21.1.2.3.9).
func slideMark(e xml.StartElement) (m mark) {
	switch baseline, _ := strconv.Atoi(strings.TrimSuffix(attribute(e, "baseline"), "%")); {
	case baseline > 0:
		m = raised
	case baseline < 0:
		m = lowered
	}
	if strike := attribute(e, "strike"); strike != "" && strike != "noStrike" {
		m |= struck
	}
	return m
}

func (s *slideReader) end(name string) {
	switch name {
	case "t":
		s.inText = false
	case "p":
		text := strings.TrimSpace(s.text.String())
		s.text.Reset()
		if text == "" {
			return
		}
		number := ""
		if s.bullet.Name.Local == "" {
			s.bullet = s.styles[s.level]
		}
		if e := s.bullet; e.Name.Local == "buAutoNum" {
			s.numbers.automatic(s.level, attribute(e, "type"), attribute(e, "startAt"))
			number = s.numbers.next(s.level) + " "
		} else {
			s.numbers.restart(s.level)
		}
		s.shape = append(s.shape, number+text)
	case "lvl1pPr", "lvl2pPr", "lvl3pPr", "lvl4pPr", "lvl5pPr", "lvl6pPr", "lvl7pPr", "lvl8pPr", "lvl9pPr":
		s.styles[s.level] = s.bullet
	case "sp", "pt": // of a slide, of a diagram
		s.endShape()
		fallthrough
	case "grpSp", "graphicFrame", "pic", "cxnSp":
		s.shapes = s.shapes[:max(0, len(s.shapes)-1)]
	case "tc":
		if s.merged == "" {
			s.table.cell(strings.Join(s.shape, " "), 1, 1)
		} else {
			s.table.join(s.merged == "v", 1)
		}
		s.shape = nil
	case "tr":
		s.endRow(&s.table, false)
	case "tbl":
		if s.tables--; s.tables <= 0 {
			s.endTable(&s.table)
		}
	}
}

// endShape puts the paragraphs of a shape where they belong. Numbers, dates and
// footers of the slide are no text of it.
func (s *slideReader) endShape() {
	text := strings.Join(s.shape, "\n")
	s.shape, s.numbers = nil, numbering{}
	switch s.placeholder {
	case "sldNum", "dt":
		return
	case "ftr", "hdr":
		if text != "" {
			s.skip("headers and footers", 1)
		}
		return
	case "title", "ctrTitle":
		if s.name == "" {
			return
		}
		if s.title = oneLine(s.title + " " + text); s.title != "" {
			s.rename(s.name + ": " + s.title)
		}
	}
	if text != "" {
		s.paragraph(s.prefix + text)
		s.prefix = ""
	}
}
