package pdfium

import (
	"strings"
	"unicode"
)

// marked returns a line, whose first character is at start of the page's text. It divides the figures
// of a number that are drawn at another height: "10^6" and "101_2", and "1) 500" for a note before a number.
func (r *pageReader) marked(line []rune, start int) string {
	var out strings.Builder
	done := 0
	for i := 0; i < len(line); i++ {
		if !unicode.IsDigit(line[i]) {
			continue
		}
		first, last := i, i
		if i > 0 && strings.ContainsRune(noteSigns, line[i-1]) {
			first--
		}
		for ; i < len(line) && (unicode.IsDigit(line[i]) || strings.ContainsRune(numberSigns, line[i])); i++ {
			if unicode.IsDigit(line[i]) {
				last = i
			}
		}
		if first == last {
			continue
		}
		if pos, mark := r.step(start+first, start+last); mark != "" {
			pos -= start
			out.WriteString(string(line[done:pos]) + mark)
			done = pos
		}
	}
	if done == 0 {
		return string(line)
	}
	return out.String() + string(line[done:])
}

const (
	// numberSigns are characters within numbers, and between a number and its note.
	numberSigns = ".,;:%)€$£¥+-−–"
	// noteSigns are characters that the figure of a note follows.
	noteSigns = ".,;:)”"
)

// step finds where the height changes between two figures, and returns what divides them; "" if it does not change.
func (r *pageReader) step(first, last int) (pos int, mark string) {
	a, b := r.box(first), r.box(last)
	note := a.top-a.bottom < b.top-b.bottom
	if note {
		a, b = b, a
	}
	if mark = shift(a, b); mark == "" {
		return 0, ""
	}
	for pos = last; pos > first+1 && (shift(a, r.box(pos-1)) == mark) != note; pos-- {
	}
	if note {
		mark = ") "
	}
	return pos, mark
}

// shift returns "^" or "_" if small is a raised or lowered figure beside large, else "".
func shift(large, small line) string {
	const size, descent, up, down = 0.8, 0.2, 0.2, 0.1
	height, own := large.top-large.bottom, small.top-small.bottom
	if own <= 0 || own > size*height {
		return ""
	}
	baseline := small.bottom + descent*own - large.bottom - descent*height
	switch {
	case baseline >= up*height && baseline < height:
		return "^"
	case baseline <= -down*height && baseline > -height:
		return "_"
	}
	return ""
}
