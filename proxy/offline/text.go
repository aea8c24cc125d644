package offline

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"github.com/kljensen/snowball/russian"

	"mneme/proxy/lazyregexp"
)

// lang is an index of phrase.
type lang int

const (
	en lang = iota
	ru
)

var cyrillicLetter, latinLetter, word = lazyregexp.New(`\p{Cyrillic}`), lazyregexp.New(`\p{Latin}`),
	lazyregexp.New(`[\pL\pN\pM@'-]+`)

// langOf is the language that most letters of a text are of.
func langOf(s string) lang {
	if len(cyrillicLetter.FindAllString(s, -1)) > len(latinLetter.FindAllString(s, -1)) {
		return ru
	}
	return en
}

// sentences are the sentences of a text with their marks, lines apart.
func sentences(text string) []string {
	var out []string
	start := 0
	for _, m := range append(ends.FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		if m[0] < len(text) && text[m[0]] != '\n' && abbreviation.MatchString(text[start:m[1]]) {
			continue
		}
		if s := strings.TrimSpace(text[start:m[1]]); s != "" {
			out = append(out, s)
		}
		start = m[1]
	}
	return out
}

// unwrapped is a text of paragraphs that were broken into lines, with each paragraph in one line: a line was broken
// where it had no room for the next word.
func unwrapped(text string) string {
	var out strings.Builder
	before := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		next, _, _ := strings.Cut(line, " ")
		if len(before)+len(next) > 55 && before != "" && !strings.ContainsAny(before[len(before)-1:], ".!?:;|") &&
			line != "" &&
			!aside.MatchString(before) && !aside.MatchString(line) && !item.MatchString(line) {
			out.WriteByte(' ')
		} else {
			out.WriteByte('\n')
		}
		out.WriteString(line)
		before = line
	}
	return out.String()
}

var oneSpelling = strings.NewReplacer("ё", "е", "’", "'", "for a living", "work", "n't", " not")

// words are the words of a text in lower case, without 's.
func words(text string) (out []string) {
	for _, w := range word.FindAllString(oneSpelling.Replace(strings.ToLower(text)), -1) {
		if w, _, _ = strings.Cut(strings.Trim(w, "'-"), "'"); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// keys are what a text is about: the stems of its words, or what they are synonyms of.
func keys(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range words(text) {
		if !stopwords[w] && len(w) < 80 {
			k := stem(w)
			if c, ok := synonyms[k]; ok {
				k = c
			}
			set[k] = true
		}
	}
	return set
}

func stem(w string) string {
	if w[0] < utf8.RuneSelf {
		return english.Stem(w, true)
	}
	return russian.Stem(w, true)
}

// share is how much of q a set has.
func share(q, set map[string]bool) float64 {
	n := 0.0
	for k := range q {
		if set[k] {
			n++
		}
	}
	return n / float64(max(1, len(q)))
}

// turned is a statement of the user's said back to them, "my" as "your", or quoted where that needs more grammar than
// there is.
func turned(s string, l lang) string {
	s = strings.ReplaceAll(s, "’", "'")
	if langOf(s) != l || yours.MatchString(s) || strings.ContainsAny(s, "\"“”«»\n") || l == ru &&
		(bareRU.MatchString(s) || speaksRU.MatchString(s)) {
		return quoted.in(l, clip(s))
	}
	return clip(word.ReplaceAllStringFunc(beVerbs.ReplaceAllString(s, "I-$1"), func(w string) string {
		if t, known := turns[strings.ToLower(w)]; known {
			return t
		}
		return w
	}))
}

// sentence is s as a sentence: with a capital letter and a full stop.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if s = string(unicode.ToUpper(r)) + s[n:]; strings.ContainsAny(s[len(s)-1:], ".!?}…") {
		return s
	}
	return s + "."
}

// bare is s without white space and marks at its end.
func bare(s string) string { return strings.TrimRight(strings.TrimSpace(s), " .!?…,;:=") }

// clip cuts a text that is too long to be quoted.
func clip(s string) string {
	if len(s) <= 500 {
		return s
	}
	return strings.ToValidUTF8(s[:500], "") + "…"
}
