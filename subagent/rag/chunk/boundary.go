package chunk

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/textindex"
)

// rank says how good a place is to cut at.
type rank int

const (
	never    rank = iota // before white space or a mark that belongs to the letter before it
	inWord               // between two letters
	word                 // before a word
	line                 // before a line
	sentence             // before a sentence or a list's item
	paragraph
)

// cut is where a passage that starts at text.Start should end: about want
// characters on and at most limit. In the last part of what it may take, the end
// of a paragraph is better than that of a sentence, a line, a word. A code block
// or table that fits is not cut: the passage ends before it if it must.
func (s *splitter) cut(text Span, want, limit int) int {
	best, bestRank, bestFar := 0, never, 0 // in the last part
	early := 0                             // the last sentence's end before that part
	rough, hard := 0, 0                    // the last places before want, or else the first: at a word; anywhere
	count := 0                             // characters so far
	for i := range s.doc.Text[text.Start:text.End] {
		if count > limit {
			break
		}
		far := max(count-want, want-count)
		count++
		i += text.Start
		r, fits := s.rankIn(i)
		if r == never || i == text.Start {
			continue
		}
		if count <= want || hard == 0 {
			hard = i
		}
		if r == inWord {
			continue
		}
		if count <= want || rough == 0 {
			rough = i
		}
		switch {
		case fits:
		case count <= want*3/5:
			if r >= sentence {
				early = i
			}
		case r > bestRank || r == bestRank && far <= bestFar:
			best, bestRank, bestFar = i, r, far
		}
	}
	if count <= limit {
		return text.End
	}
	return cmp.Or(best, early, rough, hard, s.advance(text, limit))
}

// advance is the place n characters behind the start of text.
func (s *splitter) advance(text Span, n int) int {
	for i := range s.doc.Text[text.Start:text.End] {
		if n == 0 {
			return text.Start + i
		}
		n--
	}
	return text.End
}

// overlap is where the passage of the new text from cut to end starts: at the
// first sentence that is short enough to be repeated, else at a word, and behind
// floor.
func (s *splitter) overlap(floor, cut, end int) int {
	// Of all its characters, maxOverlap percent are repeated ones.
	limit := utf8.RuneCountInString(strings.TrimSpace(s.doc.Text[cut:end])) * maxOverlap / (100 - maxOverlap)
	limit = min(limit, s.o.Overlap)
	start, level := cut, never
	for i := cut; limit > 0; limit-- {
		_, size := utf8.DecodeLastRuneInString(s.doc.Text[:i])
		if i -= size; i <= floor {
			break
		}
		r, fits := s.rankIn(i)
		if fits {
			break // half a table says nothing
		}
		if r = min(r, sentence); r >= word && r >= level {
			start, level = i, r
		}
	}
	return start
}

// rankIn is the rank of a cut at i with regard to the code block or table around
// it, in which nothing but lines counts; whole says that this one has room in a
// passage.
func (s *splitter) rankIn(i int) (r rank, fits bool) {
	r = s.rank(i)
	n, ok := slices.BinarySearchFunc(s.doc.Blocks, i, func(b Span, i int) int { return b.Start - i })
	if ok || n == 0 || i >= s.doc.Blocks[n-1].End {
		return r, false
	}
	if r > word {
		r = word
		if strings.HasSuffix(strings.TrimRight(s.doc.Text[:i], " \t"), "\n") {
			r = line
		}
	}
	return r, s.fits[n-1]
}

// rank says how good it is to cut before the character at i.
func (s *splitter) rank(i int) rank {
	head, tail := s.doc.Text[:i], s.doc.Text[i:]
	if head != "" && isLetter(head[i-1]) && isLetter(tail[0]) {
		return inWord // most places are this, and the rest costs
	}
	next, _ := utf8.DecodeRuneInString(tail)
	if head == "" || unicode.IsSpace(next) || unicode.Is(unicode.M, next) || next == '\u200d' {
		return never
	}
	last, _ := utf8.DecodeLastRuneInString(head)
	if !unicode.IsSpace(last) {
		switch {
		case last == '\u200d':
			return never
		case strings.ContainsRune("。！？", last):
			return sentence
		case unicode.In(last, unspaced...) && unicode.In(next, unspaced...):
			return word
		}
		return inWord
	}
	words := strings.TrimRightFunc(head, unicode.IsSpace)
	breaks := strings.Count(head[len(words):], "\n")
	switch {
	case breaks > 1:
		return paragraph
	case endsSentence(words, next), breaks == 1 && item.MatchString(tail):
		return sentence
	case breaks == 1:
		return line
	}
	return word
}

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// unspaced are the scripts that put no spaces between words.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai}

// item matches the beginning of a line that is the first of a list's item.
var item = regexp.MustCompile(`^(?:[0-9]{1,4}[.)]|[-*+•–—]) `)

// endsSentence says whether text, which white space and then next follow, ends a
// sentence.
func endsSentence(text string, next rune) bool {
	body := strings.TrimRight(text, `"'”’»)]`)
	end, size := utf8.DecodeLastRuneInString(body)
	if !strings.ContainsRune(".!?…。！？", end) || unicode.IsLower(next) {
		return false
	}
	return end != '.' || !abbreviated(body[:len(body)-size])
}

// abbreviated says whether the full stop behind text belongs to its last word: an
// initial or a common abbreviation that something follows.
func abbreviated(text string) bool {
	// The longest one has few letters; a longer word is none.
	start, letters := len(text), 0
	for start > 0 && letters <= 6 {
		r, size := utf8.DecodeLastRuneInString(text[:start])
		if !unicode.IsLetter(r) {
			break
		}
		start -= size
		letters++
	}
	last := text[start:]
	if letters == 1 {
		r, _ := utf8.DecodeRuneInString(last)
		// "A. S. Pushkin"; but "vitamin C." is rarer than initials are.
		return unicode.IsUpper(r) || abbreviations[last]
	}
	return abbreviations[strings.ToLower(last)]
}

var abbreviations = textindex.WordSet(`
		mr mrs ms dr prof st vs no fig eq vol ed eds cf al e g i inc ltd jr sr approx pp sec ch
		г гг в вв т д п см ср им ул стр рис табл гл руб коп тыс млн млрд проф акад др пр обл кв ст пп`)
