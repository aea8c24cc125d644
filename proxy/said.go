package proxy

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"
)

const (
	shingle  = 3  // so many words in a row that the request has too are the request's
	longWord = 24 // a word of more characters is one by itself
)

// inQuotes is what an error puts between quotation marks.
var inQuotes = regexp.MustCompile("\"[^\"]{4,}\"|'[^']{4,}'|`[^`]{4,}`|“[^”]{4,}”|«[^»]{4,}»")

// withoutRequest leaves out of an error's text what it repeats of the messages of
// a request: quotations, long words, and three words in a row or more.
func withoutRequest(text string, request []byte) string {
	wrote := normalized(messagesText(request))
	text = inQuotes.ReplaceAllStringFunc(text, func(quoted string) string {
		if strings.Contains(wrote, normalized(quoted)) {
			return "…"
		}
		return quoted
	})
	words := strings.Fields(text)
	repeated := make([]bool, len(words))
	for i := range words {
		if len(words[i]) > longWord && strings.Contains(wrote, normalized(words[i])) {
			repeated[i] = true
		}
		if i+shingle > len(words) {
			continue
		}
		if row := normalized(strings.Join(words[i:i+shingle], " ")); strings.Count(row, " ") == shingle-1 &&
			strings.Contains(wrote, row) {
			for j := range shingle {
				repeated[i+j] = true
			}
		}
	}
	out := words[:0]
	for i, word := range words {
		switch {
		case !repeated[i]:
			out = append(out, word)
		case i == 0 || !repeated[i-1]:
			out = append(out, "…")
		}
	}
	return strings.Join(out, " ")
}

// messagesText is all text of a request's messages and of what stands before them.
func messagesText(request []byte) string {
	var b strings.Builder
	var take func(v gjson.Result)
	take = func(v gjson.Result) {
		switch {
		case v.Type == gjson.String:
			b.WriteString(v.Str)
			b.WriteByte(' ')
		case v.IsArray(), v.IsObject():
			v.ForEach(func(_, inner gjson.Result) bool { take(inner); return true })
		}
	}
	for _, v := range gjson.GetManyBytes(request, "messages", "system", "input") {
		take(v)
	}
	return b.String()
}

// normalized is a text in lower case, with words of letters and digits with one space
// between them.
func normalized(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), " ")
}
