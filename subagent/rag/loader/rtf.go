package loader

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
)

// readRTF reads Rich Text Format (version 1.9.1): headings, paragraphs, tables and
// footnotes. Headers, footers, struck and hidden text are left out.
func readRTF(b *builder, f file) error {
	r := rtfReader{builder: b, rest: f.data, fonts: map[int]int{}, page: 1252, group: rtfGroup{skipBytes: 1}}
	for len(r.rest) > 0 && b.err == nil {
		r.next()
	}
	if len(r.groups) > 0 {
		return refuse(Damaged, "the file is damaged: its end is missing")
	}
	r.group = rtfGroup{}
	r.rowWord()
	r.endParagraph()
	return nil
}

// rtfReader reads RTF token by token.
type rtfReader struct {
	*builder
	rest []byte

	group  rtfGroup
	groups []rtfGroup  // those around it
	note   int         // how many are open in a footnote's, 0 outside of one
	page   int         // the document's code page
	font   int         // the document's
	fonts  map[int]int // the code pages of fonts, 0 for the document's

	opened    bool            // a group has just begun
	field     strings.Builder // the instruction of a field
	bytes     []byte          // in the code page, not decoded yet
	surrogate rune            // the first half of a pair
	omit      int             // characters to pass over, which repeat a Unicode one
	name      strings.Builder // of the document
	rtfPlace
	outer    []rtfPlace // around the open text boxes
	deferred []string   // paragraphs of the text boxes in the open paragraph
}

// rtfPlace is the state that a text box interrupts.
type rtfPlace struct {
	start   int // groups around the text of the box
	line    flow
	table   table
	cells   []string // of the open row
	names   bool     // it names the columns
	defined []rtfCell
	merge   rtfCell // of the cell being defined
	edges   []int   // of the table's cells, in twips
}

// rtfCell defines a cell of a row.
type rtfCell struct {
	right                 int  // edge
	joinsLeft, joinsAbove bool // it belongs to the cell beside or above it
}

// rtfGroup is what ends with a group.
type rtfGroup struct {
	skipped   bool // what is in it is not the document's text
	title     bool // it is the document's title
	field     bool // it is the instruction of a field
	fonts     bool // it is the table of fonts
	mark      mark
	skipBytes int // characters that repeat a Unicode one
	font      int
	starred   bool // a destination that may be unknown follows
	level     int  // of the paragraph as a heading, 0 for none
	inTable   bool // the paragraph is in a table
}

// rtfToken matches a control word with its number, a byte in hexadecimal digits, a control symbol, or plain bytes.
var rtfToken = regexp.MustCompile(`^(?:\\([a-zA-Z]+)(-?[0-9]+)? ?|\\'([0-9a-fA-F]{2})|\\((?s:.))|[^\\{}\r\n]+)`)

// next reads a token.
func (r *rtfReader) next() {
	opened := len(r.rest) > 0 && r.rest[0] == '{'
	defer func() { r.opened = opened }()
	m := rtfToken.FindSubmatch(r.rest)
	if m == nil { // a brace, the end of a line, or a backslash at the end of the file
		c := r.rest[0]
		if r.rest = r.rest[1:]; c == '{' || c == '}' {
			r.brace(c)
		}
		return
	}
	r.rest = r.rest[len(m[0]):]
	switch {
	case len(m[1]) > 0:
		number, err := strconv.Atoi(string(m[2]))
		if err != nil {
			number = 1
		}
		r.word(string(m[1]), number)
	case len(m[3]) > 0:
		code, _ := strconv.ParseUint(string(m[3]), 16, 8) // two digits
		r.plain([]byte{byte(code)})
	case len(m[4]) > 0:
		r.symbol(m[4])
	default:
		r.plain(m[0])
	}
	r.room(r.line.Len() + len(r.bytes))
}

