package rag

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"mneme/memory/envelope"
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

// sentencesByPassage maps each passage that a checked text cites to the sentences that cite it.
func sentencesByPassage(text string) map[int][]string {
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
	cited := sentencesByPassage(text)
	for _, n := range slices.Sorted(maps.Keys(cited)) {
		if !s.has(n) {
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

// attribute returns the passage that a sentence with a marker of passage n is from. It is n unless another one is clear:
// only that one has all figures of the sentence, and more of its terms. Or it has most of the terms, n has hardly any, and
// all others have clearly fewer.
func (s *scope) attribute(sentence string, n int) int {
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
		return !slices.ContainsFunc(figures, func(n number.Number) bool { ok, _ := p.numbers.Has(n); return !ok })
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

// shared counts the members of both sets.
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

// bestQuote returns the piece of a text that shares most terms with said. shares reports whether it has one.
func bestQuote(text, claim string) (start, end int, shares bool) {
	words := termsOf(claim)
	most := -1
	for pos := 0; pos < len(text); {
		stop := pos + quoteLength(text[pos:])
		if m := pieceEnd.FindStringIndex(text[pos:stop]); m != nil {
			stop = pos + m[1]
		}
		if n := shared(words, termsOf(text[pos:stop])); n > most {
			most = n
			piece := text[pos:stop]
			start = pos + len(piece) - len(strings.TrimLeftFunc(piece, unicode.IsSpace))
			end = pos + len(strings.TrimRightFunc(piece, unicode.IsSpace))
		}
		pos = stop
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

// quotation matches text in quotation marks of any kind, within a line.
var quotation = regexp.MustCompile(
	`(?:^|[\s(\[*_—–-])"([^\s"][^"\n]*[^\s"])"(?:[^\p{L}\p{N}]|$)|“([^“”"\n]+)[”"]|„([^„“”"\n]+)[“”"]|«([^«»\n]+)»`,
)

// From these sizes on, text in quotation marks is a quotation and not a name or a word.
const (
	quoteWords      = 4
	quoteCharacters = 20
)

// quotations returns the quotations of a text, outside of code.
func quotations(text string) (list []string) {
	for line := range strings.SplitSeq(codeSpan.ReplaceAllString(text, "`"), "\n") {
		for _, m := range quotation.FindAllStringSubmatch(line, -1) {
			quote := strings.TrimSpace(withoutMarkers(m[1] + m[2] + m[3] + m[4]))
			if len(strings.Fields(quote)) >= quoteWords || len([]rune(quote)) >= quoteCharacters {
				list = append(list, quote)
			}
		}
	}
	return list
}

// omission matches what stands in a quotation for words that were left out or inserted.
var omission = regexp.MustCompile(`\[[^\]]*\]|\([^)]*removed\)|\.{3,}|…`)

// quoted reports whether every part of a quotation is in one of the texts.
func quoted(quote string, evidence []*support) bool {
	for _, part := range omission.Split(quote, -1) {
		part = strings.Trim(foldQuote(envelope.Fold(part)), " .,;:!?-")
		has := func(e *support) bool { return strings.Contains(e.read().quotable, part) }
		if part != "" && !slices.ContainsFunc(evidence, has) {
			return false
		}
	}
	return true
}

// quoteNoise matches the marks of emphasis and quotation that a quotation may add or lack.
var quoteNoise = regexp.MustCompile("[\"'`*_«»]+")

// foldQuote returns folded text for the search for quotations.
func foldQuote(f envelope.Folding) string {
	text := strings.NewReplacer("–", "-", "—", "-").Replace(quoteNoise.ReplaceAllString(f.Text, ""))
	return strings.Join(strings.Fields(text), " ")
}
