package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Authority says whose words a text is. The authorities have an order: of several that a text is taken from, the lowest
// counts.
type Authority string

// Authorities, the highest first.
const (
	FromUser     Authority = "user"     // the person who posts, in words of their own
	FromAgent    Authority = "agent"    // a model of this service
	FromOwn      Authority = "own"      // a tool of this service, or one that the configuration trusts so
	FromClient   Authority = "client"   // a client's text beside a message, and the description of a tool
	FromDocument Authority = "document" // a document of the tenant's
	FromOutside  Authority = "outside"  // any other tool, and what a person pasted
)

var authorities = []Authority{FromUser, FromAgent, FromOwn, FromClient, FromDocument, FromOutside}

// rank is how far down an authority is; one that is not known is the lowest.
func (a Authority) rank() int {
	if i := slices.Index(authorities, a); i >= 0 {
		return i
	}
	return len(authorities)
}

// LowerThan reports whether a is lower than b.
func (a Authority) LowerThan(b Authority) bool { return a.rank() > b.rank() }

// Foreign reports whether the author of the words has no say in the run: a client beside the message, the author of a
// document or of a tool's result, or an unknown authority.
func (a Authority) Foreign() bool { return a.LowerThan(FromOwn) }

// Origin is the source of a text.
type Origin struct {
	Authority Authority `json:"from,omitempty"`   // whose words it is
	Source    string    `json:"source,omitempty"` // its name for a person: the title and page of a document, a tool; else empty
}

// Pasted is the origin of a text that a person pasted.
var Pasted = Origin{Authority: FromOutside, Source: "a text that the user pasted"}

// MaxSource bounds Origin.Source, in bytes.
const MaxSource = 200

// DisplaySource is the source for a person. It is no String, which every struct that embeds an Origin would have, and print
// itself by.
func (o Origin) DisplaySource() string { return cmp.Or(o.Source, string(o.Authority)) }

// Written is the origin of a message. Of one that was stored without it, it is what its role and its citations tell:
// the user of a subagent is the master.
func (m Message) Written(subagent bool) Origin {
	switch {
	case m.Authority != "":
		return m.Origin
	case m.Role == RoleUser && !subagent:
		return Origin{Authority: FromUser}
	case m.Role == RoleTool:
		return Origin{Authority: FromOutside, Source: m.Name}
	}
	var cited []struct{ Title string }
	if json.Unmarshal(m.Citations, &cited) == nil && len(cited) > 0 {
		return Origin{Authority: FromDocument, Source: Shorten(cited[0].Title, MaxSource)}
	}
	return Origin{Authority: FromAgent}
}

// Span is a part of a text: its first code point, and the one behind its last.
type Span [2]int

// maxSpans bounds the spans of one message.
const maxSpans = 1000

// CheckSpans reports what is wrong with the spans of a text; nil spans are valid.
func CheckSpans(text string, spans []Span) error {
	if len(spans) > maxSpans {
		return fmt.Errorf("has %d spans, at most %d are taken", len(spans), maxSpans)
	}
	size := utf8.RuneCountInString(text)
	for i, s := range spans {
		if s[0] < 0 || s[1] < s[0] || s[1] > size {
			return fmt.Errorf("[%d] is [%d, %d]; the message has %d code points", i, s[0], s[1], size)
		}
	}
	return nil
}

// SpansOf returns the spans of a message inside its last occurrence of a part, relative to that part. If the message does
// not contain the part, all of the part counts as pasted.
func SpansOf(message, part string, spans []Span) []Span {
	i := strings.LastIndex(message, part)
	size, in := utf8.RuneCountInString(part), []Span{}
	switch {
	case spans == nil:
		return nil
	case i < 0:
		return []Span{{0, size}}
	}
	start := utf8.RuneCountInString(message[:i])
	for _, s := range spans {
		if s = (Span{max(s[0]-start, 0), min(s[1]-start, size)}); s[0] < s[1] {
			in = append(in, s)
		}
	}
	return in
}

// Words are the parts of a person's message.
type Words struct {
	Typed  string // certainly the person's own words
	Own    string // Typed, and what may have been pasted
	Pasted string // the words of others
}

// Bounds of a message that counts as typed without the client's spans.
const maxTyped, maxTypedLines = 40, 3

// maxJudged bounds a message that is searched for marks of quoting, in bytes. Without spans, all of a longer one counts
// as pasted.
const maxJudged = 64 << 10

