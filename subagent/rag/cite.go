package rag

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/event"
	"mneme/memory/textindex"
)

// maxMarkers is how many passages one sentence may cite.
const maxMarkers = 3

// markers is one or more numbers in brackets, in any of the brackets that models
// write. Its digits are those of any script.
var markers = regexp.MustCompile(`[\[【［][ \t\p{Zs}]*(\pN+(?:[ \t\p{Zs}]*[,;，、][ \t\p{Zs}]*\pN+)*)[ \t\p{Zs}]*(?:†[^\[【［\]】］\n]{0,40})?[\]】］]`)

// year is one in brackets: a piece of prose, and a marker only in a run of as many passages.
var year = regexp.MustCompile(`^\[[12][0-9]{3}\]$`)

// codeSpan is code, in which brackets mean something else.
var codeSpan = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]+`")

// sentenceRest is the end of a sentence with the markers and the space behind it.
var sentenceRest = regexp.MustCompile(`(?:[.!?…。]+["»”)]*(?:[ \t]*[\[【［][\pN \t,;]+[\]】］])*(?:\s+|$))|\n+`)

// used are the passages that a checked text cites, with the sentences that do.
func used(text string) map[int]string {
	sentences := map[int][]string{}
	text = codeSpan.ReplaceAllString(text, "`")
	for text != "" {
		end := len(text)
		if stop := sentenceRest.FindStringIndex(text); stop != nil {
			end = stop[1]
		}
		numbers := map[int]bool{}
		for _, m := range markers.FindAllStringSubmatch(text[:end], -1) {
			numbers[markerNumber(m[1])] = true
		}
		if len(numbers) > 0 {
			said := strings.TrimSpace(markers.ReplaceAllString(text[:end], ""))
			for n := range numbers {
				sentences[n] = append(sentences[n], said)
			}
		}
		text = text[end:]
	}
	delete(sentences, 0)
	cites := map[int]string{}
	for n, list := range sentences {
		cites[n] = strings.Join(list, " ")
	}
	return cites
}

// cite are the citations of a checked text, ascending by number, with the quotes
// that its writer gave, where they are ones.
func (s *scope) cite(text string, quotes map[int]string) []event.Citation {
	list := []event.Citation{}
	said := used(text)
	for _, n := range slices.Sorted(maps.Keys(said)) {
		if s.known(n) {
			c, _ := s.passages[n].cite(n, quotes[n], said[n])
			list = append(list, c)
		}
	}
	return list
}

// Bounds of what is told to be another passage's.
const (
	fewTerms  = 4   // below these a sentence says too little
	mostOf    = 0.6 // of a sentence's words are in the passage that it is from
	hardlyAny = 0.2 // are in the one that it cites
)

// right is the passage that a sentence which cites passage n is from: n, or another
// one if that is clear. Either all figures of the sentence are in that one and in no
// other, and not in n, and more of its words too; or most of its words are in that
// one, hardly any in n, and clearly fewer in all others.
func (s *scope) right(sentence string, n int) int {
	if len(s.passages) < 2 {
		return n
	}
	sentence = markers.ReplaceAllString(sentence, " ")
	terms := map[string]bool{}
	for _, t := range textindex.Terms(sentence) {
		terms[t] = true
	}
	if len(terms) < fewTerms {
		return n
	}
	share := func(p *profile) float64 {
		shared := 0
		for t := range terms {
			if p.terms[t] {
				shared++
			}
		}
		return float64(shared) / float64(len(terms))
	}
	own := share(s.profile(n))
	if own > mostOf {
		return n
	}
	hasFigures := len(figures{map[string]bool{}, map[int]bool{}}.unverified(sentence)) > 0
	ownFigures := hasFigures && len(s.profile(n).figures.unverified(sentence)) == 0
	best, most, next := n, 0.0, 0.0
	for o := range s.passages {
		if o == n || hasFigures && len(s.profile(o).figures.unverified(sentence)) > 0 {
			continue
		}
		if got := share(s.profile(o)); got > most {
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

// markerNumber is 0 for what is no number of ours: with a leading zero, too long, or
// of digits that are no decimal ones.
func markerNumber(digits string) int {
	n := 0
	for _, r := range digits {
		if !unicode.Is(unicode.Nd, r) || n == 0 && digit(r) == 0 || n > 1e6 {
			return 0
		}
		n = n*10 + int(digit(r))
	}
	return n
}

// maxCitation is the length of a quote in characters.
const maxCitation = 200

// findQuote finds a quote in a text, white space being equal to any other.
func findQuote(text, quote string) (start, end int, found bool) {
	if quote = strings.Join(strings.Fields(quote), " "); quote == "" {
		return 0, 0, false
	}
	plain, places := foldSpace(text)
	at := strings.Index(plain, quote)
	if at < 0 {
		return 0, 0, false
	}
	_, size := utf8.DecodeLastRuneInString(quote)
	return places[at], places[at+len(quote)-size] + size, true
}

// foldSpace is a text with one space for each run of white space, and where each
// byte of that comes from.
func foldSpace(text string) (plain string, places []int) {
	var b strings.Builder
	space := false
	for i, r := range text {
		if unicode.IsSpace(r) {
			if !space {
				b.WriteByte(' ')
				places = append(places, i)
			}
			space = true
			continue
		}
		space = false
		_, size := utf8.DecodeRuneInString(text[i:])
		b.WriteString(text[i : i+size])
		for k := range size {
			places = append(places, i+k)
		}
	}
	return b.String(), places
}

// pieceEnd is where a sentence, a paragraph or the row of a table ends, with the
// space behind it.
var pieceEnd = regexp.MustCompile(`[.!?…。]["»”)]*\s+|\n\s*\n|\|[ \t]*\n`)

// bestQuote is the place of the piece of a text that shares most words with what
// was said, the first one if none shares any.
func bestQuote(text, said string) (start, end int, shares bool) {
	words := map[string]bool{}
	for _, term := range textindex.Terms(said) {
		words[term] = true
	}
	most := -1
	for at := 0; at < len(text); {
		stop := at + quoteLength(text[at:])
		if m := pieceEnd.FindStringIndex(text[at:stop]); m != nil {
			stop = at + m[1]
		}
		shared := map[string]bool{}
		for _, term := range textindex.Terms(text[at:stop]) {
			if words[term] {
				shared[term] = true
			}
		}
		if len(shared) > most {
			most = len(shared)
			piece := text[at:stop]
			start = at + len(piece) - len(strings.TrimLeftFunc(piece, unicode.IsSpace))
			end = at + len(strings.TrimRightFunc(piece, unicode.IsSpace))
		}
		at = stop
	}
	return start, max(start, end), most > 0
}

// quoteLength is how many bytes of a text fit a quote, cut between words if it can
// be.
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
