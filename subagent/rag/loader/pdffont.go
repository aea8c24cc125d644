package loader

import (
	"strings"
	"unicode/utf16"

	"github.com/ledongthuc/pdf"
)

// pdfFont turns the bytes of a string into text and widths.
type pdfFont struct {
	bytes  int         // of a code; 0 if the character map says it
	ranges []codeRange // of the character map
	chars  map[code]string
	table  *[256]string // what the character map leaves out: the text of each byte
	utf16  bool         // codes are UTF-16
	widths map[int]float64
	left   *int    // mappings that all fonts together may still add
	normal float64 // the width of a code that widths lacks, in 1/1000 of the size
}

// code is a character's number and how many bytes it is written in.
type code struct {
	bytes  int
	number int
}

type codeRange struct{ bytes, low, high int }

const (
	pdfFonts = 1000 // that are kept
	// pdfNames is how many entries of an encoding's differences are believed.
	pdfNames = 2000
)

// setFont makes a font of the resources the current one.
func (t *pdfText) setFont(name string, resources pdf.Value) error {
	if font, known := t.named[name]; known {
		t.state.font = font
		return nil
	}
	if err := t.check(0); err != nil {
		return err
	}
	v := resources.Key("Font").Key(name)
	// Pages share fonts, by reference; what it refers to is in this text.
	key := v.String()
	font, known := t.fonts[key]
	if !known {
		var err error
		if font, err = t.loadFont(v); err != nil {
			return err
		}
		if len(t.fonts) < pdfFonts {
			t.fonts[key] = font
		}
	}
	if len(t.named) < pdfFonts {
		t.named[name] = font
	}
	t.state.font = font
	return nil
}

func (t *pdfText) loadFont(v pdf.Value) (*pdfFont, error) {
	f := &pdfFont{bytes: 1, normal: 500, widths: map[int]float64{}, left: &t.mappings}
	composite := v.Key("Subtype").Name() == "Type0"
	if composite {
		f.bytes = 2
		f.compositeWidths(v.Key("DescendantFonts").Index(0))
		encoding := v.Key("Encoding").Name()
		f.utf16 = strings.Contains(encoding, "UCS2") || strings.Contains(encoding, "UTF16")
	} else {
		f.simpleWidths(v)
		f.byteTable(v)
	}
	if toUnicode := v.Key("ToUnicode"); toUnicode.Kind() == pdf.Stream {
		data, err := t.stream(toUnicode)
		if CodeOf(err) == TooLarge {
			return nil, err
		}
		f.characterMap(data)
	}
	return f, nil
}

// byteTable takes the encoding of a font with one byte for each character.
func (f *pdfFont) byteTable(v pdf.Value) {
	encoding := v.Key("Encoding")
	if encoding.Key("Differences").Len() > pdfNames ||
		// The encoder would read the character map, without limits.
		v.Key("ToUnicode").Kind() == pdf.Stream && (encoding.Kind() == pdf.Null || encoding.Name() == "Identity-H") {
		return
	}
	table := [256]string{}
	source := pdf.Font{V: v}
	err := guard(labelPDF, func() error {
		encoder := source.Encoder()
		for c := range table {
			table[c] = clean(encoder.Decode(string([]byte{byte(c)})))
		}
		return nil
	})
	if err == nil {
		f.table = &table
	}
}

func (f *pdfFont) simpleWidths(v pdf.Value) {
	scale := 1.0
	if m := v.Key("FontMatrix"); m.Len() == 6 {
		scale = m.Index(0).Float64() * 1000
	}
	first := int(v.Key("FirstChar").Int64())
	widths := v.Key("Widths")
	for i := range min(widths.Len(), 256) {
		f.widths[first+i] = widths.Index(i).Float64() * scale
	}
	if missing := v.Key("FontDescriptor").Key("MissingWidth"); !missing.IsNull() && missing.Float64() > 0 {
		f.normal = missing.Float64()
	}
}

// compositeWidths reads "first [w w w]" and "first last w".
func (f *pdfFont) compositeWidths(v pdf.Value) {
	f.normal = 1000
	if dw := v.Key("DW"); !dw.IsNull() {
		f.normal = dw.Float64()
	}
	list := v.Key("W")
	for i := 0; i+1 < list.Len() && *f.left > 0; {
		first := int(list.Index(i).Int64())
		if each := list.Index(i + 1); each.Kind() == pdf.Array {
			for k := range min(each.Len(), 1<<16, *f.left) {
				f.widths[first+k] = each.Index(k).Float64()
				*f.left--
			}
			i += 2
			continue
		}
		last := int(list.Index(i + 1).Int64())
		width := list.Index(i + 2).Float64()
		for k := first; k <= last && k-first < 1<<16 && *f.left > 0; k++ {
			f.widths[k] = width
			*f.left--
		}
		i += 3
	}
}

