package rag

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/envelope"
	"mneme/memory/event"
)

// checker checks an answer while it streams, in pieces of any size. Its output does not depend on the size of the pieces.
// It holds back a sentence, a line or a piece of code, and never changes text that it has passed on. If the model was given
// no passage, it only makes text of images. It is not safe for concurrent use.
type checker struct {
	scope  *scope
	screen screen
	flags  []event.Flag
	out    strings.Builder // everything that was passed on

	strict bool // there are passages to check against, or there should be

	unit    []byte // text that is not checked yet; at most a line
	fenced  bool   // the current line is in a block of code
	code    bool   // the unit that is checked is code
	inner   bool   // the unit does not begin a line
	skip    bool   // the current line is left out
	tail    bool   // the current line is a machine line, unless something follows
	pending []byte // white space and machine lines that are passed on only if something follows
}

func newChecker(s *scope) *checker { return &checker{scope: s, strict: len(s.passages) > 0} }

func (c *checker) flag(kind, text string) {
	c.flags = append(c.flags, event.Flag{Kind: kind, Text: text})
}

// write takes the next piece and returns what may be shown.
func (c *checker) write(text string) string {
	start := c.out.Len()
	c.take(c.screen.pass(text, false))
	return c.out.String()[start:]
}

// close checks and returns the rest. It adds notes to a complete answer.
func (c *checker) close(complete bool) string {
	start := c.out.Len()
	c.take(c.screen.pass("", true))
	c.cut()
	note, lines := "", len(bytes.TrimSpace(c.pending)) > 0
	switch {
	case complete && strings.TrimSpace(c.out.String()) == "" && (len(c.flags) > 0 || lines):
		c.out.WriteString(nothingLeft)
	case complete && c.strict:
		text := c.out.String()
		c.flags = append(c.flags, c.scope.unsupported(text)...)
		note = notes(text, c.flags)
	}
	if !lines && note == "" {
		c.out.Write(c.pending)
	}
	c.out.WriteString(note)
	return c.out.String()[start:]
}

// nothingLeft takes the place of an answer from which everything was removed.
const nothingLeft = "(nothing of this answer can be shown)"

// noteHeads begin the notes after an answer, in English and in Russian.
var noteHeads = map[string][2]string{
	notAnswered: {"Not in the documents: ", "В документах нет: "},
	Unverified:  {"Not in the cited passages, please check: ", "Нет в указанных фрагментах, проверьте: "},
	BadQuote:    {"Not word for word in the cited passages: ", "Не дословно в указанных фрагментах: "},
}

// notAnswered is the kind of the parts of a question that the documents do not answer. No event has such flags.
const notAnswered = "not_answered"

// notes returns the notes that name what flags say, in the language of the text.
func notes(text string, flags []event.Flag) (note string) {
	language := 0
	if russian(text) {
		language = 1
	}
	byKind := map[string][]string{}
	for _, f := range flags {
		if f.Kind == BadQuote {
			f.Text = "“" + f.Text + "”"
		}
		byKind[f.Kind] = append(byKind[f.Kind], f.Text)
	}
	for _, kind := range []string{notAnswered, Unverified, BadQuote} {
		if byKind[kind] != nil {
			note += "\n\n" + noteHeads[kind][language] + strings.Join(byKind[kind], ", ") + "."
		}
	}
	return note
}

func russian(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) })
}

// take receives the text that passed the screen, and cuts it into units: sentences and lines. A sentence ends with its
// punctuation, white space, and then anything but a marker, which belongs to the sentence before it. So a unit is
// complete when the next one begins.
func (c *checker) take(text string) {
	if !c.strict {
		c.out.WriteString(text)
		return
	}
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		if !unicode.IsSpace(r) && !strings.ContainsRune("[【［&\\%`", r) && c.sentenceDone() {
			c.cut()
		}
		c.unit, text = append(c.unit, text[:size]...), text[size:]
		if r == '\n' {
			c.cut()
		}
	}
}

