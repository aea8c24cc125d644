package loader

import (
	"strconv"
	"strings"
	"unicode/utf16"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
)

// readRTF reads Rich Text Format (version 1.9.1): headings, paragraphs, tables and
// footnotes. Headers, footers and hidden text are left out.
func readRTF(b *builder, f file) error {
	r := rtfReader{builder: b, data: f.data, fonts: map[int]string{}, page: "1252"}
	r.group = rtfGroup{skipBytes: 1}
	for r.at < len(r.data) && b.err == nil {
		r.next()
	}
	if len(r.groups) > 0 {
		return refuse(Damaged, "the file is damaged: its end is missing")
	}
	r.inTable, r.group = false, rtfGroup{}
	r.endRow()
	r.endParagraph()
	return nil
}

// rtfReader reads RTF token by token.
type rtfReader struct {
	*builder
	data []byte
	at   int

	group  rtfGroup
	groups []rtfGroup // those around it
	note   int        // how many are open in a footnote's, 0 outside of one
	page   string     // the document's code page
	font   int        // the document's
	fonts  map[int]string

	bytes     []byte // in the code page, not decoded yet
	surrogate rune   // the first half of a pair
	omit      int    // characters to pass over, which repeat a Unicode one
	text      strings.Builder
	name      strings.Builder // of the document
	level     int             // of the paragraph as a heading, 0 for none
	inTable   bool            // the paragraph is one of a table
	table     grid
}

// rtfGroup is what ends with a group.
type rtfGroup struct {
	skipped   bool // what is in it is not the document's text
	title     bool // it is the document's title
	fonts     bool // it is the table of fonts
	hidden    bool
	skipBytes int // characters that repeat a Unicode one
	font      int
	starred   bool // a destination that may be unknown follows
}

// next reads a token.
func (r *rtfReader) next() {
	c := r.data[r.at]
	r.at++
	switch c {
	case '{':
		r.flush()
		if len(r.groups) >= r.limits.Nesting {
			r.fail(refuse(TooLarge, "the document's groups lie more than %d deep in each other", r.limits.Nesting))
		}
		r.groups = append(r.groups, r.group)
		r.group.starred, r.omit = false, 0
	case '}':
		r.flush()
		n := len(r.groups) - 1
		if n < 0 {
			r.at = len(r.data) // what follows the document is none of it
			return
		}
		if r.note > n {
			r.text.WriteString(") ")
			r.note = 0
		}
		r.group, r.groups, r.omit = r.groups[n], r.groups[:n], 0
		if n == 0 {
			r.at = len(r.data)
		}
	case '\\':
		r.control()
	case '\r', '\n':
	default:
		r.byte(c)
	}
	r.room(r.text.Len() + len(r.bytes))
}

// control reads what follows a backslash.
func (r *rtfReader) control() {
	if r.at >= len(r.data) {
		return
	}
	start := r.at
	for r.at < len(r.data) && isASCIILetter(r.data[r.at]) {
		r.at++
	}
	if r.at == start {
		r.symbol()
		return
	}
	word := string(r.data[start:min(r.at, start+32)])
	start = r.at
	if r.at < len(r.data) && r.data[r.at] == '-' {
		r.at++
	}
	for r.at < len(r.data) && r.data[r.at] >= '0' && r.data[r.at] <= '9' {
		r.at++
	}
	number, err := strconv.Atoi(string(r.data[start:min(r.at, start+12)]))
	if err != nil {
		number = 1
	}
	if r.at < len(r.data) && r.data[r.at] == ' ' {
		r.at++
	}
	r.word(word, number, err == nil)
}

func isASCIILetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// symbol reads a control symbol.
func (r *rtfReader) symbol() {
	c := r.data[r.at]
	r.at++
	switch c {
	case '\'':
		if r.at+2 > len(r.data) {
			return
		}
		code, err := strconv.ParseUint(string(r.data[r.at:r.at+2]), 16, 8)
		if r.at += 2; err == nil {
			r.byte(byte(code))
		}
	case '*':
		r.group.starred = true
	case '~':
		r.write("\u00a0")
	case '_':
		r.write("-")
	case '\\', '{', '}':
		r.byte(c)
	case '\r', '\n':
		r.endParagraph()
	}
}

// rtfText are the characters that control words stand for.
var rtfText = map[string]string{"tab": "\t", "line": "\n", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’",
	"ldblquote": "“", "rdblquote": "”", "bullet": "•", "emspace": " ", "enspace": " ", "nestcell": " ", "nestrow": "\n"}

// rtfSkipped are destinations that are not the document's text, and what they
// count as.
var rtfSkipped = map[string]string{"pict": "pictures", "objdata": "embedded objects", "annotation": "comments",
	"colortbl": "", "stylesheet": "",
	"info": "", "header": "", "headerl": "", "headerr": "", "headerf": "", "footer": "", "footerl": "", "footerr": "",
	"footerf": "",
	"fldinst": "", "filetbl": "", "listtable": "", "xe": "", "tc": "", "bkmkstart": "", "bkmkend": "", "nonshppict": "",
	"upr": "", "sn": "", "sv": ""}

// rtfKnown are destinations that may be unknown, and are read.
var rtfKnown = map[string]bool{"shpinst": true, "shptxt": true, "shppict": true, "fonttbl": true}

