package offline

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	stemEnglish "github.com/kljensen/snowball/english"
	stemRussian "github.com/kljensen/snowball/russian"

	"mneme/proxy/lazyregexp"
)

//go:embed lexicon.txt
var lexicon string

var (
	entries, patterns = load()

	topics, wider, turns = groups("topics", stem), groups("wider", stem), groups("turns", strings.ToLower)

	cyrillic = strings.NewReplacer(strings.Fields(entries["cyrillic"])...)
	spelling = strings.NewReplacer("ё", "е", "’", "'", "for a living", "work", "n't", " not")
)

// load reads the lexicon. The words between "⟨" and "⟩" match as whole words.
func load() (entries map[string]string, patterns map[string]lazyregexp.Regexp) {
	entries, patterns = map[string]string{}, map[string]lazyregexp.Regexp{}
	for line := range strings.SplitSeq(strings.ReplaceAll(lexicon, "\n\t", ""), "\n") {
		name, text, _ := strings.Cut(line, ": ")
		entries[name] = text
		patterns[name] = lazyregexp.NewFunc(func() string {
			return `(?i)` + strings.NewReplacer("⟨", `(?:^|[\s,.:;!?«"“(-])(?:`, "⟩", `)(?:[\s,.:;!?»"”)'’—–-]+|$)`,
				"FINITE", entries["FINITE"], "WH", entries["WH"], "TIME", entries["TIME"]).Replace(text)
		})
	}
	return entries, patterns
}

// groups maps the words of each group of an entry, in the form that they are looked up by, to the first one.
func groups(name string, form func(string) string) map[string]string {
	m := map[string]string{}
	for group := range strings.SplitSeq(entries[name], "|") {
		words := strings.Fields(group)
		for _, w := range words {
			m[form(strings.TrimLeft(w, "*+"))] = words[0]
		}
	}
	return m
}

func match(name, s string) bool { return find(name, s) != nil }

func find(name, s string) []string {
	return patterns[name]().FindStringSubmatch(strings.ReplaceAll(s, "’", "'"))
}

func replace(name, s, repl string) string { return patterns[name]().ReplaceAllString(s, repl) }

// say returns a sentence of the model's own, in the language of most letters of a text.
func say(in, name string, args ...any) string {
	return fmt.Sprintf(strings.Split(entries[name], " | ")[languageOf(in)], args...)
}

// languageOf returns 1 for Russian, if most letters of the first 1,000 bytes are Cyrillic, and 0 for English.
func languageOf(s string) int {
	s = s[:min(len(s), 1000)]
	count := func(name string) int { return len(patterns[name]().FindAllString(s, -1)) }
	return 2 * count("cyrillicLetter") / (count("letter") + 1)
}

func stem(word string) string {
	if word == "" || word[0] < utf8.RuneSelf {
		return stemEnglish.Stem(word, true)
	}
	return stemRussian.Stem(word, true)
}

// sentences returns the sentences of a text with their marks. A line break ends a sentence.
func sentences(text string) (list []string) {
	text = replace("ends", replace("abbreviation", text, "$1.\x01"), "$1\x00")
	for s := range strings.SplitSeq(text, "\x00") {
		if s = strings.TrimSpace(strings.ReplaceAll(s, "\x01", " ")); s != "" {
			list = append(list, s)
		}
	}
	return list
}

// prose returns the sentences of a long text, without headings, rows of tables and lines of code. It joins a long line
// with the next one if that continues its sentence.
func prose(text string) []string {
	text = replace("wrapped", replace("layout", replace("fenced", text, "\n"), ""), "$1 $2")
	return slices.DeleteFunc(sentences(text), func(s string) bool { return !match("prose", s) })
}

// sentence returns s with a capital letter and a full stop.
func sentence(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return replace("endless", strings.ToUpper(s[:n])+s[n:], "${0}.")
}

// bare returns s without white space and marks at its end.
func bare(s string) string { return strings.TrimRight(strings.TrimSpace(s), " .!?…,;:=") }

// turned returns a statement as its hearer repeats it, with "your" for "my". It returns "" if that needs more grammar
// than the model has.
func turned(s, in string) string {
	plain := replace("beVerbs", strings.ReplaceAll(s, "’", "'"), "I-$1")
	out := patterns["word"]().ReplaceAllStringFunc(plain, func(w string) string {
		if t, ok := turns[strings.ToLower(w)]; ok && (len(w) == 1 || w != strings.ToUpper(w)) {
			return strings.ReplaceAll(t, "_", " ")
		}
		return w
	})
	if languageOf(s) != languageOf(in) || match("unturnable", plain) || match("yours", s) || match("garbled", out) {
		return ""
	}
	return out
}

