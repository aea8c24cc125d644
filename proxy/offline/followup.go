package offline

import (
	"slices"
	"strings"
	"unicode"
)

// ellipses open a question that is complete only with the one before it: "And the tower room?", «А полный?».
var ellipses = phrases(`and|and for|and what about|and how about|what about|how about|but|but what about|
	а|и|а для|а у|а как насчет|как насчет|а что насчет|что насчет|а если`)

// maxEllipsis bounds an elliptical question, in words behind its opening.
const maxEllipsis = 6

// isElliptical says whether a question names what it is about and does not say what is asked of it.
func isElliptical(s string) bool {
	toks := tokenize(s)
	n := longestPhrase(toks, ellipses)
	rest := toks[n:]
	if len(rest) == 0 || len(rest) > maxEllipsis || n == 0 && len(rest) > 3 || !strings.HasSuffix(strings.TrimSpace(s), "?") {
		return false
	}
	return !slices.ContainsFunc(rest, func(t token) bool {
		return interrogatives[t.low] || auxiliaries[t.low] || selfWords[t.low] || pronouns[t.low]
	})
}

// complete gives an elliptical question what it leaves out: the words of the question before it, but for what that
// one was about, in whose place its own words stand. They count most, and an answer must have them.
func (q query) complete(text string, before []queryTerm) query {
	if len(before) == 0 || len(q.terms) == 0 || !isElliptical(text) {
		return q
	}
	own := make([]queryTerm, 0, len(q.terms)+len(before))
	for _, t := range q.terms {
		own = append(own, queryTerm{key: t.key, weight: 2, required: true})
	}
	for i, t := range before {
		// "the ferry ticket" gives way to "a museum ticket" as a whole.
		replaced := i+1 < len(before) && q.asksFor(before[i+1].key)
		if !t.required && !replaced && !q.asksFor(t.key) {
			own = append(own, queryTerm{key: t.key, weight: 0.5, category: t.category})
		}
	}
	q.terms = own
	return q
}

// piece is a sentence of a passage, a heading in it or a line of code.
type piece struct {
	text    string
	heading bool
}

// aside says whether a piece says little by itself: a heading, or what looks like code.
func (p piece) aside() bool {
	return p.heading || strings.ContainsAny(p.text[:1], "{[<$#\"") && strings.ContainsAny(p.text[len(p.text)-1:], "{[(,;\\}])>")
}

// maxHeading bounds a heading, in words.
const maxHeading = 10

// piecesOf cuts the text of a passage. A heading is a short line between blank ones that ends like no sentence, or the
// first row of a table, whose rows are a piece each.
func piecesOf(text string) []piece {
	var out []piece
	lines := strings.Split(text, "\n")
	var prose []string
	flush := func() {
		for _, s := range sentences(strings.Join(prose, "\n")) {
			out = append(out, piece{text: s})
		}
		prose = nil
	}
	for i, line := range lines {
		switch trimmed := strings.TrimSpace(line); {
		case isTag(trimmed): // around the passage, not of it
		case isRow(trimmed):
			flush()
			if row := readRow(trimmed); row != "" {
				out = append(out, piece{row, i == 0 || !isRow(strings.TrimSpace(lines[i-1]))})
			}
		case isHeading(trimmed) && isBlank(lines, i-1) && i+1 < len(lines) && isBlank(lines, i+1):
			flush()
			out = append(out, piece{trimmed, true})
		default:
			prose = append(prose, line)
		}
	}
	flush()
	return out
}

// pointsBack says whether a sentence speaks of something by a pronoun only.
func pointsBack(s string) bool {
	return slices.ContainsFunc(tokenize(s), func(t token) bool { return thirdWords[t.low] || t.low == "it" })
}

func isTag(line string) bool { return strings.HasPrefix(line, "<") && strings.HasSuffix(line, ">") }

func isRow(line string) bool {
	return len(line) > 1 && strings.HasPrefix(line, "|") && strings.HasSuffix(line, "|")
}

// readRow gives the cells of a row that say something.
func readRow(line string) string {
	var cells []string
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		if cell = strings.TrimSpace(cell); strings.IndexFunc(cell, isWordRune) >= 0 {
			cells = append(cells, cell)
		}
	}
	return strings.Join(cells, " – ")
}

func isBlank(lines []string, i int) bool {
	return i < 0 || i >= len(lines) || strings.TrimSpace(lines[i]) == "" || isTag(strings.TrimSpace(lines[i]))
}

func isHeading(line string) bool {
	if line == "" || strings.ContainsRune("-*•–—", []rune(line)[0]) {
		return false
	}
	last := []rune(line)[len([]rune(line))-1]
	return (unicode.IsLetter(last) || unicode.IsDigit(last) || last == ')') && len(tokenize(line)) <= maxHeading
}
