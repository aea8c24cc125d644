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
	err = a.elements(main, func(e xml.StartElement) error {
		if e.Name.Local != "sldId" {
			return nil
		}
		for _, r := range related {
			if r.id == attribute(e, "r:id") && r.kind == "slide" {
				slides = append(slides, r.target)
			}
		}
		if len(slides) > b.limits.Pages {
			return refuse(TooLarge, "the presentation has more than %d slides", b.limits.Pages)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, slide := range slides {
		if err := a.slide(b, i+1, slide); err != nil {
			return err
		}
	}
	return nil
}

// slide reads one slide and what belongs to it.
func (a *archive) slide(b *builder, number int, part string) error {
	s := slideReader{limit: b.check}
	if err := a.tokens(part, s.token); err != nil {
		return err
	}
	if s.unshown {
		b.skip("hidden slides", 1)
		return nil
	}
	related, err := a.relations(part)
	if err != nil {
		return err
	}
	name := "slide " + strconv.Itoa(number)
	if s.title = oneLine(s.title); s.title != "" {
		name += ": " + s.title
	}
	b.open(1, name)
	if b.doc.Title == "" {
		b.doc.Title = s.title
	}
	if err := s.into(b); err != nil {
		return err
	}
	for _, r := range related {
		// The notes' page has the slide's number and picture too, as placeholders.
		if r.kind != "diagramData" && r.kind != "notesSlide" {
			continue
		}
		more := slideReader{limit: b.check, notes: r.kind == "notesSlide"}
		if err := a.tokens(r.target, more.token); err != nil {
			return err
		}
		if more.notes && len(more.blocks) > 0 {
			more.blocks[0].text = "Notes: " + more.blocks[0].text
		}
		if err := more.into(b); err != nil {
			return err
		}
	}
	return a.skipRelated(b, related)
}

// slideReader turns the elements of a slide (PresentationML and DrawingML) into
// blocks of text.
type slideReader struct {
	limit   func(int) error
	notes   bool // only the notes' own text counts
	unshown bool // the slide is hidden
	title   string
	blocks  []slideBlock

	placeholder string   // the type of the open shape, "" for none
	shape       []string // paragraphs of the open shape or cell
	text        strings.Builder
	inText      bool
	hidden      int
	tables      int
	rows, cells []string
}

type slideBlock struct {
	text  string
	table bool
}

func (s *slideReader) into(b *builder) error {
	for _, block := range s.blocks {
		add := b.paragraph
		if block.table {
			add = b.whole
		}
		if err := add(block.text); err != nil {
			return err
		}
	}
	return nil
}

func (s *slideReader) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.StartElement:
		s.start(t)
	case xml.EndElement:
		s.end(t.Name.Local)
	case xml.CharData:
		if s.inText && s.hidden == 0 {
			s.text.Write(t)
			return s.limit(s.text.Len())
		}
	}
	return nil
}

func (s *slideReader) start(e xml.StartElement) {
	name := e.Name.Local
	if s.hidden > 0 || name == "Fallback" {
		s.hidden++
		return
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
	case "br":
		s.text.WriteByte('\n')
	case "tab":
		s.text.WriteByte('\t')
	case "tbl":
		s.tables++
	}
}

func (s *slideReader) end(name string) {
	if s.hidden > 0 {
		s.hidden--
		return
	}
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
		s.cells = append(s.cells, oneLine(strings.Join(s.shape, " ")))
		s.shape = nil
	case "tr":
		s.rows = append(s.rows, "| "+strings.Join(s.cells, " | ")+" |")
		s.cells = nil
	case "tbl":
		if s.tables--; s.tables <= 0 {
			s.blocks = append(s.blocks, slideBlock{strings.Join(s.rows, "\n"), true})
			s.rows, s.cells = nil, nil
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
