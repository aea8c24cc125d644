package memory

import (
	"strings"
	"unicode"
)

// titleLen is how many characters a title that is made from a message has at most.
const titleLen = 80

// Plain is a text as one line without control characters.
func Plain(text string) string {
	return OneLine(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text))
}

// Title returns the beginning of a message as one line of plain text, cut at a word. It has no control characters and no
// lines of WithImages unless there is nothing else.
func Title(message string) string {
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n\n[image")
	message = strings.ToValidUTF8(message[:min(len(message), 64*titleLen)], "")
	runes := []rune(Plain(message))
	if len(runes) <= titleLen {
		return string(runes)
	}
	short := string(runes[:titleLen-1]) // and a mark
	if i := strings.LastIndexByte(short, ' '); i > len(short)/2 && runes[titleLen-1] != ' ' {
		short = short[:i]
	}
	return strings.TrimSuffix(short, " ") + "…"
}
