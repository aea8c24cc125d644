package loader

import (
	"bytes"
	"math"
	"regexp"
	"strings"

	"github.com/ledongthuc/pdf"
)

var hyphen = regexp.MustCompile(`(\p{L})[-\x{ad}\x{2010}]\n(\p{Ll})`)

// matrix maps points: x' = a·x + c·y + e, y' = b·x + d·y + f.
type matrix struct{ a, b, c, d, e, f float64 }

var identity = matrix{a: 1, d: 1}

// then is the matrix that maps by m first and by n next.
func (m matrix) then(n matrix) matrix {
	return matrix{
		m.a*n.a + m.b*n.c, m.a*n.b + m.b*n.d,
		m.c*n.a + m.d*n.c, m.c*n.b + m.d*n.d,
		m.e*n.a + m.f*n.c + n.e, m.e*n.b + m.f*n.d + n.f,
	}
}

// pdfText turns the drawing operators of a page into text. A PDF has no lines
// and often no spaces: both follow from where the glyphs are put.
type pdfText struct {
	*pdfReader
	out bytes.Buffer

	state graphics
	saved []graphics
	text  matrix // of the next glyph
	line  matrix // of the line's start

	drawn bool // something was: where the last text ended, in page space
	x, y  float64
	step  float64 // between the last two lines
	steps int     // operators so far, to look at the context now and then

	named map[string]*pdfFont // the fonts of the stream that is drawn
}

// graphics is the part of the graphics state that moves text.
type graphics struct {
	page    matrix
	font    *pdfFont
	size    float64
	chars   float64 // added behind each glyph
	words   float64 // added behind each space
	stretch float64 // 1 is none
	leading float64
}

const (
	pdfOperands = 1000 // that an operator may have
	pdfSaved    = 1000 // graphics states

	pdfOperandValues = 100_000 // in one operand
	pdfForms         = 8       // inside each other
)

// content draws a content stream.
func (t *pdfText) content(streams pdf.Value, resources pdf.Value, depth int) error {
	data, err := t.stream(streams)
	if err != nil {
		return err
	}
	if depth == 0 {
		t.state = graphics{page: identity, stretch: 1}
		t.text, t.line = identity, identity
	}
	named := t.named
	t.named = map[string]*pdfFont{}
	defer func() { t.named = named }()
	p := pdfParser{data: data}
	var operands []any
	for {
		p.budget = pdfOperandValues
		v, err := p.value(0)
		if err == errPDFEnd {
			return nil // cut off: what was drawn so far counts
		}
		if err != nil {
			p.pos++ // past what cannot be read
			operands = nil
			continue
		}
		op, ok := v.(pdfOperator)
		if !ok {
			if len(operands) < pdfOperands {
				operands = append(operands, v)
			}
			continue
		}
		if t.steps++; t.steps%1000 == 0 {
			if err := t.check(t.out.Len()); err != nil {
				return err
			}
		}
		switch op {
		case "BI":
			p.skipImage()
		case "Do":
			err = t.form(name(operands, 0), resources, depth)
		case "Tf":
			err = t.setFont(name(operands, 0), resources)
			t.state.size = number(operands, 1)
		default:
			err = t.operator(op, operands)
		}
		if err != nil {
			return err
		}
		operands = operands[:0]
	}
}

// skipImage goes behind a picture inside the content.
func (p *pdfParser) skipImage() {
	for {
		at := bytes.Index(p.data[p.pos:], []byte("EI"))
		if at < 0 {
			p.pos = len(p.data)
			return
		}
		start := p.pos + at
		p.pos = start + 2
		if start > 0 && pdfSpace(p.data[start-1]) && (p.pos == len(p.data) || pdfSpace(p.data[p.pos])) {
			return
		}
	}
}

// form draws a form: a content stream with a name.
func (t *pdfText) form(name string, resources pdf.Value, depth int) error {
	form := resources.Key("XObject").Key(name)
	if depth >= pdfForms || form.Kind() != pdf.Stream || form.Key("Subtype").Name() != "Form" {
		return nil
	}
	if own := form.Key("Resources"); own.Kind() == pdf.Dict {
		resources = own
	}
	before, text, line, saved := t.state, t.text, t.line, t.saved
	t.saved = nil
	if m := form.Key("Matrix"); m.Len() == 6 {
		t.state.page = matrix{m.Index(0).Float64(), m.Index(1).Float64(), m.Index(2).Float64(),
			m.Index(3).Float64(), m.Index(4).Float64(), m.Index(5).Float64()}.then(t.state.page)
	}
	err := t.content(form, resources, depth+1)
	t.state, t.text, t.line, t.saved = before, text, line, saved
	return err
}