// word carries out a control word.
func (r *rtfReader) word(word string, number int, numbered bool) {
	if text, ok := rtfText[word]; ok {
		r.write(text)
		return
	}
	what, skipped := rtfSkipped[word]
	if skipped || r.group.starred && !rtfKnown[word] {
		r.flush()
		if !r.group.skipped && what != "" {
			r.skip(what, 1)
		}
		r.group.skipped, r.group.starred = true, false
		return
	}
	r.group.starred = false
	on := number != 0
	switch word {
	case "par", "sect", "page":
		r.endParagraph()
	case "cell":
		r.flush()
		if !r.group.skipped {
			r.table.cell(r.text.String())
			r.text.Reset()
		}
	case "row":
		r.endRow()
	case "pard":
		r.level, r.inTable = 0, false
	case "intbl":
		r.inTable = on
	case "outlinelevel":
		if number >= 0 && number < 9 {
			r.level = number + 1
		}
	case "u":
		r.unicode(number)
	case "bin":
		r.at += min(max(number, 0), len(r.data)-r.at)
	case "footnote":
		if r.write(" ("); !r.group.skipped && r.note == 0 {
			r.note = len(r.groups)
		}
	default:
		r.setting(word, number, numbered)
	}
}

// setting carries out a word that changes how text is read.
func (r *rtfReader) setting(word string, number int, numbered bool) {
	on := number != 0
	r.flush()
	switch word {
	case "uc":
		r.group.skipBytes = min(max(number, 0), 100)
	case "v", "deleted":
		if r.group.hidden = on; on && !r.group.skipped {
			r.skip("hidden pieces of text", 1)
		}
	case "plain":
		r.group.hidden, r.group.font = false, r.font
	case "title":
		// Among what is known of the document.
		r.group.title = r.group.skipped
	case "fonttbl":
		r.group.fonts, r.group.skipped = true, true
	case "ansicpg":
		r.page = strconv.Itoa(number)
	case "mac":
		r.page = "10000"
	case "pc":
		r.page = "437"
	case "pca":
		r.page = "850"
	case "deff":
		r.font, r.group.font = number, number
	case "f":
		if numbered {
			r.group.font = number
		}
	case "fcharset":
		if page := rtfCharsets[number]; r.group.fonts && page != "" && len(r.fonts) < 10_000 {
			r.fonts[r.group.font] = page
		}
	}
}

// byte takes a character in the code page of its font.
func (r *rtfReader) byte(c byte) {
	switch {
	case r.omit > 0:
		r.omit--
	case !r.group.skipped && !r.group.hidden || r.group.title:
		r.bytes = append(r.bytes, c)
	}
}

// unicode takes a character by its number, a signed one of 16 bits.
func (r *rtfReader) unicode(number int) {
	r.flush()
	r.omit = r.group.skipBytes
	c := rune(uint16(number)) //nolint:gosec // as the format has it
	switch {
	case utf16.IsSurrogate(c) && c < 0xdc00:
		r.surrogate = c
		return
	case utf16.IsSurrogate(c):
		c = utf16.DecodeRune(r.surrogate, c)
	}
	r.surrogate = 0
	omit := r.omit
	r.omit = 0
	r.write(string(c))
	r.omit = omit
}

// write takes text that needs no decoding.
func (r *rtfReader) write(text string) {
	r.flush()
	r.omit = 0
	switch {
	case r.group.title:
		r.name.WriteString(text)
		r.doc.Title = oneLine(r.name.String())
	case !r.group.skipped && !r.group.hidden:
		r.text.WriteString(text)
	}
}

// flush decodes the bytes that wait.
func (r *rtfReader) flush() {
	if len(r.bytes) == 0 {
		return
	}
	page, found := r.fonts[r.group.font]
	if !found || page == "ansi" {
		page = r.page
	}
	text := string(r.bytes)
	switch known := rtfPage(page); {
	case page == "symbol":
		text = strings.Map(symbolOf, decodeBytes(charmap.ISO8859_1, r.bytes))
	case known != nil:
		text = decodeBytes(known, r.bytes)
	}
	r.bytes = r.bytes[:0]
	r.write(text)
}

func decodeBytes(e encoding.Encoding, data []byte) string {
	text, err := e.NewDecoder().Bytes(data)
	if err != nil {
		return strings.ToValidUTF8(string(data), "\ufffd")
	}
	return string(text)
}

// symbolOf is a character of a font of symbols: mostly the marks of lists.
func symbolOf(c rune) rune {
	if c < 0x80 {
		return c
	}
	return '•'
}

// rtfCharsets are the code pages of the character sets of fonts.
var rtfCharsets = map[int]string{0: "ansi", 1: "ansi", 2: "symbol", 77: "10000", 128: "932", 129: "949", 134: "936",
	136: "950",
	161: "1253", 162: "1254", 163: "1258", 177: "1255", 178: "1256", 186: "1257", 204: "1251", 222: "874", 238: "1250",
	255: "437"}

// rtfPage is the encoding of a code page, nil if it is not known.
func rtfPage(page string) encoding.Encoding {
	switch page {
	case "437":
		return charmap.CodePage437
	case "850":
		return charmap.CodePage850
	}
	names := map[string]string{"866": "ibm866", "932": "shift_jis", "936": "gbk", "949": "euc-kr", "950": "big5",
		"10000": "macintosh", "65001": "utf-8"}
	name := names[page]
	if name == "" {
		name = "windows-" + page
	}
	e, _ := htmlindex.Get(name)
	return e
}

// endParagraph puts the paragraph where it belongs.
func (r *rtfReader) endParagraph() {
	r.flush()
	if r.group.skipped || r.group.hidden {
		return
	}
	if r.inTable || r.note > 0 || len(r.table.cells) > 0 {
		r.text.WriteByte('\n')
		return
	}
	text := strings.TrimSpace(r.text.String())
	r.text.Reset()
	r.whole(r.table.take())
	if r.level > 0 {
		r.heading(r.level, text)
	} else {
		r.paragraph(squeeze(text))
	}
}

func (r *rtfReader) endRow() {
	if filled(r.table.cells) == 0 {
		r.table.cells = nil
	}
	r.table.endRow()
	r.room(r.table.size)
}
