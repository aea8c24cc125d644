package offline

import (
	_ "embed"
	"fmt"
	"strings"

	"mneme/proxy/lazyregexp"
)

//go:embed lexicon.txt
var lexicon string

// entry returns a text of the lexicon.
func entry(name string) string {
	_, text, found := strings.Cut("\n"+lexicon, "\n"+name+": ")
	if !found {
		panic("offline: lexicon.txt has no entry " + name)
	}
	end := 0
	for line := range strings.Lines(text) { // it goes on in lines that begin with a tab
		if end > 0 && line[0] != '\t' {
			break
		}
		end += len(line)
	}
	return strings.TrimSpace(strings.ReplaceAll(text[:end], "|\n\t", "|"))
}

// expanded returns an entry with the entries in capitals that it names.
func expanded(name string) string {
	text := strings.ReplaceAll(entry(name), "\n\t", "")
	return strings.NewReplacer("FINITE", entry("FINITE"), "AGENT", entry("AGENT"), "WH", entry("WH")).Replace(text)
}

// pattern returns an expression of the lexicon.
func pattern(name string) *lazyregexp.Regexp {
	return lazyregexp.Made(func() string { return `(?i)` + expanded(name) })
}

// begins returns an expression for one of the alternatives of an entry, as whole words, at the start of a sentence.
func begins(name string) *lazyregexp.Regexp {
	return lazyregexp.Made(func() string { return `^(?i)(?:` + expanded(name) + `)(?:[\s,.:;!?—–-]+|$)` })
}

// holds returns an expression for one of the alternatives of an entry, as whole words, anywhere.
func holds(name string) *lazyregexp.Regexp {
	return lazyregexp.Made(func() string {
		return `(?i)(?:^|[\s,.:;!?«"“(-])(?:` + entry(name) + `)(?:[\s,.:;!?»"”)'’]|$)`
	})
}

var (
	filler, polite, askLead, noteLead, dropLead, restLead = begins("filler"), begins("polite"),
		begins("askLead"), begins("noteLead"), begins("dropLead"), begins("restLead")
	question, asked, indirect, yesNo, howTo, smallTalk, asking, greeting, erasing = begins("question"), pattern("asked"),
		begins("indirect"), begins("yesNo"), begins("howTo"), begins("smallTalk"), begins("asking"), pattern("greeting"),
		begins("erasing")
	imperative, wish, ambition, reminder, noName, sums = begins("imperative"), begins("wish"),
		begins("ambition"), begins("reminder"), begins("noName"), begins("sums")
	all, mine, yours, speaksRU = holds("all"), holds("mine"), holds("yours"),
		holds("speaksRU")
	trailer, corrected, clause, bareRU, recap, listing = pattern("trailer"), pattern("corrected"),
		pattern("clause"), pattern("bareRU"), pattern("recap"), pattern("listing")
	whoAmI, using, name, ageTold, origin, inverted = pattern("whoAmI"), pattern("using"),
		pattern("name"), pattern("age"), pattern("origin"), pattern("inverted")
	tellsEN, tellsRU, telling, root, formula, worked = pattern("tellsEN"), pattern("tellsRU"),
		pattern("telling"), pattern("root"), pattern("formula"), pattern("worked")
	matter, digits, ends, abbreviation, aside, both, row, item, envelope, beVerbs = pattern("matter"), pattern("digits"),
		pattern("ends"), pattern("abbreviation"), pattern("aside"),
		pattern("both"), pattern("row"), pattern("item"), pattern("envelope"), pattern("beVerbs")
	saidAt, speaker, inMonth, reported, months = pattern("saidAt"), pattern("speaker"), pattern("inMonth"),
		pattern("reported"), strings.Fields(entry("months"))
	turns, broader, cyrillic, operators = pairs("turns"), pairs("broader"),
		strings.NewReplacer(list("cyrillic")...), strings.NewReplacer(list("operators")...)
	iAm, unknown, notInDocs, noted, nameIs, youSaid = say("iAm"), say("unknown"), say("notInDocs"),
		say("noted"), say("nameIs"), say("youSaid")
	hello, notedOn, understood                           = say("hello"), say("notedOn"), say("understood")
	quoted, forgotten, forgotAll, noSuchNote, toolFailed = say("quoted"), say("forgotten"), say("forgotAll"),
		say("noSuchNote"), say("toolFailed")
	saidOn, remember, noTool, noAgent    = say("saidOn"), say("remember"), say("noTool"), say("noAgent")
	silent, longText, whatName, whatTold = say("silent"), say("longText"), say("whatName"), say("whatTold")

	stopwords, synonyms, personal, relations = map[string]bool{}, map[string]string{}, map[string]bool{}, map[string]bool{}
)

func init() {
	for w := range strings.FieldsSeq(entry("stopwords")) {
		stopwords[w] = true
	}
	for _, of := range []string{"matters", "relations"} {
		for group := range strings.SplitSeq(entry(of), "|") {
			words := strings.Fields(group)
			personal[words[0]], relations[words[0]] = true, of == "relations"
			for _, w := range words {
				synonyms[stem(w)] = words[0]
			}
		}
	}
}

// list are the words of an entry, in which _ stands for a space.
func list(name string) []string {
	return strings.Split(strings.ReplaceAll(strings.Join(strings.Fields(entry(name)), "\x00"), "_", " "), "\x00")
}

func pairs(name string) map[string]string {
	m := map[string]string{}
	for f := list(name); len(f) > 1; f = f[2:] {
		m[f[0]] = f[1]
	}
	return m
}

// phrase is a sentence of the model's own in English and Russian.
type phrase [2]string

func say(name string) phrase {
	english, russian, _ := strings.Cut(entry(name), "|")
	return phrase{strings.TrimSpace(english), strings.TrimSpace(russian)}
}

func (p phrase) in(l lang, args ...any) string { return fmt.Sprintf(p[l], args...) }
