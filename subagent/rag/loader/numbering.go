package loader

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// deepestList bounds the levels of a list.
const deepestList = 10

// numberLevel describes the numbers of one level of a list.
type numberLevel struct {
	format string // of the first number: "1", "01", "a", "A", "i", "I"; "" for none
	text   string // with "%1" for the number of the first level, as in "Step %1:"
	start  int
	// reset is two more than the last level whose items start this one again; 0 means any level above.
	reset int
	legal bool // the numbers of all levels in it are decimal
}

// numbering counts the items of a list and writes their numbers as the levels say.
type numbering struct {
	levels [deepestList]numberLevel
	counts *[deepestList]int // of items, which lists may share
	anew   [deepestList]bool // the next item of the level does not follow the counts
}

var levelNumber = regexp.MustCompile(`%\d+`)

// next returns the number of the next item of a level from 0, "" for none.
func (n *numbering) next(level int) string {
	level = min(max(level, 0), deepestList-1)
	n.restart(deepestList)
	if n.anew[level] {
		n.anew[level], n.counts[level] = false, 0
	}
	n.counts[level]++
	for lower := level + 1; lower < deepestList; lower++ {
		if reset := n.levels[lower].reset; reset == 0 || level+2 <= reset {
			n.counts[lower] = 0
		}
	}
	return strings.TrimSpace(levelNumber.ReplaceAllStringFunc(n.levels[level].text, func(name string) string {
		index, _ := strconv.Atoi(name[1:])
		index = min(max(index, 1), deepestList) - 1
		part := n.levels[index]
		if n.levels[level].legal && part.format != "" {
			part.format = "1"
		}
		return part.number(part.start + max(n.counts[index], 1) - 1)
	}))
}

// restart ends the counts of a level and those below it.
func (n *numbering) restart(level int) {
	n.counts = cmp.Or(n.counts, new([deepestList]int))
	clear(n.counts[min(max(level, 0), deepestList):])
}

// number writes a number in the level's format.
func (l numberLevel) number(number int) string {
	text := strconv.Itoa(number)
	switch {
	case l.format == "":
		return ""
	case l.format == "01" && number >= 0 && number < 10:
		return "0" + text
	case number < 1 || number > 1000:
	case strings.EqualFold(l.format, "a"):
		text = strings.Repeat(string(rune('a'+(number-1)%26)), (number-1)/26+1)
	case strings.EqualFold(l.format, "i"):
		text = roman(number)
	}
	if l.format < "a" {
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

// numberFormats are the formats by their names in WordprocessingML and PresentationML.
var numberFormats = map[string]string{"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I",
	"decimalZero": "01", "bullet": "", "none": "", "alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}

// formatNamed returns the format of a name, that of decimal numbers for others.
func formatNamed(name string) string {
	if format, ok := numberFormats[name]; ok {
		return format
	}
	return "1"
}

// automaticNumber matches the name of a format of PresentationML, as "alphaLcParenR" (ECMA-376 part 1, 20.1.10.61).
var automaticNumber = regexp.MustCompile(`^(alpha..|roman..|.*?)(ParenBoth|ParenR|Period|Plain)?$`)

// automatic sets a level by the name of its format.
func (n *numbering) automatic(level int, name, start string) {
	m := automaticNumber.FindStringSubmatch(name)
	level = min(max(level, 0), deepestList-1)
	text := "%" + strconv.Itoa(level+1)
	l := numberLevel{format: formatNamed(m[1]), start: 1, text: map[string]string{"ParenBoth": "(" + text + ")",
		"ParenR": text + ")", "Period": text + ".", "Plain": text, "": text}[m[2]]}
	if first, err := strconv.Atoi(start); err == nil {
		l.start = first
	}
	if n.levels[level] != l {
		n.levels[level] = l
		n.restart(level)
	}
}
