// Package telling decides whether a quote of a message is what its writer tells, so that it may stand as a note in
// every later prompt. A piece of a message may say the contrary of it, and much of what people post is not theirs: so a
// quote counts only if it is made of whole sentences, or of their first clauses, and wherever that is in doubt it does
// not. It owns nothing, asks no model, and never takes a "not" off a sentence.
package telling

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory"
	"mneme/memory/textindex"
)

// Asserts reports whether the writer of a message asserts a quote, which has normalised white space.
func Asserts(message, quote string) bool {
	if len(message) > maxMessage {
		return false
	}
	message, quote = oneSpelling(message), oneSpelling(quote)
	if aboutTexts.MatchString(words(message)) {
		return false
	}
	sentences := split(message)
	own := len(sentences)
	if mark := marks.FindStringIndex(message); mark != nil {
		sentences = split(message[:mark[0]])
		own = len(sentences) - 1 // the last one goes on behind the mark
		sentences = append(sentences, split(message[mark[0]:])...)
	}
	isAsserted := func(piece string) bool {
		for i, s := range sentences[:own] {
			near := sentences[max(0, i-1):min(i+3, len(sentences))]
			if startsWith(s, piece) && states(s) && !reports.MatchString(words(near...)) {
				return true
			}
		}
		return false
	}
	pieces := slices.DeleteFunc(split(quote), func(s string) bool { return s == "" })
	return len(pieces) > 0 && !slices.ContainsFunc(pieces, func(s string) bool { return !isAsserted(s) })
}

// maxMessage is how many bytes of a message are judged: more are pasted.
const maxMessage = 16 << 10

// startsWith says whether a sentence is a piece, or has it as its first clause before others that do not change it. Only
// what introduces a sentence may stand before it.
func startsWith(sentence, piece string) bool {
	piece = withoutEnd(piece)
	if !telling(lead.ReplaceAllString(piece, "")) {
		return false
	}
	for _, loc := range append(clause.FindAllStringIndex(sentence, -1), []int{len(sentence)}) {
		if loc[0] > 2*len(piece)+256 {
			return false
		}
		head, ok := strings.CutSuffix(withoutEnd(memory.OneLine(sentence[:loc[0]])), piece)
		if ok && lead.ReplaceAllString(head+"x", "") == "x" && !changes.MatchString(words(sentence[loc[0]:])) {
			return true
		}
	}
	return false
}

// telling says whether a text has two words, one of which is not a stopword, or is of a script without spaces.
func telling(text string) bool {
	count := len(slices.Collect(textindex.Words(text)))
	unspaced := utf8.RuneCountInString(text) >= 4 && strings.ToUpper(text) == strings.ToLower(text)
	return len(textindex.Terms(text)) > 0 && (count >= 2 || unspaced)
}

// states says whether a sentence neither asks nor supposes.
func states(sentence string) bool {
	sentence = lead.ReplaceAllString(sentence, "")
	text := words(sentence)
	return !asks.MatchString(text) && !supposes.MatchString(text)
}

// split cuts a text into sentences. The last one may be empty, or go on behind the text. A line's end is none of a
// sentence: what it depends on may stand in the line before.
func split(text string) (sentences []string) {
	start := 0
	for _, loc := range sentenceEnd.FindAllStringIndex(text, -1) {
		if !goesOn.MatchString(text[max(start, loc[1]-16):loc[1]]) {
			sentences = append(sentences, strings.TrimSpace(text[start:loc[1]]))
			start = loc[1]
		}
	}
	return append(sentences, strings.TrimSpace(text[start:]))
}

// withoutEnd is a sentence without what ends it, unless that is a question mark.
func withoutEnd(s string) string {
	return strings.TrimRightFunc(s, func(r rune) bool {
		return strings.ContainsRune(" .!,;。！", r) || unicode.Is(unicode.So, r)
	})
}

// oneSpelling gives apostrophes and single quotation marks one form each. A single word in quotation marks is taken for
// a name, since it states nothing.
func oneSpelling(text string) string {
	text = apostrophes.ReplaceAllString(text, "'")
	text = openQuote.ReplaceAllString(text, `$1"`)
	text = closeQuote.ReplaceAllString(text, `"$1`)
	return introduction.ReplaceAllString(quotedName.ReplaceAllString(text, "$1"), "$1$2, ")
}

var (
	apostrophes  = regexp.MustCompile("[’‘‛ʼ′´＇]")
	openQuote    = regexp.MustCompile(`(^|[^\pL\pN])'`)
	closeQuote   = regexp.MustCompile(`'([^\pL\pN]|$)`)
	quotedName   = regexp.MustCompile(`["“„«]([\p{Lu}\p{Ll}][\p{Lu}\p{Ll}\pN-]*)["”“»]`)
	introduction = regexp.MustCompile(`(?i)(^|[^\pL])(` + listed("introduction") + `): +`)

	// marks stand where words may begin that are not the writer's: quotation marks, code, tags, a colon, a line that
	// parts texts, a line of a dialogue. Where they end is never sure, so nothing behind the first one counts.
	marks = regexp.MustCompile("(?m)[\"`<>＂＜＞“”„‟«»‹›「」『』《》❝❞〝〞\\p{Cf}]|:(?:\\s|$)|：|^(?:\t| {4})|" +
		"^[ \t]*[—–]|^[ \t]*[-=*_#~]{3,}[ \t]*$")

	sentenceEnd = regexp.MustCompile(`[.!?]+\s+|[。！？]+\s*`)
	goesOn      = regexp.MustCompile(`(?i)(?:\.\.|(?:^|[^\pL])(?:\pL|mr|mrs|ms|dr|prof|st|vs|etc|ул|им|проф|др|гр)\.)\s+$`)

	// clause is where a first clause may end: the next one has a subject of its own, or a line.
	clause = regexp.MustCompile(`(?i)\n|[,;] (?:and|и|а) |(?:[,;]| [—–-]| and| и| а) (?:` + listed("subject") + `) `)

	lead       = regexp.MustCompile(`(?i)^(?:(?:` + listed("lead") + `)[\s,!]+)+`)
	aboutTexts = regexp.MustCompile(" (?:" + listed("texts") + ") ")
	reports    = regexp.MustCompile(" (?:" + listed("reports") + ") ")
	asks       = regexp.MustCompile("^ (?:" + listed("begins") + ") | (?:" + listed("asks") + ") ")
	supposes   = regexp.MustCompile(" (?:" + listed("supposes") + ") ")
	changes    = regexp.MustCompile(" (?:" + listed("changes") + ") ")
)

//go:embed words.txt
var table string

// listed are the words of a list of words.txt, as alternatives of a regular expression.
func listed(name string) string {
	_, list, _ := strings.Cut(table, "\n"+name+":\n")
	list, _, _ = strings.Cut(list, "\n\n")
	return strings.NewReplacer("*", `\S*`, "_", " ").Replace(strings.Join(strings.Fields(list), "|"))
}

// words are those of sentences with a space around each, and behind each sentence a question mark if it has one, else a
// full stop.
func words(sentences ...string) (text string) {
	text = " "
	for _, s := range sentences {
		text += strings.Join(slices.Collect(textindex.Words(s)), " ") + " . "
		if strings.ContainsAny(s, "?？؟⁇⁈⁉‽") {
			text = text[:len(text)-2] + "? "
		}
	}
	return text
}