// brace begins or ends a group.
func (r *rtfReader) brace(c byte) {
	r.flush()
	n := len(r.groups) - 1
	switch {
	case c == '{':
		if len(r.groups) >= r.limits.Nesting {
			r.fail(refuse(TooLarge, "the document's groups lie more than %d deep in each other", r.limits.Nesting))
		}
		r.groups = append(r.groups, r.group)
		r.group.starred, r.omit = false, 0
	case c == '}' && n >= 0:
		if r.note > n {
			r.run(&r.line, ") ", 0)
			r.note = 0
		}
		if last := len(r.outer) - 1; last >= 0 && r.start > n {
			r.endParagraph()
			r.rtfPlace, r.outer = r.outer[last], r.outer[:last]
		}
		fieldClosed := r.group.field && !r.groups[n].field
		r.group, r.groups, r.omit = r.groups[n], r.groups[:n], 0
		if instruction := r.field.String(); fieldClosed {
			r.field.Reset()
			r.write(r.fieldText(instruction))
		}
	}
	if c == '}' && n <= 0 {
		r.rest = nil // what follows the document is none of it
	}
}

// symbol carries out a control symbol.
func (r *rtfReader) symbol(c []byte) {
	switch c[0] {
	case '*':
		r.group.starred = r.opened
	case '~':
		r.write("\u00a0")
	case '_':
		r.write("-")
	case '\\', '{', '}':
		r.plain(c)
	case '\r', '\n':
		r.endParagraph()
	}
}

// rtfText are the characters that control words stand for.
var rtfText = map[string]string{"tab": "\t", "line": "\n", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’",
	"ldblquote": "“", "rdblquote": "”", "bullet": "•", "emspace": " ", "enspace": " ", "nestcell": " ", "nestrow": "\n"}

// rtfCounted are destinations that are not the document's text, and what they count as; rtfSkipped are others.
var rtfCounted = map[string]string{"pict": "pictures", "objdata": "embedded objects", "annotation": "comments",
	"formfield": "form fields", "header": "headers and footers", "headerl": "headers and footers",
	"headerr": "headers and footers", "headerf": "headers and footers", "footer": "headers and footers",
	"footerl": "headers and footers", "footerr": "headers and footers", "footerf": "headers and footers"}

var rtfSkipped = regexp.MustCompile(`^(?:colortbl|stylesheet|info|fldinst|filetbl|listtable|` +
	`xe|tc|bkmkstart|bkmkend|nonshppict|shprslt|ud|sn|sv)$`)

// rtfKnown are destinations that may be unknown, and are read.
var rtfKnown = map[string]bool{"shpinst": true, "shptxt": true, "do": true, "shppict": true, "fonttbl": true}

// word carries out a control word.
func (r *rtfReader) word(word string, number int) {
	r.flush()
	if text, ok := rtfText[word]; ok {
		r.write(text)
		return
	}
	what := rtfCounted[word]
	if what != "" || rtfSkipped.MatchString(word) || r.group.starred && !rtfKnown[word] {
		if what != "" && (!r.group.skipped || r.group.field) {
			r.skip(what, 1)
		}
		r.group.skipped, r.group.starred, r.group.field = true, false, word == "fldinst"
		return
	}
	r.group.starred = false
	if do := rtfWords[word]; do != nil {
		do(r, number)
	}
}

