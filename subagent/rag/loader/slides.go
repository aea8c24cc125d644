package loader

import (
	"encoding/xml"
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
	b, s := a.b, slideReader{builder: a.b}
	a.walk(part, &s)
	if s.unshown {
		b.skip("hidden slides", 1)
		return
	}
	related := a.relations(part)
	name := "slide " + strconv.Itoa(number)
	if s.title = oneLine(s.title); s.title != "" {
		name += ": " + s.title
	}
	b.open(1, name)
	if b.doc.Title == "" {
		b.doc.Title = s.title
	}
	s.addBlocks()
	for _, r := range related {
		// The notes' page has the slide's number and picture too, as placeholders.
		if r.kind != "diagramData" && r.kind != "notesSlide" {
			continue
		}
		more := slideReader{builder: b, notes: r.kind == "notesSlide"}
		a.walk(r.target, &more)
		if more.notes && len(more.blocks) > 0 {
			more.blocks[0].text = "Notes: " + more.blocks[0].text
		}
		more.addBlocks()
	}
	a.skipRelated(related)
}

// slideReader turns the elements of a slide (PresentationML and DrawingML) into
// blocks of text. They are added when all of it was read: the section has the name of
// the slide's title, which may stand anywhere on it.
type slideReader struct {
	*builder
	notes   bool // only the notes' own text counts
	unshown bool // the slide is hidden
	title   string
	blocks  []slideBlock

	placeholder string   // the type of the open shape, "" for none
	shape       []string // paragraphs of the open shape or cell
	text        flow
	mark        mark // of the run
	inText      bool
	tables      int // open ones
	table       grid
}

type slideBlock struct {
	text  string
	table bool
}

func (s *slideReader) addBlocks() {
	for _, block := range s.blocks {
		if block.table {
			s.whole(block.text)
		} else {
			s.paragraph(block.text)
		}
	}
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
	case "cNvPr":
		if attribute(e, "hidden") == "1" || attribute(e, "hidden") == "true" {
			s.placeholder = "hidden"
		}
	case "sp":
		s.placeholder, s.shape = "", nil
	case "ph":
		if s.placeholder != "hidden" {
			s.placeholder = attribute(e, "type")
		}
	case "t":
		s.inText = true
	case "r", "fld":
		s.mark = 0
	case "rPr":
		s.mark = slideMark(e)
	case "sup", "sub", "den":
		if e.Name.Space == "m" { // of a formula
			s.text.WriteString(formulaMarks[name])
		}
	case "br":
		s.run(&s.text, "\n", 0)
	case "tab":
		s.run(&s.text, "\t", 0)
	case "tbl":
		s.tables++
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
		if text := strings.TrimSpace(s.text.String()); text != "" {
			s.shape = append(s.shape, text)
		}
		s.text.Reset()
	case "sp", "pt": // of a slide, of a diagram
		s.endShape()
	case "tc":
		s.table.cell(strings.Join(s.shape, " "))
		s.shape = nil
	case "tr":
		s.table.endRow()
	case "tbl":
		if s.tables--; s.tables <= 0 {
			s.blocks = append(s.blocks, slideBlock{s.table.take(), true})
		}
	}
}

// endShape puts the paragraphs of a shape where they belong. Numbers, dates and
// footers of the slide are no text of it.
func (s *slideReader) endShape() {
	text := strings.Join(s.shape, "\n")
	s.shape = nil
	switch s.placeholder {
	case "sldNum", "dt", "ftr", "hdr", "hidden":
		return
	case "title", "ctrTitle":
		if s.notes {
			return
		}
		s.title = strings.TrimSpace(s.title + " " + text)
	}
	if text != "" {
		s.blocks = append(s.blocks, slideBlock{text: text})
	}
}
