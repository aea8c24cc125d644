package loader

import (
	"regexp"
	"strconv"
	"strings"
)

// deepestList is how many levels a list may have.
const deepestList = 10

// numberLevel is how a level of a list is numbered.
type numberLevel struct {
	format string // "decimal", "lowerLetter" …; "" for none
	text   string // with "%1" for the number of the first level, as in "Step %1:"
	start  int
}

// numbering counts the items of a list and writes their numbers as the levels say.
type numbering struct {
	levels [deepestList]numberLevel
	counts [deepestList]int
}

var levelNumber = regexp.MustCompile(`%\d+`)

// next returns the number of the next item of a level from 0, "" for none.
func (n *numbering) next(level int) string {
	level = min(max(level, 0), deepestList-1)
	n.counts[level]++
	n.restart(level + 1)
	return strings.TrimSpace(levelNumber.ReplaceAllStringFunc(n.levels[level].text, func(name string) string {
		of, _ := strconv.Atoi(name[1:])
		if of < 1 || of > deepestList {
			return ""
		}
		l := n.levels[of-1]
		return l.number(l.start + max(n.counts[of-1], 1) - 1)
	}))
}

// restart ends the counts of a level and those below it.
func (n *numbering) restart(level int) {
	for ; level >= 0 && level < deepestList; level++ {
		n.counts[level] = 0
	}
}

// number writes a number in the level's format.
func (l numberLevel) number(number int) string {
	text := strconv.Itoa(number)
	switch format := strings.ToLower(l.format); {
	case format == "", format == "none", format == "bullet", number < 0:
		return ""
	case format == "decimalzero" && number < 10:
		text = "0" + text
	case number == 0 || number > 1000:
	case strings.HasSuffix(format, "letter"):
		text = strings.Repeat(string(rune('a'+(number-1)%26)), (number-1)/26+1)
	case strings.HasSuffix(format, "roman"):
		text = roman(number)
	}
	if strings.HasPrefix(l.format, "upper") {
		text = strings.ToUpper(text)
	}
	return text
}

func roman(number int) (text string) {
	for i, value := range []int{1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1} {
		for ; number >= value; number -= value {
			text += strings.Fields("m cm d cd c xc l xl x ix v iv i")[i]
		}
	}
	return text
}

// formatOf returns the format that the first number of a list has in HTML and OpenDocument: "1", "a", "A", "i", "I".
func formatOf(first string) string {
	return map[string]string{"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}[first]
}

// automatic sets a level by the name that PresentationML has for a format, as "alphaLcParenR" (ECMA-376 part 1, 20.1.10.61).
func (n *numbering) automatic(level int, name, start string) bool {
	if level < 0 || level >= deepestList {
		return false
	}
	l := numberLevel{format: "decimal", text: "%" + strconv.Itoa(level+1), start: 1}
	for prefix, format := range map[string]string{"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman",
		"romanUc": "upperRoman"} {
		if strings.HasPrefix(name, prefix) {
			l.format = format
		}
	}
	switch {
	case strings.HasSuffix(name, "ParenBoth"):
		l.text = "(" + l.text + ")"
	case strings.HasSuffix(name, "ParenR"):
		l.text += ")"
	case strings.HasSuffix(name, "Period"):
		l.text += "."
	}
	if first, err := strconv.Atoi(start); err == nil {
		l.start = first
	}
	if n.levels[level] != l {
		n.levels[level] = l
		n.restart(level)
	}
	return true
}
