package rag

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/event"
	"mneme/memory/number"
)

// maxMarkers bounds the passages that one sentence may cite.
const maxMarkers = 3

// marker matches a marker of a checked text, or a year in brackets.
var marker = regexp.MustCompile(`\[(\d+)\]`)

// year matches a year in brackets, which is prose unless the run has that many passages.
var year = regexp.MustCompile(`^\[[12][0-9]{3}\]$`)

// withoutMarkers returns a checked text without its markers. A year in brackets stays.
func withoutMarkers(text string) string {
	return marker.ReplaceAllStringFunc(text, func(m string) string {
		if year.MatchString(m) {
			return m
		}
		return ""
	})
}

// codeSpan matches code in Markdown, in which brackets mean something else.
var codeSpan = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]+`")

// sentenceRest matches the end of a sentence with the markers and the white space behind it.
var sentenceRest = regexp.MustCompile(`(?:[.!?…。]+["»”)]*(?:[ \t]*\[[\d \t,;]+\])*(?:\s+|$))|\n+`)

// used maps each passage that a checked text cites to the sentences that cite it.
func used(text string) map[int]string {
	sentences := map[int][]string{}
	text = codeSpan.ReplaceAllString(text, "`")
	for text != "" {
		end := len(text)
		if stop := sentenceRest.FindStringIndex(text); stop != nil {
			end = stop[1]
		}
		numbers := map[int]bool{}
		for _, m := range marker.FindAllStringSubmatch(text[:end], -1) {
			numbers[markerNumber(m[1])] = true
		}
		sentence := strings.TrimSpace(withoutMarkers(text[:end]))
		for n := range numbers {
			sentences[n] = append(sentences[n], sentence)
		}
		text = text[end:]
	}
	cites := map[int]string{}
	for n, list := range sentences {
		cites[n] = strings.Join(list, " ")
	}
	return cites
}

// cite returns the citations of a checked text, ascending by number. It uses the writer's quotes that are in their
// passages, and flags the others.
func (s *scope) cite(text string, quotes map[int]string) (list []event.Citation, flags []event.Flag) {
	list = []event.Citation{}
	cited := used(text)
	for _, n := range slices.Sorted(maps.Keys(cited)) {
		if !s.known(n) {
			continue
		}
		c, good := s.passages[n].passage.cite(n, quotes[n], cited[n])
		if list = append(list, c); !good {
			flags = append(flags, event.Flag{Kind: BadQuote, Text: quotes[n]})
		}
	}
	return list, flags
}

// Thresholds for moving a citation to another passage.
const (
	fewTerms  = 4   // a sentence with fewer terms is left alone
	mostOf    = 0.6 // share of a sentence's terms in the passage that it is taken to be from
	hardlyAny = 0.2 // share in the cited passage, at most
)

// right finds the passage that a sentence is from which cites passage n: n, or another one if that
// is clear. It is clear if all figures of the sentence are in the other passage only, together with
// more of its terms; or if most of its terms are in the other passage, hardly any in n, and clearly
// fewer in all others.
func (s *scope) right(sentence string, n int) int {
	if len(s.passages) < 2 {
		return n
	}
	sentence = withoutMarkers(sentence)
	terms := termsOf(sentence)
	if len(terms) < fewTerms {
		return n
	}
	share := func(p *support) float64 { return float64(shared(terms, p.terms)) / float64(len(terms)) }
	own := share(s.passages[n].read())
	if own > mostOf {
		return n
	}
	hasFigures := len(number.Set{}.Missing(sentence)) > 0
	ownFigures := hasFigures && len(s.passages[n].numbers.Missing(sentence)) == 0
	best, most, next := n, 0.0, 0.0
	for o, p := range s.passages {
		if o == n || hasFigures && len(p.read().numbers.Missing(sentence)) > 0 {
			continue
		}
		if got := share(p.read()); got > most {
			best, most, next = o, got, most
		} else {
			next = max(next, got)
		}
	}
	switch {
	case hasFigures && !ownFigures && most >= mostOf/2 && most >= 2*own && next < most/2:
		return best
	case !ownFigures && most >= mostOf && own <= hardlyAny && next <= most/2:
		return best
	}
	return n
}

// shared counts what two sets have in common.
func shared(a, b map[string]bool) int {
	n := 0
	for t := range a {
		if b[t] {
			n++
		}
	}
	return n
}

// markerNumber parses a number; it returns 0 for one that no marker of ours has: with a leading zero or a point, or too
// long.
func markerNumber(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil || strings.HasPrefix(digits, "0") {
		return 0
	}
	return n
}

// maxCitation is the longest quote, in characters.
const maxCitation = 200

// findQuote returns the place of a quote in a text. All white space is equal.
func findQuote(text, quote string) (start, end int, found bool) {
	words := strings.Fields(quote)
	if len(words) == 0 || utf8.RuneCountInString(strings.Join(words, " ")) > maxCitation {
		return 0, 0, false
	}
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	pattern, err := regexp.Compile(strings.Join(words, `[\s\v\x{85}\pZ]+`))
	if err != nil {
		return 0, 0, false
	}
	at := pattern.FindStringIndex(text)
	if at == nil {
		return 0, 0, false
	}
	return at[0], at[1], true
}

// pieceEnd matches the end of a sentence, a paragraph or a table row, with the white space behind
// it.
var pieceEnd = regexp.MustCompile(`[.!?…。]["»”)]*\s+|\n\s*\n|\|[ \t]*\n`)

// bestQuote finds the piece of a text that shares most terms with what was said; shares is false if
// none does.
func bestQuote(text, said string) (start, end int, shares bool) {
	words := termsOf(said)
	most := -1
	for at := 0; at < len(text); {
		stop := at + quoteLength(text[at:])
		if m := pieceEnd.FindStringIndex(text[at:stop]); m != nil {
			stop = at + m[1]
		}
		if n := shared(words, termsOf(text[at:stop])); n > most {
			most = n
			piece := text[at:stop]
			start = at + len(piece) - len(strings.TrimLeftFunc(piece, unicode.IsSpace))
			end = at + len(strings.TrimRightFunc(piece, unicode.IsSpace))
		}
		at = stop
	}
	return start, max(start, end), most > 0
}

// quoteLength is how many bytes of a text fit into a quote, preferably cut between words.
func quoteLength(text string) int {
	count, word := 0, 0
	for i, r := range text {
		if count == maxCitation {
			if word > 0 {
				return word
			}
			return i
		}
		if unicode.IsSpace(r) && i > 0 {
			word = i
		}
		count++
	}
	return len(text)
}

// Kinds of event.Flag: what the check of an answer finds wrong.
const (
	UnknownMarker = "unknown_marker" // dropped: no passage has the number
	ManyMarkers   = "many_markers"   // dropped: the sentence has three others
	Unverified    = "unverified"     // a number or date that no cited passage has
	BadQuote      = "bad_quote"      // it is not in the passage, or too long for a citation
	Misattributed = "misattributed"  // replaced: the sentence is clearly from another passage
	RemovedLink   = "removed_link"   // an address that is not a passage's source
	Uncited       = "uncited"        // it says that it answers, but cites nothing
)

// draft is an answer as the model gave it.
type draft struct {
	text    string
	status  string // "" if it says none
	missing []string
	quotes  map[int]string
}

var (
	statusLine  = regexp.MustCompile(`(?i)^[\s*_>#-]*status[\s*_]*[:=][\s*_"']*(.*?)[\s*_"'.]*$`)
	missingLine = regexp.MustCompile(`(?i)^[\s*_>#-]*missing[\s*_]*[:=][\s*_]*(.*?)\s*$`)
	fence       = regexp.MustCompile("(?s)^```(?:json)?\\s*(\\{.*\\})\\s*```$")
)

// readDraft reads what a model answered: a text that ends with lines for status and
// missing, or the JSON of an event.Answer.
func readDraft(response string) draft {
	response = strings.TrimSpace(response)
	if d, ok := readJSON(response); ok {
		return d
	}
	d := draft{text: response}
	for {
		rest, line := "", d.text
		if at := strings.LastIndexByte(d.text, '\n'); at >= 0 {
			rest, line = d.text[:at], d.text[at+1:]
		}
		if m := statusLine.FindStringSubmatch(line); m != nil && d.status == "" {
			d.status = status(strings.ReplaceAll(strings.ToLower(m[1]), " ", "_"))
		} else if m := missingLine.FindStringSubmatch(line); m != nil {
			d.missing = append(list(m[1]), d.missing...)
		} else {
			return d
		}
		d.text = strings.TrimSpace(rest)
	}
}

// status is a known one, or none.
func status(said string) string {
	switch said {
	case event.Answered, event.Partial, event.NotFound, event.Underspecified:
		return said
	}
	return ""
}

func readJSON(response string) (draft, bool) {
	if m := fence.FindStringSubmatch(response); m != nil {
		response = m[1]
	}
	var a struct {
		Status    string  `json:"status"`
		Answer    *string `json:"answer"`
		Citations []struct {
			N     int    `json:"n"`
			Quote string `json:"quote"`
		} `json:"citations"`
		Missing []string `json:"missing"`
	}
	if !strings.HasPrefix(response, "{") || json.Unmarshal([]byte(response), &a) != nil || a.Answer == nil {
		return draft{}, false
	}
	d := draft{text: strings.TrimSpace(*a.Answer), missing: a.Missing, quotes: map[int]string{}}
	d.status = status(a.Status)
	for _, c := range a.Citations {
		d.quotes[c.N] = c.Quote
	}
	return d, true
}

// list are the parts of a line that names several things.
func list(line string) []string {
	var parts []string
	for p := range strings.SplitSeq(line, ";") {
		p = strings.TrimSpace(p)
		if low := strings.ToLower(strings.Trim(p, ".-–— ")); low != "" && low != "none" && low != "nothing" && low != "нет" {
			parts = append(parts, p)
		}
	}
	return parts
}

// noDocuments is the answer when there are none that could be searched.
func noDocuments(task string) string {
	if russian(task) {
		return "Документов, в которых мог бы быть ответ, нет."
	}
	return "There are no documents that could answer this."
}

// notFound is the answer when there is nothing to answer from.
func notFound(task string) string {
	if russian(task) {
		return "В документах нет ответа на этот вопрос."
	}
	return "The documents do not answer this."
}

// check makes a checked answer of what a model responded with; s is what it may rest
// on. unsupported are those of its flags that readers are told.
func check(response string, s *scope) (a event.Answer, unsupported []event.Flag) {
	d := readDraft(response)
	a = event.Answer{Status: d.status, Missing: []string{}}
	checked := func(text string) string {
		c := newChecker(s)
		c.strict = true
		text = strings.TrimSpace(c.write(text) + c.close(false))
		a.Flags = append(a.Flags, c.flags...)
		return text
	}
	a.Answer = checked(d.text)
	for _, part := range d.missing {
		if part = checked(part); part != "" {
			a.Missing = append(a.Missing, part)
		}
	}
	citations, flags := s.cite(a.Answer, d.quotes)
	unsupported = s.unsupported(a.Answer, used(a.Answer))
	a.Citations, a.Flags = citations, slices.Concat(a.Flags, flags, unsupported)
	conclude(&a)
	return a, unsupported
}

// conclude gives a status that fits the answer: one that cites nothing rests on
// nothing.
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
	if a.Answer == "" {
		a.Answer = notFound(strings.Join(a.Missing, " "))
	}
}

// cite is the citation of a passage with the quote that the model gave, if it is
// one, or else with the piece that fits best what was said; without one if it
// shares no word with that.
func (p Passage) cite(n int, quote, said string) (c event.Citation, good bool) {
	start, end, found := findQuote(p.Text, quote)
	good = quote == "" || found && len([]rune(p.Text[start:end])) <= maxCitation
	c = event.Citation{
		N: n, PassageID: p.ID, DocID: p.DocID, Title: p.Title, Source: p.Source, Section: p.Section, Page: p.Page,
	}
	if quote == "" || !good {
		if start, end, found = bestQuote(p.Text, said+" "+quote); !found {
			return c, good
		}
	}
	c.Quote, c.Start, c.End = p.Text[start:end], p.Start+start, p.Start+end
	return c, good
}