// markersAtEnd matches the markers at the end of a sentence.
var markersAtEnd = regexp.MustCompile(`(?:\s*[\[【［][\d \t,;]+[\]】］])+$`)

// sentenceDone reports whether the unit is a sentence with white space after it.
func (c *checker) sentenceDone() bool {
	body := bytes.TrimRightFunc(c.unit, unicode.IsSpace)
	if len(body) == len(c.unit) || c.fenced || bytes.Count(body, []byte("`"))%2 > 0 {
		return false
	}
	if last, _ := utf8.DecodeLastRune(body); strings.ContainsRune("]】］", last) {
		body = markersAtEnd.ReplaceAll(body, nil)
	}
	last, _ := utf8.DecodeLastRune(bytes.TrimRight(body, "\"»”’')*_"))
	return strings.ContainsRune(".!?…。", last)
}

// fenceLine is a line that opens or closes a block of code.
var fenceLine = regexp.MustCompile("^[ \t>*+.)0-9-]*```[^`]*$")

// footnote is the definition of a footnote. It is left out, because the citations say the same.
var footnote = regexp.MustCompile(`^[ \t>]*\[\^\s*\d+\s*\]\s*:`)

// cut checks the complete unit.
func (c *checker) cut() {
	if len(c.unit) == 0 {
		return
	}
	text, lineStart := string(c.unit), !c.inner
	c.unit, c.inner = c.unit[:0], !strings.HasSuffix(text, "\n")
	fence := lineStart && fenceLine.MatchString(text)
	c.code = fence || c.fenced
	c.fenced = fence != c.fenced
	if lineStart {
		f := envelope.Fold(text).Text
		span := codeSpan.FindStringIndex(text)
		plain := !c.code && (span == nil || span[0] > 0)
		c.tail = plain && machineLine.MatchString(f)
		c.skip = plain && (footnote.MatchString(f) || note(text))
	}
	if c.skip {
		return
	}
	c.show(c.mend(text))
}

// note reports whether a line is a note of an earlier answer, which this answer's own notes
// replace.
func note(line string) bool {
	for _, heads := range noteHeads {
		if strings.HasPrefix(line, heads[0]) || strings.HasPrefix(line, heads[1]) {
			return true
		}
	}
	return false
}

// show passes on a checked piece. White space, and lines that may be machine lines, wait until
// something follows them.
func (c *checker) show(text string) {
	body := strings.TrimRightFunc(text, unicode.IsSpace)
	if c.tail || body == "" {
		c.pending = append(c.pending, text...)
		return
	}
	c.out.Write(c.pending)
	c.out.WriteString(body)
	c.pending = append(c.pending[:0], text[len(body):]...)
}

// mend corrects the addresses and the markers of a unit. Each correction may form a new marker or address, so it repeats.
func (c *checker) mend(text string) string {
	for range maxRounds {
		f := envelope.Fold(text)
		changes := c.links(text, f)
		if len(changes) == 0 {
			changes = c.markers(text, f)
		}
		if len(changes) == 0 {
			return text
		}
		text = envelope.Splice(text, changes)
	}
	return strings.NewReplacer("[", "(", "【", "(", "［", "(", "&", "+").Replace(text)
}

// maxRounds bounds the corrections of a unit; after it brackets are replaced.
const maxRounds = 40

// foldedMarker is a marker in normalised text: one or more numbers, or ranges of them, in brackets
// of any kind. Of no passage are numbers below 0 and those with a fraction.
var foldedMarker = regexp.MustCompile(`\\?\[\s*(?:n\s*=\s*)?([-–—]\d+|\d+\.\d+|[\^#]?\d+(?:` + separator +
	`[\^#]?\d+)*)\s*(?:†[^\[\]\n]{0,40})?\s*\\?\]`)

