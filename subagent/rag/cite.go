package rag

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
func used(text string) map[int][]string {
	cites := map[int][]string{}
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
		sentence := withoutMarkers(text[:end])
		for n := range numbers {
			cites[n] = append(cites[n], sentence)
		}
		text = text[end:]
	}
	return cites
}

// cite returns the citations of a checked text, ascending by number. A citation quotes the piece of its passage that fits
// best to the sentences that cite it, if they have a word in common.
func (s *scope) cite(text string) []event.Citation {
	list := []event.Citation{}
	cited := used(text)
	for _, n := range slices.Sorted(maps.Keys(cited)) {
		if !s.known(n) {
			continue
		}
		p := s.passages[n].passage
		c := event.Citation{
			N: n, PassageID: p.ID, DocID: p.DocID, Title: p.Title, Source: p.Source, Section: p.Section, Page: p.Page,
		}
		if start, end, shares := bestQuote(p.Text, strings.Join(cited[n], " ")); shares {
			c.Quote, c.Start, c.End = p.Text[start:end], p.Start+start, p.Start+end
		}
		list = append(list, c)
	}
	return list
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
	figures := number.Claims(sentence)
	has := func(p *support) bool {
		return !slices.ContainsFunc(figures, func(n number.Number) bool { found, _ := p.numbers.Has(n); return !found })
	}
	hasFigures := len(figures) > 0
	ownFigures := hasFigures && has(s.passages[n])
	best, most, next := n, 0.0, 0.0
	for o, p := range s.passages {
		if o == n || !has(p.read()) {
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

// markerNumber returns the number in a marker, or a number of no passage.
func markerNumber(digits string) int {
	n, _ := strconv.Atoi(digits) // 0 or the largest number for an error
	return n
}

// maxCitation is the longest quote, in characters.
const maxCitation = 200

// pieceEnd matches the end of a sentence, a paragraph or a table row, with the white space after it.
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

// quoteLength returns how many bytes of a text fit into a quote, preferably cut between words.
func quoteLength(text string) int {
	count := 0
	for i := range text {
		if count++; count > maxCitation {
			if word := strings.LastIndexFunc(text[1:i], unicode.IsSpace); word >= 0 {
				return word + 1
			}
			return i
		}
	}
	return len(text)
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
			switch said := strings.ReplaceAll(strings.ToLower(strings.Trim(m[2], "\"'`")), " ", "_"); said {
			case event.Answered, event.Partial, event.NotFound, event.Underspecified:
				status = said
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
	status, missing := conclusion(string(c.held))
	a.Status, a.Missing, a.Citations = status, append([]string{}, missing...), s.cite(a.Answer)
	a.Flags = append(c.flags, s.unsupported(a.Answer)...)
	conclude(&a)
	return a
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
		a.Answer = nothingFound(strings.Join(a.Missing, " "), true)
	}
}