func number(operands []any, i int) float64 {
	if i >= len(operands) {
		return 0
	}
	n, _ := operands[i].(float64)
	return n
}

func name(operands []any, i int) string {
	if i >= len(operands) {
		return ""
	}
	n, _ := operands[i].(pdfName)
	return string(n)
}

func (t *pdfText) operator(op pdfOperator, operands []any) error {
	n := func(i int) float64 { return number(operands, i) }
	switch op {
	case "q":
		if len(t.saved) < pdfSaved {
			t.saved = append(t.saved, t.state)
		}
	case "Q":
		if last := len(t.saved) - 1; last >= 0 {
			t.state, t.saved = t.saved[last], t.saved[:last]
		}
	case "cm":
		t.state.page = matrix{n(0), n(1), n(2), n(3), n(4), n(5)}.then(t.state.page)
	case "BT":
		t.text, t.line = identity, identity
	case "Tc":
		t.state.chars = n(0)
	case "Tw":
		t.state.words = n(0)
	case "Tz":
		t.state.stretch = n(0) / 100
	case "TL":
		t.state.leading = n(0)
	case "Td":
		t.move(n(0), n(1))
	case "TD":
		t.state.leading = -n(1)
		t.move(n(0), n(1))
	case "Tm":
		t.line = matrix{n(0), n(1), n(2), n(3), n(4), n(5)}
		t.text = t.line
	case "T*":
		t.move(0, -t.state.leading)
	case "Tj":
		return t.show(operands, 0)
	case "'":
		t.move(0, -t.state.leading)
		return t.show(operands, 0)
	case "\"":
		t.state.words, t.state.chars = n(0), n(1)
		t.move(0, -t.state.leading)
		return t.show(operands, 2)
	case "TJ":
		if len(operands) == 0 {
			return nil
		}
		list, _ := operands[0].([]any)
		for i, item := range list {
			if back, ok := item.(float64); ok {
				t.text = matrix{1, 0, 0, 1, -back / 1000 * t.state.size * t.state.stretch, 0}.then(t.text)
			} else if err := t.show(list, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *pdfText) move(x, y float64) {
	t.line = matrix{1, 0, 0, 1, x, y}.then(t.line)
	t.text = t.line
}

// show draws a string and writes it, with the white space that its place asks
// for.
func (t *pdfText) show(operands []any, i int) error {
	if i >= len(operands) || t.state.font == nil {
		return nil
	}
	raw, _ := operands[i].(pdfString)
	at := t.text.then(t.state.page)
	var text strings.Builder
	width := 0.0
	t.state.font.decode(string(raw), func(glyph string, w float64, space bool) {
		text.WriteString(glyph)
		width += w/1000*t.state.size + t.state.chars
		if space {
			width += t.state.words
		}
	})
	t.text = matrix{1, 0, 0, 1, width * t.state.stretch, 0}.then(t.text)
	if text.Len() == 0 {
		return nil
	}
	t.gap(at)
	t.out.WriteString(text.String())
	end := t.text.then(t.state.page)
	t.x, t.y, t.drawn = end.e, end.f, true
	return t.check(t.out.Len())
}

// gap writes the white space between where the last text ended and at.
func (t *pdfText) gap(at matrix) {
	if !t.drawn {
		return
	}
	// Along the line of the new text, and across it.
	length := math.Hypot(at.a, at.b)
	height := math.Abs(t.state.size) * math.Hypot(at.c, at.d)
	if length == 0 || height == 0 || math.IsNaN(length+height) {
		return
	}
	dx, dy := at.e-t.x, at.f-t.y
	along := (dx*at.a + dy*at.b) / length
	across := math.Abs(dx*at.b-dy*at.a) / length
	text := t.out.Bytes()
	last := text[len(text)-1]
	switch {
	case across > height*0.45:
		t.out.WriteByte('\n')
		if usual := t.step; across > height*2.2 || usual > 0 && across > usual*1.4 && across > height*1.5 {
			t.out.WriteByte('\n')
		} else {
			t.step = across
		}
	case along < -height:
		t.out.WriteByte('\n')
	case along > height*0.18 && last != ' ' && last != '\n':
		t.out.WriteByte(' ')
	}
}