const separator = `\s*(?:[,;、&+]|-|–|—|\.{2,3}|\band\b|\bи\b|\bto\b)\s*`

var markerPart = regexp.MustCompile(`(` + separator + `)?[\^#]?(\d+(?:\.\d+)?)`)

// markers returns the changes after which every marker stands for a passage, a unit has at most maxMarkers of them, and
// each is written as [n].
func (c *checker) markers(text string, f envelope.Folding) (changes []envelope.Change) {
	if c.code || !strings.Contains(f.Text, "[") {
		return nil
	}
	code := codeSpan.FindAllStringIndex(text, -1)
	var cites []int
	var places [][2]int // of the markers
	for _, m := range foldedMarker.FindAllStringSubmatchIndex(f.Text, -1) {
		start, end := f.Start[m[0]], f.End[m[1]-1]
		inside := f.Text[m[2]:m[3]]
		if slices.ContainsFunc(code, func(place []int) bool { return start < place[1] && end > place[0] }) ||
			year.MatchString(text[start:end]) && !c.scope.has(markerNumber(inside)) {
			continue
		}
		marks := ""
		for _, n := range c.numbers(inside) {
			if !slices.Contains(cites, n) && len(cites) == maxMarkers {
				c.flag(ManyMarkers, strconv.Itoa(n))
				continue
			}
			if !slices.Contains(cites, n) {
				cites = append(cites, n)
			}
			if mark := "[" + strconv.Itoa(n) + "]"; !strings.Contains(marks, mark) {
				marks += mark
			}
		}
		places = append(places, [2]int{start, end})
		if strings.HasSuffix(f.Text[:m[0]], "!") && marks != "" {
			marks = " " + marks // else it reads as an image
		}
		if marks == "" {
			changes = append(changes, dropped(text, start, end))
		} else if marks != text[start:end] {
			changes = append(changes, envelope.Change{Start: start, End: end, Text: marks})
		}
	}
	if len(cites) != 1 || len(changes) > 0 {
		return changes
	}
	if source := c.scope.attribute(text, cites[0]); source != cites[0] {
		c.flag(Misattributed, strconv.Itoa(cites[0]))
		for _, m := range places {
			changes = append(changes, envelope.Change{Start: m[0], End: m[1], Text: "[" + strconv.Itoa(source) + "]"})
		}
	}
	return changes
}

// numbers returns the passages that a marker names.
func (c *checker) numbers(inside string) (list []int) {
	last := 0
	for i, m := range markerPart.FindAllStringSubmatch(inside, -1) {
		n := markerNumber(m[2])
		if i == 0 && m[1] != "" {
			n, m[2] = 0, m[0]
		}
		if sep := strings.TrimSpace(m[1]); last > 0 && n > last && sep != "" && strings.Contains("-–—...to", sep) {
			for i := last + 1; i < min(n, last+maxMarkers); i++ {
				if c.scope.has(i) {
					list = append(list, i)
				}
			}
		}
		if last = n; n == 0 || !c.scope.has(n) {
			c.flag(UnknownMarker, m[2])
			continue
		}
		list = append(list, n)
	}
	return list
}

// dropped removes a marker so that the text around it does not join.
func dropped(text string, start, end int) envelope.Change {
	previous, _ := utf8.DecodeLastRuneInString(text[:start])
	next, _ := utf8.DecodeRuneInString(text[end:])
	opens := strings.TrimRight(envelope.Fold(text[max(0, start-envelope.MaxEscape):start]).Text, " /\t\n")
	switch {
	case strings.HasSuffix(opens, "<"): // together with what follows it could become an element
		return envelope.Change{Start: start, End: end, Text: "()"}
	case end == len(text) || unicode.IsSpace(next) || strings.ContainsRune(".,;:!?)»”\"'…*_|", next):
		return envelope.Change{Start: len(strings.TrimRight(text[:start], " ")), End: end, Text: ""}
	case start == 0 || unicode.IsSpace(previous), previous == ']' && next == '[':
		return envelope.Change{Start: start, End: end, Text: ""}
	}
	return envelope.Change{Start: start, End: end, Text: " "}
}