// rtfWords are what the other control words do.
var rtfWords = map[string]func(r *rtfReader, number int){
	"par": (*rtfReader).paragraphWord, "sect": (*rtfReader).paragraphWord, "page": (*rtfReader).paragraphWord,
	"shptxt": (*rtfReader).boxWord, "dptxbxtext": (*rtfReader).boxWord,
	"row":    func(r *rtfReader, _ int) { r.rowWord() },
	"trowd":  func(r *rtfReader, _ int) { r.defined, r.merge, r.names = nil, rtfCell{}, false },
	"trhdr":  func(r *rtfReader, _ int) { r.names = true },
	"clmrg":  func(r *rtfReader, _ int) { r.merge.joinsLeft = true },
	"clvmrg": func(r *rtfReader, _ int) { r.merge.joinsAbove = true },
	"cellx": func(r *rtfReader, number int) {
		if len(r.defined) < mostColumns {
			r.merge.right = number
			r.defined, r.merge = append(r.defined, r.merge), rtfCell{}
		}
	},
	"pard":  func(r *rtfReader, _ int) { r.group.level, r.group.inTable = 0, false },
	"intbl": func(r *rtfReader, number int) { r.group.inTable = number != 0 },
	"u":     (*rtfReader).unicode,
	"bin":   func(r *rtfReader, number int) { r.rest = r.rest[min(max(number, 0), len(r.rest)):] },
	"uc":    func(r *rtfReader, number int) { r.group.skipBytes = min(max(number, 0), 100) },
	"v":     rtfMark(hidden, 1), "deleted": rtfMark(hidden, 1),
	"strike": rtfMark(struck, 1), "striked": rtfMark(struck, 1),
	"super": rtfMark(raised, 1), "sub": rtfMark(lowered, 1),
	"up": rtfMark(raised, leastShift), "dn": rtfMark(lowered, leastShift),
	"nosupersub": func(r *rtfReader, _ int) { r.group.mark &^= offLine },
	"plain":      func(r *rtfReader, _ int) { r.group.mark, r.group.font = 0, r.font },
	"title":      func(r *rtfReader, _ int) { r.group.title = r.group.skipped }, // among what is known of the document
	"fonttbl":    func(r *rtfReader, _ int) { r.group.fonts, r.group.skipped = true, true },
	"ansicpg":    func(r *rtfReader, number int) { r.page = number },
	"mac":        func(r *rtfReader, _ int) { r.page = 10000 },
	"pc":         func(r *rtfReader, _ int) { r.page = 437 },
	"pca":        func(r *rtfReader, _ int) { r.page = 850 },
	"deff":       func(r *rtfReader, number int) { r.font, r.group.font = number, number },
	"f":          func(r *rtfReader, number int) { r.group.font = number },
	"cell": func(r *rtfReader, _ int) {
		if !r.group.skipped {
			r.cells = append(r.cells, r.line.String())
			r.line.Reset()
		}
	},
	"outlinelevel": func(r *rtfReader, number int) {
		if number >= 0 && number < 9 {
			r.group.level = number + 1
		}
	},
	"footnote": func(r *rtfReader, _ int) {
		if r.write(" ("); !r.group.skipped && r.note == 0 {
			r.note = len(r.groups)
		}
	},
	"fcharset": func(r *rtfReader, number int) {
		if r.group.fonts && len(r.fonts) < 10_000 {
			r.fonts[r.group.font] = rtfCharsets[number]
			name, _, _ := bytes.Cut(r.rest[:min(len(r.rest), 100)], []byte(";"))
			if number == 2 && bytes.Contains(name, []byte("dings")) {
				r.fonts[r.group.font] = dingbatPage
			}
		}
	},
}

func (r *rtfReader) paragraphWord(int) { r.endParagraph() }

// boxWord begins the text of a box, which follows the paragraph around it.
func (r *rtfReader) boxWord(int) {
	if !r.group.skipped {
		r.outer = append(r.outer, r.rtfPlace)
		r.rtfPlace = rtfPlace{start: len(r.groups)}
		r.group.level, r.group.inTable = 0, false
	}
}

// rtfMark returns what a control word does that draws a mark if its number is at least that.
func rtfMark(m mark, least int) func(*rtfReader, int) {
	return func(r *rtfReader, number int) {
		if r.group.mark &^= m; number >= least {
			r.group.mark |= m
		}
	}
}

// plain takes bytes in the code page of their font.
func (r *rtfReader) plain(c []byte) {
	passed := min(r.omit, len(c))
	r.omit -= passed
	if !r.group.skipped || r.group.title || r.group.field {
		r.bytes = append(r.bytes, c[passed:]...)
	}
}

// unicode takes a character by its number, a signed one of 16 bits.
func (r *rtfReader) unicode(number int) {
	c := rune(uint16(number)) //nolint:gosec // as the format has it
	first := r.surrogate
	r.surrogate = 0
	switch {
	case utf16.IsSurrogate(c) && c < 0xdc00:
		r.surrogate = c
	case utf16.IsSurrogate(c):
		r.write(string(utf16.DecodeRune(first, c)))
	default:
		r.write(string(c))
	}
	r.omit = r.group.skipBytes
}