// characterMap reads a ToUnicode stream.
func (f *pdfFont) characterMap(data []byte) {
	f.chars = map[code]string{}
	p := pdfParser{data: data, budget: pdfMappings}
	var operands []any
	for {
		v, err := p.value(0)
		if err == errPDFEnd || err == errPDFBudget {
			break
		}
		if err != nil {
			p.pos++
			continue
		}
		op, ok := v.(pdfOperator)
		if !ok {
			operands = append(operands, v)
			continue
		}
		switch op {
		case "endcodespacerange":
			for i := 0; i+1 < len(operands) && len(f.ranges) < 100; i += 2 {
				low, high := codeOf(operands[i]), codeOf(operands[i+1])
				if low.bytes > 0 && low.bytes == high.bytes {
					f.ranges = append(f.ranges, codeRange{low.bytes, low.number, high.number})
				}
			}
		case "endbfchar":
			for i := 0; i+1 < len(operands) && *f.left > 0; i += 2 {
				f.chars[codeOf(operands[i])] = utf16Of(operands[i+1], 0)
				*f.left--
			}
		case "endbfrange":
			for i := 0; i+2 < len(operands); i += 3 {
				f.mapRange(codeOf(operands[i]), codeOf(operands[i+1]), operands[i+2])
			}
		}
		operands = operands[:0]
	}
	if len(f.ranges) > 0 {
		f.bytes = 0
	}
}

func (f *pdfFont) mapRange(low, high code, to any) {
	list, each := to.([]any)
	for n := low.number; n <= high.number && n-low.number < 1<<16 && *f.left > 0; n++ {
		text := ""
		if i := n - low.number; !each {
			text = utf16Of(to, i)
		} else if i < len(list) {
			text = utf16Of(list[i], 0)
		}
		f.chars[code{low.bytes, n}] = text
		*f.left--
	}
}

// codeOf reads a code of one to four bytes; any other value is none.
func codeOf(v any) code {
	s, _ := v.(pdfString)
	if len(s) == 0 || len(s) > 4 {
		return code{}
	}
	n := 0
	for _, c := range []byte(s) {
		n = n<<8 | int(c)
	}
	return code{len(s), n}
}

// utf16Of is the text that a string of UTF-16 means, its last unit made larger by
// add.
func utf16Of(v any, add int) string {
	s, _ := v.(pdfString)
	var units []uint16
	for i := 0; i+1 < len(s) && i < 64; i += 2 {
		units = append(units, uint16(s[i])<<8|uint16(s[i+1]))
	}
	if len(units) == 0 {
		return ""
	}
	units[len(units)-1] += uint16(add)
	return clean(string(utf16.Decode(units)))
}

// decode gives the glyphs of a string: text, width, and whether it is the space
// that word spacing widens.
func (f *pdfFont) decode(raw string, glyph func(text string, width float64, space bool)) {
	for len(raw) > 0 {
		c := f.next(raw)
		raw = raw[c.bytes:]
		text, known := f.chars[c]
		if !known && f.table != nil && c.bytes == 1 {
			text, known = f.table[c.number], true
		}
		if !known && f.utf16 && c.bytes == 2 {
			text = clean(string(utf16.Decode([]uint16{uint16(c.number)})))
		}
		width, ok := f.widths[c.number]
		if !ok {
			width = f.normal
		}
		glyph(text, width, c.bytes == 1 && c.number == ' ')
	}
}

// next is the first code of a string that is not empty.
func (f *pdfFont) next(raw string) code {
	if f.bytes > 0 {
		return codeOf(pdfString(raw[:min(f.bytes, len(raw))]))
	}
	for n := 1; n <= 4 && n <= len(raw); n++ {
		c := codeOf(pdfString(raw[:n]))
		for _, r := range f.ranges {
			if r.bytes == n && c.number >= r.low && c.number <= r.high {
				return c
			}
		}
	}
	return codeOf(pdfString(raw[:1]))
}