// Kinds of event.Flag: what the check of an answer finds wrong.
const (
	UnknownMarker = "unknown_marker" // dropped: no passage has the number
	ManyMarkers   = "many_markers"   // dropped: the sentence has three others
	Unverified    = "unverified"     // a number or date that no cited passage has
	BadQuote      = "bad_quote"      // a quotation that no cited passage has
	Misattributed = "misattributed"  // replaced: the sentence is clearly from another passage
	RemovedLink   = "removed_link"   // an address that is not a passage's source
	Uncited       = "uncited"        // it says that it answers, but cites nothing
)

// machineLine matches a line in which a model tells the status of its answer, see SystemRule.
var machineLine = regexp.MustCompile(`(?i)^[\s*_>#\x60-]*(status|missing)[\s*_\x60"]*[:=][\s*_]*(.*?)[\s*_.]*$`)

// conclusion reads the machine lines at the end of an answer.
func conclusion(lines string) (status string, missing []string) {
	for line := range strings.Lines(lines) {
		switch m := machineLine.FindStringSubmatch(line); {
		case m == nil:
		case strings.EqualFold(m[1], "missing"):
			missing = append(missing, parts(m[2])...)
		default:
			switch value := strings.ReplaceAll(strings.ToLower(strings.Trim(m[2], "\"'`")), " ", "_"); value {
			case event.Answered, event.Partial, event.NotFound, event.Underspecified:
				status = value
			}
		}
	}
	return status, missing
}

// parts returns the parts of a line that names several things.
func parts(line string) (list []string) {
	for p := range strings.SplitSeq(line, ";") {
		p = strings.TrimSpace(p)
		if low := strings.ToLower(strings.Trim(p, ".-–— ")); low != "" && low != "none" && low != "nothing" && low != "нет" {
			list = append(list, p)
		}
	}
	return list
}

// nothingFound returns the answer to a task if the documents have none, or if there are no documents.
func nothingFound(task string, documents bool) string {
	switch inRussian := russian(task); {
	case inRussian && documents:
		return "В документах нет ответа на этот вопрос."
	case inRussian:
		return "Документов, в которых мог бы быть ответ, нет."
	case documents:
		return "The documents do not answer this."
	}
	return "There are no documents that could answer this."
}

// check returns the checked answer of a response that rests on s.
func check(response string, s *scope) (a event.Answer) {
	c := newChecker(s)
	c.strict = true
	a.Answer = strings.TrimSpace(c.write(strings.TrimSpace(response)) + c.close(false))
	status, missing := conclusion(string(c.pending))
	a.Status, a.Missing, a.Citations = status, append([]string{}, missing...), s.cite(a.Answer)
	a.Flags = append(c.flags, s.unsupported(a.Answer)...)
	conclude(&a)
	return a
}

// conclude sets a status that fits the answer. An answer without citations is not from the documents.
func conclude(a *event.Answer) {
	cites := len(a.Citations) > 0
	switch {
	case a.Status == event.Underspecified, a.Status == event.NotFound:
	case !cites && strings.HasSuffix(strings.TrimRight(a.Answer, " \n*_\"»”"), "?"):
		a.Status = event.Underspecified
	case !cites:
		if a.Status != "" && a.Answer != "" {
			a.Flags = append(a.Flags, event.Flag{Kind: Uncited, Text: a.Status})
		}
		a.Status = event.NotFound
	case a.Status == "" && len(a.Missing) > 0:
		a.Status = event.Partial
	case a.Status == "":
		a.Status = event.Answered
	}
	a.Answer = cmp.Or(a.Answer, nothingFound(strings.Join(a.Missing, " "), true))
}