// Own separates a person's own words in a message from those of others. pasted are the client's spans of pasted text, or
// nil. Without spans, marks of quoting decide: code, quoted lines, everything after a line that ends with a colon, separates
// texts or begins a mail, and long quotations. If the rest has more than maxTyped words or maxTypedLines lines, at most the
// shorter of its first and last paragraph is their own. All of a message of more than maxJudged bytes is of others.
func Own(message string, pasted []Span) Words {
	var w Words
	if pasted != nil {
		w.Typed, w.Pasted = cutSpans(message, pasted)
		w.Typed, w.Pasted = unmarked(w.Typed, w.Pasted)
		w.Own = w.Typed
		return w
	}
	if len(message) > maxJudged {
		return Words{Pasted: message}
	}
	message, marked := unmarked(message, "")
	own, theirs := quoted(message)
	var lines []string
	for line := range strings.Lines(own) {
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	keep, last := own, len(lines)-1
	switch {
	case count(own) > maxTyped || len(lines) > maxTypedLines:
		keep = shorterEnd(own)
	case last > 0 && (isQuestion(lines[0]) || aboutText.MatchString(lines[0])):
		keep = lines[0]
	case last > 0 && isQuestion(lines[last]):
		keep = lines[last]
	default:
		if typed := unquoted(own); typed != own && aboutText.MatchString(own) { // which takes longer
			keep = typed
		}
	}
	if keep != own {
		theirs += "\n" + own
	}
	w.Own, w.Pasted = keep, marked+theirs
	if keep == own && theirs == "" && len(lines) == 1 && !aboutText.MatchString(own) {
		w.Typed = unquoted(own)
	}
	return w
}

// cutSpans separates a text into the parts outside and inside some spans. A word that is partly inside counts as inside.
func cutSpans(text string, spans []Span) (outside, inside string) {
	runes := []rune(text)
	in, edges := make([]bool, len(runes)), make([]int, len(runes)+1)
	for _, s := range spans {
		if start, end := max(s[0], 0), min(s[1], len(runes)); start < end {
			edges[start]++
			edges[end]--
		}
	}
	depth := 0
	joined := func(i int) bool { return !unicode.IsSpace(runes[i-1]) && !unicode.IsSpace(runes[i]) }
	for i := range runes {
		depth += edges[i]
		in[i] = depth > 0 || i > 0 && in[i-1] && joined(i)
	}
	for i := len(runes) - 1; i > 0; i-- {
		in[i-1] = in[i-1] || in[i] && joined(i)
	}
	var out, inner strings.Builder
	for i, r := range runes {
		dst, other := &out, &inner
		if in[i] {
			dst, other = &inner, &out
		}
		dst.WriteRune(r)
		if i > 0 && in[i] != in[i-1] { // no two words become one
			other.WriteByte('\n')
		}
	}
	return out.String(), inner.String()
}

// unmarked moves the lines for the files and images of a message to others.
func unmarked(message, others string) (rest, marked string) {
	for _, line := range attachment.FindAllString(message, -1) {
		others += line + "\n"
	}
	return strings.TrimRight(attachment.ReplaceAllString(message, ""), "\n"), others
}

// count is the number of words of a text. Two characters of a script without spaces count as a word.
func count(text string) int {
	return len(strings.Fields(text)) + len(Unspaced.FindAllString(text, -1))/2
}

// shorterEnd is the first or the last paragraph of a text, whichever is clearly shorter; empty if that is too long.
func shorterEnd(text string) string {
	paragraphs := paragraph.Split(strings.TrimSpace(text), -1)
	first, last := paragraphs[0], paragraphs[len(paragraphs)-1]
	short, long := count(first), count(last)
	if short > long {
		first, short, long = last, long, short
	}
	if short == long || short > maxTyped {
		return ""
	}
	return first
}

func isQuestion(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasSuffix(line, "?") || strings.HasSuffix(line, "？")
}

// unquoted returns a line without quotations and without the text after a dash or a colon that names no value.
func unquoted(line string) string {
	if line = doubleQuoted(line); !strings.ContainsAny(line, `"“„‟«‹「『:：{[<-–—|~=`) {
		return line
	}
	line = quotation.ReplaceAllStringFunc(line, func(text string) string {
		if !figure.MatchString(text) && len(strings.Fields(text)) <= 3 {
			return text
		}
		return "\n"
	})
	if loc := markup.FindStringIndex(line); loc != nil {
		line = line[:loc[0]]
	}
	for _, loc := range introduces.FindAllStringIndex(line, -1) {
		if !label.MatchString(line[:loc[1]]) {
			return line[:loc[0]]
		}
	}
	return line
}

// doubleQuoted returns a line with double quotation marks for single ones.
func doubleQuoted(line string) string {
	if !strings.ContainsAny(line, "'’‘") { // matching takes longer
		return line
	}
	return closeQuote.ReplaceAllString(openQuote.ReplaceAllString(line, `$1"`), `"$1`)
}

// quoted parts a message by the marks of quoting.
func quoted(message string) (own, pasted string) {
	var mine, theirs strings.Builder
	fenced, rest := false, false
	mail := len(header.FindAllString(message, 2)) > 1
	for line := range strings.Lines(message) {
		text := strings.TrimSpace(line)
		fence := strings.HasPrefix(text, "```") || strings.HasPrefix(text, "~~~")
		parts := len(text) >= 3 && strings.Trim(text, "-=*_#~ ") == "" || parting.MatchString(text) ||
			mail && header.MatchString(text)
		if fence || fenced || rest || parts || indented(line) || structured.MatchString(text) {
			theirs.WriteString(line)
			fenced, rest = fenced != fence, rest || parts
			continue
		}
		line = doubleQuoted(line)
		line = quotation.ReplaceAllStringFunc(line, func(quoted string) string {
			text := strings.Trim(quoted, quoteMarks)
			if isName := !colon.MatchString(quoted) || !figure.MatchString(text); isName && !isPasted(text) {
				return quoted
			}
			theirs.WriteString(quoted + "\n")
			return " "
		})
		if loc := colon.FindStringIndex(line); loc != nil {
			if tail := line[loc[1]:]; isPasted(tail) {
				theirs.WriteString(tail)
				line, rest = line[:loc[0]], true
			}
		}
		mine.WriteString(line)
		rest = rest || strings.HasSuffix(text, ":") || strings.HasSuffix(text, "：")
	}
	return mine.String(), theirs.String()
}

func indented(line string) bool {
	return strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ")
}

// isPasted reports whether a text in quotation marks or behind a colon is more than a name or an instruction.
func isPasted(text string) bool {
	return len(strings.Fields(text)) > 12 || utf8.RuneCountInString(text) > 80 || sentenceEnd.MatchString(text)
}

const quoteMarks = `"“”„‟«»‹›「」『』: `

var (
	attachment  = regexp.MustCompile(`(?m)^\[(?:file|image)(?:: .*)?\]$`)
	paragraph   = regexp.MustCompile(`\n\s*\n`)
	parting     = regexp.MustCompile(`^[-=_]{3,}.*[-=_]{3,}$|^(?:From|Von|De|От|От кого):\s.*@|^(?:Subject|Betreff|Asunto|Objet|Тема|主题|件名)[:：]\s`)
	header      = regexp.MustCompile(`(?m)^(?:From|To|Cc|Date|Sent|Re|Fwd?|Von|An|Gesendet|De|Para|От|От кого|Кому|Дата|发件人|收件人|差出人)[:：]\s`)
	openQuote   = regexp.MustCompile(`(^|[^\pL\pN])['’‘]`)
	closeQuote  = regexp.MustCompile(`['’‘]([^\pL\pN]|$)`)
	quotation   = regexp.MustCompile(`(?:[:：]\s*)?["“„‟«‹「『][^"“”‟»›」』\n]*["“”‟»›」』]?`)
	figure      = regexp.MustCompile(`@|://|\d\S*\d\S*\d`)
	colon       = regexp.MustCompile(`[:：](?:\s|$|["“„‟«‹「『])`)
	sentenceEnd = regexp.MustCompile(`[.!?]\s+\pL|[。！？].`)
	// Unspaced matches letters of scripts that put no space between words.
	Unspaced = regexp.MustCompile(`[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]`)
	// structured matches lines that programs write: quoted ones, rows of tables, JSON, markup and lines of a log.
	structured = regexp.MustCompile(`^(?:[>|}]|[{\[]\s*(?:["{\[\d]|$)|<[a-zA-Z/!?]|"[^"]*":|.*\t|\W?\d{1,2}[:.]\d{2}\b.*:\s|` +
		`\W?\d{4}-\d{2}-\d{2}[T ]\d|[^\s;,|]+(?:\s*[;|]\s*[^\s;,|]+){2,}$)`)
	markup = regexp.MustCompile(`[{\[]\s*["{]|<[a-zA-Z/!][^\s<>]*[ >]`)
	// introduces matches separators before quoted words, and label matches the name of a value of the person's own.
	introduces = regexp.MustCompile(`[:：](?:\s|$|["“„‟«‹「『])|\s(?:[-–—|~]+|[-=]+>)\s`)
	label      = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:iban|bic|account|konto|card|amount|sum|total|betrag|order|invoice|phone|` +
		`tel|number|no|nr|e-?mail|address|date|to|name|url|link|id|code|сч[её]т|сумма|заказ|почта|телефон|номер)\s*[:：]` + `\s*$`)
	// aboutText matches orders and questions about a text whose beginning is uncertain.
	aboutText = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:translate|summari[sz]e|proofread|rephrase|explain|wrote|writes|says|said|` +
		`what (?:does|do|is|are)|übersetze?|was (?:ist|bedeutet|heißt|will|wollen|meint)|fasse|schreibt|schrieb|sagt|` +
		`перескажи|объясни|что (?:это|значит|хотят|он|она|они)|пишет|пишут|написала?|tradui[st]|résume|explique|traduce|` +
		`explica|qué (?:es|dice|significa))(?:[^\pL]|$)|翻译|总结|什么意思|要約|翻訳`)
)
