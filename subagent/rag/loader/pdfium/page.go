package pdfium

import (
	"cmp"
	"errors"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Page is the text of a page.
type Page struct {
	// Text has a blank line between paragraphs. The lines of a paragraph and the
	// parts of a word that a line's end divides are joined.
	Text string
	// Glyphs is how many drawn characters were looked at; Unmapped of them have a
	// code that neither the font nor the file gives a meaning.
	Glyphs, Unmapped int
	// Comments is the number of annotations with text that the page does not show.
	Comments int
	Options  int // of lists that are not chosen
	Struck   int // annotations that strike text, which is not marked
}

// ErrPage is that a page cannot be loaded; others may be.
var ErrPage = errors.New("the page cannot be read")

// Page reads a page by its number, from 1, with its form values and FreeText annotations.
func (d *Document) Page(number int) (Page, error) {
	page := d.call("FPDF_LoadPage", d.handle, uint64(number-1))
	r := pageReader{Document: d}
	if r.annotations(page) {
		const ok = 1
		if d.call("FPDFPage_Flatten", page, 0) == ok {
			d.call("FPDF_ClosePage", page)
			page = d.call("FPDF_LoadPage", d.handle, uint64(number-1))
		}
	}
	if page != 0 {
		r.text = d.call("FPDFText_LoadPage", page)
	}
	if r.text == 0 {
		return Page{}, cmp.Or(d.err, ErrPage)
	}
	r.read()
	d.call("FPDFText_ClosePage", r.text)
	d.call("FPDF_ClosePage", page)
	if d.err != nil {
		return r.page, d.err
	}
	rest := strings.Join(r.place(), "\n") // before the lines are joined
	r.page.Text = strings.TrimRight(paragraphs(r.lines)+"\n\n"+rest, "\n")
	return r.page, d.err
}

// annotations reads the values of fields and the notes without an appearance stream, and reports whether other
// annotations draw text. It counts comments (ISO 32000-1, 12.5.6).
func (r *pageReader) annotations(page uint64) (draws bool) {
	const link, freeText, strikeOut, stamp, popup, widget, watermark = 2, 3, 12, 13, 16, 20, 24
	const hidden, noView = 2, 32
	count := int32(r.call("FPDFPage_GetAnnotCount", page))
	for i := int32(0); i < count && r.err == nil && page != 0; i++ {
		if i == mostAnnotations || len(r.fields) == mostFields {
			r.page.Comments += int(count - i)
			break
		}
		a := r.call("FPDFPage_GetAnnot", page, uint64(i))
		switch kind := r.call("FPDFAnnot_GetSubtype", a); {
		case a == 0 || kind == link || kind == popup || r.call("FPDFAnnot_GetFlags", a)&(hidden|noView) != 0:
		case kind == widget && r.field(a):
			r.call("FPDFAnnot_SetFlags", a, hidden) // its appearance may be out of date
		case kind == freeText || kind == stamp || kind == widget || kind == watermark:
			if r.call("FPDFAnnot_HasKey", a, uint64(r.name("AP"))) != 0 {
				draws = true
			} else if text := r.value(a, map[bool]string{true: "Contents", false: "V"}[kind == freeText]); text != "" {
				r.fields = append(r.fields, field{text: text})
			}
		case kind == strikeOut:
			r.page.Struck++
		case r.value(a, "Contents") != "":
			r.page.Comments++
		}
		r.call("FPDFPage_CloseAnnot", a)
	}
	return draws
}

// Limits of a page. Further annotations are counted.
const mostAnnotations, mostFields = 20_000, 2_000

// field is a value of a form, or a note.
type field struct {
	name, text string
	tick       bool
	line
}

// telling matches the name of a field that was not made by a program.
var telling = regexp.MustCompile(`^[^\[\d]{3,}$`)

// field reads a field of a form, and reports whether it has no other text.
func (r *pageReader) field(a uint64) bool {
	const checkBox, radio, comboBox, listBox, text, password = 2, 3, 4, 5, 6, 1 << 13
	if r.form == 0 {
		info := r.allocate(512)
		r.memory.Write(info, append([]byte{1}, make([]byte, 511)...)) // version 1 without callbacks
		r.form = r.call("FPDFDOC_InitFormFillEnvironment", r.handle, uint64(info))
	}
	var f field
	switch kind := r.call("FPDFAnnot_GetFormFieldType", r.form, a); kind {
	case checkBox, radio:
		state := cmp.Or(r.value(a, "AS"), r.string("FPDFAnnot_GetFormFieldValue", r.form, a), "Off")
		if f.tick, f.text = true, "[ ]"; state != "Off" {
			f.text = "[x]"
		}
	case comboBox, listBox:
		count := min(r.call("FPDFAnnot_GetOptionCount", r.form, a), 1000)
		for i := uint64(0); i < count && r.err == nil; i++ {
			if r.call("FPDFAnnot_IsOptionSelected", r.form, a, i) != 0 {
				f.text += ", " + r.string("FPDFAnnot_GetOptionLabel", r.form, a, i)
			} else {
				r.page.Options++
			}
		}
		f.text = strings.TrimPrefix(f.text, ", ")
	case text:
		if r.call("FPDFAnnot_GetFormFieldFlags", r.form, a)&password != 0 {
			return true
		}
	default:
		return false
	}
	if f.text == "" {
		f.text = r.string("FPDFAnnot_GetFormFieldValue", r.form, a)
	}
	f.name = cmp.Or(r.string("FPDFAnnot_GetFormFieldAlternateName", r.form, a),
		telling.FindString(r.string("FPDFAnnot_GetFormFieldName", r.form, a)))
	if f.text != "" && r.call("FPDFAnnot_GetRect", a, uint64(r.scratch)) != 0 {
		f.line = r.rectangle()
		r.fields = append(r.fields, f)
	}
	return true
}

// place writes values behind their labels, and returns the values without a label.
func (r *pageReader) place() (rest []string) {
	for _, f := range r.fields {
		label, nearest := (*line)(nil), float32(150) // points
		for i := range r.lines {
			l, middle := &r.lines[i], (r.lines[i].top+r.lines[i].bottom)/2
			gap := f.left - l.right
			if f.tick {
				gap = l.left - f.right
			}
			if middle > f.bottom && middle < f.top && gap > -2 && gap < nearest {
				label, nearest = l, gap
			}
		}
		switch {
		case label == nil:
			rest = append(rest, strings.TrimPrefix(f.name+": "+f.text, ": "))
		case f.tick:
			label.text = f.text + " " + label.text
		default:
			label.text += " " + f.text
		}
	}
	return rest
}

// name writes a name into the module's memory.
func (d *Document) name(key string) uint32 {
	ptr := d.scratch + 32
	d.memory.Write(ptr, append([]byte(key), 0))
	return ptr
}

// value returns the text that an annotation has under a key.
func (d *Document) value(a uint64, key string) string {
	return d.string("FPDFAnnot_GetStringValue", a, uint64(d.name(key)))
}

// string returns the text that a function writes.
func (d *Document) string(function string, args ...uint64) string {
	const most = 64 << 10 // bytes of UTF-16
	n := d.call(function, append(args, 0, 0)...)
	if n <= 2 || n > most {
		return ""
	}
	buffer := d.allocate(int(n))
	d.call(function, append(args, uint64(buffer), n)...)
	text := string(d.utf16(buffer, int(n)/2-1))
	d.call("free", uint64(buffer))
	return strings.TrimSpace(text)
}

// pageReader collects the lines of a page in the order of the file.
type pageReader struct {
	*Document
	text   uint64
	page   Page
	lines  []line
	fields []field
}

// line is a line of text and its place on the page, in points from its lower left
// corner.
type line struct {
	text                     string
	left, right, top, bottom float32
	divided                  bool // its last word goes on in the next line
}

func (r *pageReader) read() {
	count := r.call("FPDFText_CountChars", r.text)
	if int32(count) <= 0 {
		return
	}
	r.sample(int(count))
	// A character may be two units, and the last unit is a NUL.
	buffer := r.allocate(int(count)*4 + 2)
	units := r.call("FPDFText_GetText", r.text, 0, count, uint64(buffer))
	text := r.utf16(buffer, max(int(units)-1, 0))
	r.call("free", uint64(buffer))
	const hyphen = 0xfffe // PDFium's mark for one that divides a word
	start := 0
	for i, c := range text {
		if c == '\n' || c == hyphen {
			r.line(text, start, i, c == hyphen)
			start = i + 1
		}
	}
	r.line(text, start, len(text), false)
}

// sample looks at some of the characters for ones without a meaning.
func (r *pageReader) sample(count int) {
	const most = 256
	step := max(1, count/most)
	for i := 0; i < count; i += step {
		if r.call("FPDFText_IsGenerated", r.text, uint64(i)) == 1 {
			continue
		}
		r.page.Glyphs++
		if r.call("FPDFText_HasUnicodeMapError", r.text, uint64(i)) == 1 {
			r.page.Unmapped++
		}
	}
}

// line adds the line from start to end.
func (r *pageReader) line(text []rune, start, end int, divided bool) {
	for start < end && unicode.IsSpace(text[start]) {
		start++
	}
	for end > start && unicode.IsSpace(text[end-1]) {
		end--
	}
	if start == end {
		return
	}
	first, last := r.box(start), r.box(end-1)
	r.lines = append(r.lines, line{
		text: r.marked(text[start:end], start), divided: divided,
		left: min(first.left, last.left), right: max(first.right, last.right),
		top: first.top, bottom: first.bottom,
	})
}

// box is the place of a character of the text, with the height of its font.
func (r *pageReader) box(i int) (l line) {
	// The list of characters also has those that are not in the text.
	index := r.call("FPDFText_GetCharIndexFromTextIndex", r.text, uint64(i))
	if int32(index) < 0 || r.call("FPDFText_GetLooseCharBox", r.text, index, uint64(r.scratch)) == 0 {
		return line{}
	}
	return r.rectangle()
}

// rectangle returns the rectangle that a function wrote.
func (r *pageReader) rectangle() (l line) {
	// FS_RECTF: left, top, right, bottom.
	for n, side := range []*float32{&l.left, &l.top, &l.right, &l.bottom} {
		*side, _ = r.memory.ReadFloat32Le(r.scratch + uint32(4*n))
	}
	return l
}

// paragraphs puts the lines together.
func paragraphs(lines []line) string {
	var out strings.Builder
	step := float32(0) // between the last two lines
	for i, l := range lines {
		if i > 0 {
			previous := lines[i-1]
			out.WriteString(between(previous, l, &step, edge(lines, i)))
		}
		out.WriteString(l.text)
	}
	return out.String()
}

// between is the white space between two lines. step is the distance of the
// lines before, and edge the right one of the column.
func between(a, b line, step *float32, edge float32) string {
	if a.divided {
		return ""
	}
	height := max(a.top-a.bottom, 1)
	down := a.bottom - b.bottom
	usual := *step
	if down <= height*0.45 { // beside it, or in another column
		return "\n"
	}
	if down > height*2.2 || usual > 0 && down > usual*1.4 && down > height*1.2 {
		*step = 0
		return "\n\n"
	}
	*step = down
	if goesOn(a, b, edge) {
		if unspaced(lastRune(a.text)) && unspaced(firstRune(b.text)) {
			return ""
		}
		return " "
	}
	return "\n"
}

// edge is the right edge of the column that line i and the one before lie in.
func edge(lines []line, i int) float32 {
	right := max(lines[i-1].right, lines[i].right)
	const near = 30 // lines
	for _, l := range lines[max(0, i-near):min(len(lines), i+near)] {
		if l.left < lines[i].right && l.right > lines[i].left && abs(l.left-lines[i].left) < 3*(l.top-l.bottom) {
			right = max(right, l.right)
		}
	}
	return right
}

// goesOn says whether b continues the paragraph of a: its first word had no room
// behind a. Rows of figures and items of lists do not go on.
func goesOn(a, b line, edge float32) bool {
	height := a.top - a.bottom
	if abs((b.top-b.bottom)-height) > height*0.15 || b.left > a.left+height || item(b.text) || number(a.text) &&
		number(b.text) {
		return false
	}
	word, _, _ := strings.Cut(b.text, " ")
	share := float32(utf8.RuneCountInString(word)+1) / float32(max(utf8.RuneCountInString(b.text), 1))
	if unspaced(firstRune(b.text)) {
		share = 2 / float32(utf8.RuneCountInString(b.text)+1)
	}
	return a.right+share*(b.right-b.left) > edge-height*0.3
}

// item says whether a line starts an item of a list.
func item(text string) bool {
	mark, _, ok := strings.Cut(text, " ")
	if !ok || mark == "" {
		return false
	}
	r, size := utf8.DecodeRuneInString(mark)
	if size == len(mark) && strings.ContainsRune("-–—*•▪◦‣·+", r) {
		return true
	}
	bare := strings.TrimRight(mark, ".)")
	return bare != mark && len(bare) <= 4 && strings.Trim(bare, "0123456789.(") == ""
}

// number says whether the last word of a line is a number.
func number(text string) bool {
	word := text[strings.LastIndexByte(text, ' ')+1:]
	return strings.ContainsAny(word, "0123456789") && strings.Trim(word, "0123456789.,%()+-−–$€£^_") == ""
}

func firstRune(text string) rune { r, _ := utf8.DecodeRuneInString(text); return r }
func lastRune(text string) rune  { r, _ := utf8.DecodeLastRuneInString(text); return r }

// unspaced says whether a character belongs to a script without spaces.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x303f || r >= 0xff00 &&
		r <= 0xffef
}

func abs(x float32) float32 { return max(x, -x) }
