package loader

import (
	"cmp"
	"encoding/xml"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func init() { wordFile.into = readWord } // here, because embedded files are of any format

// readWord reads a .docx: headings, paragraphs, lists, tables, text boxes, diagrams, footnotes and
// endnotes. Deleted, struck and hidden text is left out, as are comments.
func readWord(b *builder, f file) error {
	a, main, related, err := b.office(f, labelWord, "word/document.xml")
	if err != nil {
		return err
	}
	w := wordReader{builder: b, archive: a, related: related, depth: f.depth, levels: map[string]int{},
		listed: map[string]bool{}, styles: markStyles{}, numbered: map[string]wordNumber{}, linked: map[string]int{},
		lists: map[string]*numbering{}}
	a.walk(targetOf(related, "styles", "word/styles.xml"), &wordStyleReader{wordReader: &w})
	w.readNumbers(targetOf(related, "numbering", "word/numbering.xml"))
	for _, part := range []string{main, targetOf(related, "footnotes", "word/footnotes.xml"),
		targetOf(related, "endnotes", "word/endnotes.xml")} {
		a.walk(part, &w)
	}
	a.skipRelated(related)
	return nil
}

// wordReader turns the elements of WordprocessingML into text.
type wordReader struct {
	*builder
	archive  *archive
	related  []relation
	depth    int             // of the file in others
	levels   map[string]int  // heading level by style
	listed   map[string]bool // styles that are items of a list
	styles   markStyles
	numbered map[string]wordNumber // by style
	linked   map[string]int        // levels of lists by style
	lists    map[string]*numbering // by id

	wordPlace
	outer    []wordPlace // around the open text boxes
	deferred []string    // paragraphs of the text boxes in the open paragraph

	inText, inField bool
	mark            mark // of the run
	field           strings.Builder
	codes           []bool // of the open fields, whether the instruction is open
	choice          wordChoice
	prompt          bool // the open control shows what to enter
}

// wordPlace is the state that a text box interrupts.
type wordPlace struct {
	line    flow // of the paragraph
	level   int  // of the paragraph as a heading, 0 for none
	deep    int  // depth of the paragraph in lists, from 1, 0 for none
	number  wordNumber
	base    mark // of the paragraph
	drops   bool // the paragraph is an initial that drops into the next one
	initial string
	removed bool // a part of the paragraph was deleted or is hidden

	tables    int      // open ones
	table     table    // the outermost of them
	cells     []string // paragraphs of its open cell
	across    int      // columns of the cell
	continued bool     // the cell continues the one above
	header    bool     // the row names the columns
}

// wordChoice is a form field with entries to choose from, or with a box to check.
type wordChoice struct {
	entries []string
	chosen  int
	changed bool // other than by default
}

// wordStyleReader reads the definitions of styles.
type wordStyleReader struct {
	*wordReader
	name string // of the style being defined
}

func (w *wordStyleReader) end(string)   {}
func (w *wordStyleReader) write(string) {}

// start learns which styles are headings and lists: their ids are in the language of the
// document's author, their names are English.
func (w *wordStyleReader) start(e xml.StartElement) bool {
	value := attribute(e, "val")
	switch e.Name.Local {
	case "style":
		w.name = attribute(e, "styleId")
		w.styles[w.name] = &markStyle{}
	case "basedOn":
		if style := w.styles[w.name]; style != nil {
			style.base = value
		}
	case "name":
		name := strings.ToLower(value)
		if level, ok := strings.CutPrefix(name, "heading "); ok {
			w.levels[w.name], _ = strconv.Atoi(level)
		}
		if name == "title" {
			w.levels[w.name] = 1
		}
		if strings.HasPrefix(name, "list ") && name != "list paragraph" {
			w.listed[w.name] = true
		}
	case "outlineLvl":
		if level, err := strconv.Atoi(value); err == nil && level < 9 && w.levels[w.name] == 0 {
			w.levels[w.name] = level + 1
		}
	case "numId", "ilvl":
		number := w.numbered[w.name]
		number.set(e)
		w.numbered[w.name] = number
	default:
		if style := w.styles[w.name]; style != nil {
			wordMark(e, &style.marking)
		}
	}
	return !unshown[e.Name.Local]
}

// leastShift is by how many half-points text is raised or lowered at least. Converters of PDFs
// shift text by less to place it.
const leastShift = 6

// isOn reports whether an element switches a property on.
func isOn(e xml.StartElement) bool {
	value := attribute(e, "val")
	return value != "0" && value != "false" && value != "off"
}

// wordMark reads a property of a run that draws a mark.
func wordMark(e xml.StartElement, style *marking) {
	value, on := attribute(e, "val"), isOn(e)
	switch e.Name.Local {
	case "vanish":
		style.put(hidden, on)
	case "strike", "dstrike":
		style.put(struck, on)
	case "vertAlign":
		style.put(raised, value == "superscript")
		style.put(lowered, value == "subscript")
	case "position":
		points, _ := strconv.Atoi(value)
		style.put(raised, points >= leastShift)
		style.put(lowered, points <= -leastShift)
	case "rFonts":
		style.font(attribute(e, "ascii"))
	}
}

// unshown are elements with text that is not the document's: what was deleted, the second
// version of a drawing, readings, formatting that was changed.
var unshown = map[string]bool{"del": true, "moveFrom": true, "Fallback": true, "delText": true, "delInstrText": true,
	"rt": true, "rPrChange": true, "pPrChange": true, "tblPrChange": true, "trPrChange": true, "tcPrChange": true}

// formulaMarks stand before the parts of a formula.
var formulaMarks = map[string]string{"sup": "^", "sub": "_", "den": "/"}

func (w *wordReader) write(text string) {
	switch {
	case w.inText && !slices.Contains(w.codes, true):
		w.field.Reset() // has a result
		w.removed = w.removed || w.mark&hidden != 0
		w.run(&w.line, text, w.mark)
	case w.inField && w.field.Len() < 1<<16:
		w.field.WriteString(text)
	}
	w.room(w.line.Len())
}

func (w *wordReader) start(e xml.StartElement) bool {
	name, value := e.Name.Local, attribute(e, "val")
	if unshown[name] {
		w.removed = w.removed || name == "del" || name == "moveFrom"
		return false
	}
	switch name {
	case "t":
		w.inText = true
	case "r":
		w.mark = w.base
	case "rStyle":
		w.mark = w.styles.resolve(value).apply(w.mark)
	case "sup", "sub", "den", "chr":
		w.line.WriteString(formulaMarks[name] + attribute(e, "m:val"))
	case "tab", "ptab":
		w.run(&w.line, "\t", w.mark)
	case "br", "cr":
		w.run(&w.line, "\n", w.mark)
	case "noBreakHyphen":
		w.run(&w.line, "-", w.mark)
	case "sym":
		if code, err := strconv.ParseUint(attribute(e, "char"), 16, 16); err == nil {
			var font marking
			font.font(attribute(e, "font"))
			w.run(&w.line, string(rune(code)), font.apply(w.mark))
		}
	case "p":
		w.endParagraph()
		w.codes = nil
		w.level, w.deep, w.number, w.base, w.mark, w.drops, w.removed = 0, 0, wordNumber{}, 0, 0, false, false
	case "framePr":
		w.drops = attribute(e, "dropCap") != "" && attribute(e, "dropCap") != "none"
	case "docPr":
		w.run(&w.line, description(e), w.mark)
	case "pStyle":
		w.level, w.base, w.number = w.levels[value], w.styles.resolve(value).on, w.numberOf(value)
		if w.listed[value] || w.number.id != "" && w.number.id != "0" {
			w.deep = max(w.deep, w.number.level+1)
		}
	case "outlineLvl":
		if level, err := strconv.Atoi(value); err == nil && level < 9 && w.level == 0 {
			w.level = level + 1
		}
	case "ilvl", "numId":
		w.number.set(e)
		if w.deep = w.number.level + 1; w.number.id == "0" {
			w.deep = 0
		}
	default:
		return w.startBlock(e) && w.startField(e)
	}
	return true
}

// startBlock starts a table, a part of one, a text box or a file that is embedded.
func (w *wordReader) startBlock(e xml.StartElement) bool {
	span, _ := strconv.Atoi(attribute(e, "val"))
	switch name := e.Name.Local; {
	case name == "tbl":
		w.tables++
		w.endList()
	case name == "txbxContent":
		w.outer = append(w.outer, w.wordPlace)
		w.wordPlace = wordPlace{}
	case name == "altChunk", name == "relIds":
		for _, r := range w.related {
			switch {
			case r.id == "":
			case name == "altChunk" && r.id == attribute(e, "r:id"):
				w.endList()
				w.embed(file{name: r.target, data: w.archive.bytes(r.target), depth: w.depth})
			case r.id == attribute(e, "r:dm"):
				w.endList()
				w.archive.walk(r.target, &slideReader{builder: w.builder})
			}
		}
	case w.tables != 1:
	case name == "tr":
		w.header = false
	case name == "tblHeader":
		w.header = isOn(e)
	case name == "gridBefore":
		w.table.cell("", span, 1)
	case name == "tc":
		w.across, w.continued = 1, false
	case name == "gridSpan":
		w.across = span
	case name == "vMerge":
		w.continued = attribute(e, "val") != "restart"
	}
	return true
}

// startField reads a part of a field or control. The prompt of an empty control is left out.
func (w *wordReader) startField(e xml.StartElement) bool {
	switch name := e.Name.Local; name {
	case "sdt":
		w.prompt = false
	case "showingPlcHdr":
		w.prompt = isOn(e)
	case "sdtContent":
		if w.prompt {
			w.prompt = false
			w.skip("placeholder prompts", 1)
			return false
		}
	case "instrText":
		w.inField = true
	case "fldSimple":
		w.field.Reset()
		w.field.WriteString(attribute(e, "instr"))
	case "fldChar":
		switch kind, n := attribute(e, "fldCharType"), len(w.codes)-1; {
		case kind == "begin":
			w.field.Reset()
			w.codes = append(w.codes, true)
		case kind != "separate":
			w.codes = w.codes[:max(n, 0)]
			w.endField()
		case n >= 0:
			w.codes[n] = false
		}
	case "ddList":
		w.choice = wordChoice{}
	case "checkBox":
		w.choice = wordChoice{entries: []string{"[ ]", "[x]"}}
	case "listEntry":
		w.choice.entries = append(w.choice.entries, attribute(e, "val"))
	case "default", "result", "checked":
		if value := attribute(e, "val"); name != "default" || !w.choice.changed {
			w.choice.changed = name != "default"
			if w.choice.chosen, _ = strconv.Atoi(value); value == "" || isTrue(value) {
				w.choice.chosen = 1
			}
		}
	default:
		var direct marking
		wordMark(e, &direct)
		w.mark = direct.apply(w.mark)
	}
	return true
}

// overprint matches a field that draws a reading above its characters.
var overprint = regexp.MustCompile(`\\o.*\\s\\(?:up|do) *\d* *\([^()]*\) *[,;]([^()]*)\)|\\o.*\(([^()]*)[,;]\\s\\(?:up|do) *\d* *\(`)

// symbolField matches a field that draws a character.
var symbolField = regexp.MustCompile(`^\s*SYMBOL\s+(\w+)\s.*\\f\s*"?([^"\\]*\w)`)

// fieldText returns the text of a field without a result: a symbol, or an equation with a reading. It counts other
// equations.
func (b *builder) fieldText(instruction string) string {
	if m := symbolField.FindStringSubmatch(instruction); m != nil {
		code, _ := strconv.ParseUint(m[1], 0, 16)
		var font marking
		if font.font(m[2]); font.on != 0 {
			return string(font.on.drawn(rune(code)))
		}
		return string(rune(code))
	}
	if m := overprint.FindStringSubmatch(instruction); m != nil {
		return m[1] + m[2]
	}
	if strings.HasPrefix(strings.TrimSpace(instruction), "EQ ") {
		b.skip("formulas", 1)
	}
	return ""
}

func (w *wordReader) endField() {
	w.run(&w.line, w.fieldText(w.field.String()), w.mark)
	w.field.Reset()
}

func (w *wordReader) end(name string) {
	switch name {
	case "fldSimple":
		w.endField()
	case "t", "instrText":
		w.inText, w.inField = false, false
	case "r":
		w.mark = w.base
	case "p":
		w.endParagraph()
	case "ddList", "checkBox":
		if i := w.choice.chosen; i >= 0 && i < len(w.choice.entries) {
			w.run(&w.line, w.choice.entries[i], w.mark)
		}
	case "txbxContent":
		if n := len(w.outer) - 1; n >= 0 {
			w.endParagraph()
			w.wordPlace, w.outer = w.outer[n], w.outer[:n]
		}
	case "body", "footnotes", "endnotes":
		w.endList()
	default:
		w.endTablePart(name)
	}
}

func (w *wordReader) endTablePart(name string) {
	switch {
	case name == "tbl":
		if w.tables = max(0, w.tables-1); w.tables > 0 {
			return
		}
		w.cells = nil
		if len(w.outer) > 0 {
			w.deferred = append(w.deferred, w.tableBlocks(&w.table)...)
		} else {
			w.endTable(&w.table)
		}
	case w.tables != 1:
	case name == "tc":
		text := strings.Join(w.cells, " ")
		if w.continued && text == "" {
			w.table.join(true, w.across)
		} else {
			w.table.cell(text, w.across, 1)
		}
		w.cells = nil
	case name == "tr":
		w.endRow(&w.table, w.header)
	}
}

// endParagraph puts the paragraph where it belongs.
func (w *wordReader) endParagraph() {
	text := strings.TrimSpace(w.line.String())
	w.line.Reset()
	number := ""
	if text != "" || !w.removed && w.mark&hidden == 0 {
		number = w.nextNumber()
	}
	w.number = wordNumber{}
	switch {
	case text == "" && w.tables > 0 && number != "":
		w.put("", number)
	case text == "":
	case w.drops:
		w.initial = text
	default:
		w.put(w.initial+text, number)
		w.initial = ""
	}
	if len(w.outer) > 0 || len(w.deferred) == 0 {
		return
	}
	deferred := w.deferred
	w.deferred = nil
	if w.tables > 0 {
		w.cells = append(w.cells, deferred...)
		return
	}
	w.endList()
	for _, text := range deferred {
		w.paragraph(text)
	}
}

func (w *wordReader) put(text, number string) {
	numbered := strings.TrimSpace(number + " " + text)
	switch {
	case w.tables > 0:
		w.cells = append(w.cells, numbered)
		w.room(0)
	case len(w.outer) > 0:
		w.deferred = append(w.deferred, numbered)
	case w.level > 0 && w.level <= 9:
		w.endList()
		w.heading(w.level, number, text)
	case w.deep > 0:
		w.item(w.deep-1, number, text)
	default:
		w.endList()
		w.paragraph(squeeze(text))
	}
}

// wordNumber is the place of a paragraph in a numbered list.
type wordNumber struct {
	id    string // of the list, "0" for none, "" if nothing is said
	level int    // from 0
}

func (n *wordNumber) set(e xml.StartElement) {
	if value := attribute(e, "val"); e.Name.Local == "ilvl" {
		level, _ := strconv.Atoi(value)
		n.level = min(max(level, 0), deepestList-1)
	} else {
		n.id = value
	}
}

// numberOf returns the numbered list of a style. The list and the level may be inherited.
func (w *wordReader) numberOf(style string) (number wordNumber) {
	level, hasLevel := w.linked[style]
	for range deepestStyle {
		own, ok := w.numbered[style]
		if ok && !hasLevel {
			level, hasLevel = own.level, true
		}
		if own.id != "" || w.styles[style] == nil {
			return wordNumber{own.id, level}
		}
		style = w.styles[style].base
	}
	return wordNumber{}
}

// readNumbers reads the definitions of lists (ECMA-376 part 1, 17.9). Lists of one definition count together, unless a
// list starts anew.
func (w *wordReader) readNumbers(part string) {
	definitions, styles, links := map[string]*numbering{}, map[string]*numbering{}, map[string]string{}
	open, shared, id, level := (*numbering)(nil), false, "", 0
	w.archive.elements(part, func(e xml.StartElement) {
		name, value := e.Name.Local, attribute(e, "val")
		switch name {
		case "abstractNum":
			open, shared, id = &numbering{counts: new([deepestList]int)}, false, attribute(e, "abstractNumId")
			definitions[id] = open
		case "styleLink":
			styles[value] = open
		case "numStyleLink":
			links[id] = value
		case "num":
			id, open = attribute(e, "numId"), nil
		case "abstractNumId":
			open, shared = cmp.Or(styles[links[value]], definitions[value]), true
			w.lists[id] = open
		case "lvlOverride", "lvl":
			level, _ = strconv.Atoi(attribute(e, "ilvl"))
			level = min(max(level, 0), deepestList-1)
			if open != nil && shared {
				own := *open
				open, shared, w.lists[id] = &own, false, &own
			}
		}
		if open == nil {
			return
		}
		switch l := &open.levels[level]; name {
		case "lvl":
			*l = numberLevel{format: "1"}
		case "start", "startOverride":
			l.start, _ = strconv.Atoi(value)
			open.anew[level] = open.anew[level] || name == "startOverride"
		case "lvlRestart":
			n, _ := strconv.Atoi(value)
			l.reset = n + 1
		case "isLgl":
			l.legal = isOn(e)
		case "numFmt":
			l.format = formatNamed(value)
		case "lvlText":
			if l.text = value; l.format == "" && !strings.Contains(value, "%") { // the mark of a list
				l.text = ""
			}
		case "pStyle":
			w.linked[value] = level
		}
	})
}

// nextNumber returns the number of the paragraph, "" for none.
func (w *wordReader) nextNumber() string {
	if list := w.lists[w.number.id]; list != nil {
		return list.next(w.number.level)
	}
	return ""
}