// write takes text that needs no decoding.
func (r *rtfReader) write(text string) {
	r.flush()
	r.omit = 0
	switch {
	case r.group.title:
		r.name.WriteString(text)
		r.doc.Title = oneLine(r.name.String())
	case r.group.field:
		r.field.WriteString(text)
	case !r.group.skipped:
		r.run(&r.line, text, r.group.mark|map[int]mark{symbolPage: symbol, dingbatPage: dingbat}[r.fonts[r.group.font]])
	}
}

// The code pages of symbol fonts.
const symbolPage, dingbatPage = 42, 43

// flush decodes the bytes that wait.
func (r *rtfReader) flush() {
	if len(r.bytes) == 0 {
		return
	}
	text := string(r.bytes)
	for _, page := range []int{r.fonts[r.group.font], r.page} {
		enc := rtfPage(page)
		if page == 0 || enc == nil {
			continue
		}
		text, _ = enc.NewDecoder().String(string(r.bytes)) // bytes outside the code page are replaced
		if !strings.Contains(text, "\ufffd") {
			break
		}
	}
	r.bytes = r.bytes[:0]
	r.write(text)
}

// rtfCharsets are the code pages of the character sets of fonts, 0 for the document's.
var rtfCharsets = map[int]int{2: symbolPage, 77: 10000, 128: 932, 129: 949, 134: 936, 136: 950, 161: 1253, 162: 1254,
	163: 1258, 177: 1255, 178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250, 255: 437}

// rtfPage is the encoding of a code page, nil if it is not known.
func rtfPage(page int) encoding.Encoding {
	switch page {
	case 437:
		return charmap.CodePage437
	case 850:
		return charmap.CodePage850
	case symbolPage, dingbatPage:
		return charmap.ISO8859_1
	}
	names := map[int]string{866: "ibm866", 932: "shift_jis", 936: "gbk", 949: "euc-kr", 950: "big5", 10000: "macintosh",
		65001: "utf-8"}
	e, _ := htmlindex.Get(cmp.Or(names[page], "windows-"+strconv.Itoa(page)))
	return e
}

// endParagraph puts the paragraph where it belongs.
func (r *rtfReader) endParagraph() {
	r.flush()
	if r.group.skipped || r.group.mark&hidden != 0 {
		return
	}
	if r.group.inTable || r.note > 0 || len(r.cells) > 0 {
		r.run(&r.line, "\n", 0)
		return
	}
	text := strings.TrimSpace(r.line.String())
	r.line.Reset()
	if len(r.outer) > 0 {
		r.deferred = append(append(r.deferred, r.tableBlocks(&r.table)...), text)
		return
	}
	r.endTable(&r.table)
	r.edges = nil
	if r.group.level > 0 {
		r.heading(r.group.level, "", text)
	} else {
		r.paragraph(squeeze(text))
	}
	for _, text := range r.deferred {
		r.paragraph(squeeze(text))
	}
	r.deferred = nil
}

const (
	// sameEdge is the largest distance between the edges of one column, in twips.
	sameEdge = 60
	// edgeUnit is the unit of columns, in twips.
	edgeUnit = 10
	// mostEdges bounds the edges that are compared.
	mostEdges = 1000
)

// edge returns the column whose right edge is at or near a place.
func (r *rtfReader) edge(place int) int {
	i, _ := slices.BinarySearch(r.edges, place-sameEdge)
	if i == len(r.edges) || r.edges[i] > place+sameEdge {
		if len(r.edges) >= mostEdges {
			return place / edgeUnit
		}
		r.edges = slices.Insert(r.edges, i, place)
	}
	return r.edges[i] / edgeUnit
}

// rowWord ends a row. The row's definition, with the ends of its cells, may follow the cells.
func (r *rtfReader) rowWord() {
	column := 0
	for i, text := range r.cells {
		var defined rtfCell
		across := 1
		if i < len(r.defined) {
			defined = r.defined[i]
			across = max(r.edge(defined.right)-column, 1)
		}
		switch t := &r.table; {
		case defined.joinsLeft || defined.joinsAbove:
			t.join(defined.joinsAbove, across)
		default:
			t.cell(text, across, 1)
		}
		column += across
	}
	r.cells = nil
	r.endRow(&r.table, r.names)
}
