package rag

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/subagent/rag/index"
)

// maxMarkers is how many passages one sentence may cite.
const maxMarkers = 3

// markers is one or more numbers in brackets, in any of the brackets that models
// write. Its digits are those of any script.
var markers = regexp.MustCompile(`[\[【［][ \t\p{Zs}]*(\pN+(?:[ \t\p{Zs}]*[,;，、][ \t\p{Zs}]*\pN+)*)[ \t\p{Zs}]*(?:†[^\]】］\n]{0,40})?[\]】］]`)

// codeSpan is code, in which brackets mean something else.
var codeSpan = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]+`")

// sentenceRest is the end of a sentence with the markers and the space behind it.
var sentenceRest = regexp.MustCompile(`(?:[.!?…。]+["»”)]*(?:[ \t]*[\[【［][\pN \t,;]+[\]】］])*(?:\s+|$))|\n+`)

// cited is an answer whose markers all mean something.
type cited struct {
	text  string
	used  map[int]string // number → the sentences that cite it
	flags []Flag
}

// checkMarkers drops the markers that stand for no passage, known says which do,
// and those above maxMarkers in a sentence. The others keep their number.
func checkMarkers(text string, known func(n int) bool) cited {
	c := cited{text: text}
	for before := -1; len(c.flags) != before; { // what is left may make a marker together
		before = len(c.flags)
		c.used = map[int]string{}
		c.text = c.pass(c.text, known)
	}
	return c
}

func (c *cited) pass(text string, known func(n int) bool) string {
	var out strings.Builder
	for text != "" {
		end := len(text)
		if code := codeSpan.FindStringIndex(text); code != nil && code[0] == 0 {
			out.WriteString(text[:code[1]])
			text = text[code[1]:]
			continue
		} else if code != nil {
			end = code[0]
		}
		if stop := sentenceRest.FindStringIndex(text[:end]); stop != nil {
			end = stop[1]
		}
		c.sentence(&out, text[:end], known)
		text = text[end:]
	}
	return out.String()
}

func (c *cited) sentence(out *strings.Builder, sentence string, known func(n int) bool) {
	var used []int
	at := 0
	for _, m := range markers.FindAllStringSubmatchIndex(sentence, -1) {
		kept := ""
		for _, digits := range strings.FieldsFunc(sentence[m[2]:m[3]], func(r rune) bool { return !unicode.IsNumber(r) }) {
			n := markerNumber(digits)
			switch {
			case n == 0 || !known(n):
				c.flag(UnknownMarker, digits)
			case !slices.Contains(used, n) && len(used) == maxMarkers:
				c.flag(ManyMarkers, digits)
			default:
				if !slices.Contains(used, n) {
					used = append(used, n)
				}
				kept += "[" + strconv.Itoa(n) + "]"
			}
		}
		before := sentence[at:m[0]]
		if kept == "" {
			before = strings.TrimRight(before, " ")
		}
		out.WriteString(before)
		out.WriteString(kept)
		at = m[1]
	}
	out.WriteString(sentence[at:])
	for _, n := range used {
		c.used[n] = strings.TrimSpace(c.used[n] + " " + markers.ReplaceAllString(sentence, ""))
	}
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

func (c *cited) flag(kind FlagKind, text string) { c.flags = append(c.flags, Flag{kind, text}) }

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
// was said.
func bestQuote(text, said string) (start, end int) {
	words := map[string]bool{}
	for _, term := range index.Terms(said) {
		words[term] = true
	}
	most := -1
	for at := 0; at < len(text); {
		stop := at + quoteLength(text[at:])
		if m := pieceEnd.FindStringIndex(text[at:stop]); m != nil {
			stop = at + m[1]
		}
		shared := map[string]bool{}
		for _, term := range index.Terms(text[at:stop]) {
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
	return start, max(start, end)
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