// fact is a statement of the user, or a question.
type fact struct {
	text, name, timestamp string // name is the user's, and at is the time of a recalled message
	subject               string // the first topic
	words                 []string
	keys                  map[string]int // the topics of text, with the position of their word, from 1
	start                 int            // the number of words before the statement, to which its pronoun refers
	mine, me              bool           // text mentions the user; the user is its subject
}

// Keys of topics begin with these if they are matters of a person, or persons and animals that belong to one.
const matter, relation = "+", "*"

func newFact(text string) fact {
	text = replace("whatDo", text, "what is the job of $1")
	f := fact{text: bare(text), keys: map[string]int{}, name: userName(text), mine: match("mine", text),
		me: match("me", text), words: patterns["word"]().FindAllString(spelling.Replace(text), -1)}
	if f.name != "" {
		f.text = say(text, "nameIs", f.name)
	}
	prev, implied := "", f.keys
	if asks(text) {
		implied = map[string]int{} // a question has no other topics than its words
	}
	for i, w := range f.words {
		low, suffix, _ := strings.Cut(strings.ToLower(w), "'")
		key := cmp.Or(topics[stem(low)], stem(low))
		f.subject = cmp.Or(f.subject, strings.TrimPrefix(key, "-"))
		implied[wider[stem(low)]] = i + 1
		if match("capital", w) && strings.HasPrefix(prev, relation) {
			implied["+name"] = i + 1 // "my sister Anna"
		}
		if suffix == "s" && i+1 < len(f.words) && topics[stem(strings.ToLower(f.words[i+1]))] != "-" {
			key += "'s"
		}
		f.keys[key], prev = i+1, key
	}
	for _, m := range patterns["age"]().FindAllStringSubmatch(f.text, -1) {
		implied["+age"] = slices.Index(f.words, m[1]) + 1
	}
	maps.DeleteFunc(f.keys, func(key string, _ int) bool { return key == "" || key == "-" }) // "-" is no topic
	return f
}

// userName returns the user's name if a statement tells it.
func userName(s string) string {
	m := find("name", bare(s))
	if m == nil || match("noName", m[1]+m[2]+m[3]) {
		return ""
	}
	return m[1] + m[2] + m[3]
}

// position returns the position of a topic of a question, or 0. A question about Anna's job is about Anna, too, but a
// statement about Anna's sister is not.
func (f fact) position(key string) int {
	return cmp.Or(f.keys[key], f.keys[strings.TrimSuffix(key, "'s")])
}

// fits reports whether f has the kind of answer that the question q wants.
func (f fact) fits(q fact) bool {
	for kind, text := range map[string]string{"Time": f.text, "Number": f.text, "Reason": f.text, "Person": f.text,
		"Place": replace("timePhrase", f.text, " ")} { // "at noon" is no place
		if match("wants"+kind, q.text) && !match("has"+kind, text) {
			return false
		}
	}
	return len(q.keys) > 0
}

// answers reports whether f has the kind of answer that the question q wants, the same subject and all topics.
func (f fact) answers(q fact) bool {
	own := match("owns", f.text) // "I have a dog" is about the dog
	if asksName := q.me && q.keys["+name"] > 0; asksName || f.name != "" {
		return asksName && f.name != ""
	} else if q.mine && !f.mine || q.me && !f.me && !own || !f.fits(q) {
		return false
	}
	positions, last := []int{}, 0
	for _, k := range slices.SortedFunc(maps.Keys(q.keys), func(a, b string) int { return q.keys[a] - q.keys[b] }) {
		pos, word := f.position(k), q.words[q.keys[k]-1]
		// A Russian name that is not the subject has another ending.
		if pos == 0 && !match("optional", k) || pos > 0 && strings.HasPrefix(k, matter) && f.me && !q.me && !own ||
			match("nameRU", word) && q.keys[k] > 1 && !slices.Contains(f.words, word) {
			return false
		}
		if pos > 0 {
			positions = append(positions, pos)
		}
		if !strings.HasPrefix(k, relation) {
			last = max(last, pos)
		}
	}
	// "Anna gave Tom a book" does not tell what Tom gave Anna, and "I gave Tom a book" does not tell who did.
	reversed := match("withDo", q.text) && f.start == 0 && len(positions) > 1 && positions[0] > positions[1] ||
		match("whoDoes", q.text) && match("first", f.text)
	return len(positions) > 0 && slices.Max(positions) > f.start && !reversed && !f.strays(q, last)
}

// strays reports whether f is about another person than q, up to a position: "my sister's dog is 4" is not about the
// sister, but "my sister Anna is 30" is about Anna.
func (f fact) strays(q fact, last int) bool {
	for k, pos := range f.keys {
		mentions := q.position(k) + q.keys[k+"'s"] + q.keys[wider[stem(strings.Trim(strings.TrimSuffix(k, "'s"), relation))]]
		apposed := slices.ContainsFunc(f.words[max(0, pos-1):min(pos+3, len(f.words))],
			func(w string) bool { return match("capital", w) && slices.Contains(q.words, w) })
		if strings.HasPrefix(k, relation) && mentions == 0 && !apposed && pos < last {
			return true
		}
	}
	return false
}

// reply returns a fact as an answer, with its time if it was recalled.
func (f fact) reply(in string) string {
	s := sentence(cmp.Or(turned(f.text, in), say(in, "reported", sentence(f.text))))
	if date, clock, ok := strings.Cut(f.timestamp, " "); ok {
		s += " " + say(in, "saidOn", date, clock)
	}
	return s
}

// facts are the statements of a chat, oldest first.
type facts []fact

// learn adds the facts of a statement. A statement with a pronoun, or a short correction, continues the newest fact
// about the same matter, or the newest fact. Another correction, or a statement that something ended, replaces the fact
// that shares most topics with it: it also answers the questions of that fact.
func (list *facts) learn(st step, timestamp string) {
	for text := range strings.SplitSeq(replace("clause", st.text, "\x00$1"), "\x00") {
		f, old, most, latest := newFact(text), fact{}, 0, (*list)[max(0, len(*list)-100):]
		replaces := match("correction", st.quote) || match("ended", text)
		for i, prev := range latest {
			shared := 0
			for k := range f.keys {
				if prev.keys[k] > 0 && (replaces || match("single", k)) {
					shared++
				}
			}
			if shared >= max(most, 1) || i == len(latest)-1 && most == 0 {
				old, most = prev, shared
			}
			pos := prev.keys[f.subject]
			owner := strings.Join(prev.words[max(0, pos-3):max(0, pos-1)], " ")
			if pos > 1 && match("owner", owner) && match("update", text) {
				f.inherit(newFact(owner), relation, 1) // "the budget" after "our budget", "Nora" after "my sister Nora"
			}
		}
		if m, c := find("newValue", text), find("copula", old.text); replaces && m != nil && c != nil {
			f = newFact(c[1] + c[2] + m[1] + m[2] + m[3]) // "my tea is green" and "no, it's black"
			f.inherit(old, "", len(f.words))
		} else if continues := st.fragment || match("pronoun", text); continues && old.text != "" && f.name == "" {
			first, _, _ := strings.Cut(old.text, ". ")
			f = newFact(first + ". " + sentence(text))
			f.start = len(newFact(first).words)
		} else if replaces && (old.keys[f.subject] > 0 || f.me && old.me) &&
			(most > 1 || most == 1 && match("alike", old.text+"\x00"+text)) {
			f.inherit(old, "", len(f.words))
		}
		f.keys[topics[stem(strings.Split(timestamp+"-", "-")[1])]] = 1 // the month, for "What did I say in May?"
		f.timestamp = timestamp
		*list = append(*list, f)
	}
}

// inherit adds the topics of another fact that begin with prefix to those of f, at a position.
func (f *fact) inherit(src fact, prefix string, pos int) {
	for k := range src.keys {
		if strings.HasPrefix(k, prefix) {
			f.keys[k] = cmp.Or(f.keys[k], pos)
		}
	}
	f.mine = f.mine || src.mine
}

// answer returns the newest fact that answers a question, and earlier ones that it adds to.
func (list facts) answer(q fact) (matches facts) {
	if match("listed", q.text) {
		return list[max(0, len(list)-10):]
	}
	for _, f := range slices.Backward(list) {
		if f.answers(q) && !slices.ContainsFunc(matches, func(g fact) bool { return g.text == f.text }) {
			if matches = append(matches, f); len(matches) == 3 || !match("adds", f.text) {
				break
			}
		}
	}
	return matches
}
