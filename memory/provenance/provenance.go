// Package provenance knows whose words the agents of a run were given, and with that where a value is from that they
// write: taint tracking over texts, since models have none. A Ledger owns what it was told for as long as a run lasts,
// over waits too. It judges by what stands there to the letter, up to case, punctuation, the endings of Russian words and
// the form of numbers: what a model computes or translates has no origin but the model.
package provenance

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"mneme/memory"
	"mneme/memory/envelope"
)

// Ledger holds what was given to the agents of one run. The zero value holds nothing; nil takes and knows nothing. Safe
// for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	known map[piece]bool // guarded by mu
	user  []*text        // in the user's own words; guarded by mu
	given []*text        // by documents, tools, and pasted; guarded by mu
}

// piece is a text as it was given.
type piece struct {
	memory.Origin
	Text string `json:"text"`
}

// text is a piece with the forms that it is searched in.
type text struct {
	piece
	words    string          // in lower case, each between two spaces
	squeezed string          // without anything but letters and digits
	parted   map[int]bool    // where words begin and end in that
	numbers  map[string]bool // see amounts
	fours    map[string]bool // four words that follow each other; nil until asked for
}

// Add tells the ledger of a text. What a user pasted is from outside, and cannot pass for the tag of an envelope.
func (l *Ledger) Add(o memory.Origin, content string) {
	if l == nil {
		return
	}
	if o.From == memory.FromUser {
		own, pasted := memory.Own(content)
		l.add(o, own)
		o = memory.Origin{From: memory.FromOutside, Source: "a text that the user pasted"}
		content = strings.ReplaceAll(pasted, "<", " ")
	}
	l.add(o, content)
}

func (l *Ledger) add(o memory.Origin, content string) {
	of := o.From == memory.FromUser
	if p := (piece{o, content}); of || o.From.Foreign() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.known[p] || strings.TrimSpace(content) == "" {
			return
		}
		if l.known == nil {
			l.known = map[piece]bool{}
		}
		l.known[p] = true
		if of {
			l.user = append(l.user, &text{piece: p})
		} else {
			l.given = append(l.given, &text{piece: p})
		}
	}
}

// Save gives what another Ledger of the same run goes on from; Restore takes it.
func (l *Ledger) Save() (json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []piece
	for _, t := range slices.Concat(l.user, l.given) {
		all = append(all, t.piece)
	}
	return json.Marshal(all)
}

// Restore takes what Save gave; nothing where that is nil.
func (l *Ledger) Restore(saved json.RawMessage) error {
	var all []piece
	if saved == nil {
		return nil
	}
	err := json.Unmarshal(saved, &all)
	for _, p := range all {
		l.add(p.Origin, p.Text)
	}
	return err
}

// Of is the origin of what an agent wrote: the lowest that it has four words in a row of, or a figure, an address or a
// name, which the user did not say; else the agent. It is told even of short ones, since a later run may have nothing
// but this text to know them from.
func (l *Ledger) Of(content string) memory.Origin {
	if l == nil {
		return memory.Origin{From: memory.FromAgent}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.given) == 0 || len(content) > maxJudged { // before anything is done with what may be megabytes
		return l.lowest()
	}
	return l.taken(content, append(tellingValues(content, 1), names(content)...))
}

// maxJudged is how many bytes of a text are looked for: a longer one counts as of the lowest origin that there is.
const maxJudged = 64 << 10

// lowest is the lowest origin that a text was given of; the agent for none. Callers hold mu.
func (l *Ledger) lowest() memory.Origin {
	o := memory.Origin{From: memory.FromAgent}
	for _, t := range l.given {
		if t.From.Below(o.From) {
			o = t.Origin
		}
	}
	return o
}

// taken is the lowest origin that a text has four words in a row of, or one of some values. Callers hold mu.
func (l *Ledger) taken(content string, telling []string) memory.Origin {
	lowest := memory.Origin{From: memory.FromAgent}
	fours := inFours(strings.Fields(plain(content)))
	for _, u := range l.user {
		u.read()
		for four := range fours {
			if strings.Contains(u.words, four) {
				delete(fours, four)
			}
		}
	}
	var values []value
	for _, content := range telling {
		v := valueOf(content)
		if o, found := l.find(v); found && o.From != memory.FromUser {
			values = append(values, v)
		}
	}
	for _, t := range l.given {
		t.read()
		if !t.From.Below(lowest.From) && (lowest.Source != "" || t.From != lowest.From) {
			continue
		}
		if t.shares(fours) || slices.ContainsFunc(values, func(v value) bool { return t.has(v) != absent }) {
			lowest = t.Origin
		}
	}
	return lowest
}

// Value is the origin of a value that an agent put into a call. One that the user said is the user's, and a long text is
// from where Of says. A value to the letter counts before a hundred times or a hundredth of it.
func (l *Ledger) Value(content string) memory.Origin {
	v := valueOf(content)
	if l == nil || v.squeezed == "" {
		return memory.Origin{From: memory.FromAgent}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(content) > maxJudged {
		return l.lowest()
	}
	if o, found := l.find(v); found {
		return o
	}
	return l.taken(content, tellingValues(content, 3))
}

// find is the origin of a value that stands in a text: the user's if they said it as exactly as any other text has it,
// since their 20 is no 2000 of a document. Callers hold mu.
func (l *Ledger) find(v value) (o memory.Origin, found bool) {
	said, how := stand(v, l.user)
	read, other := stand(v, l.given)
	switch {
	case said != nil && how >= other:
		return said.Origin, true
	case read != nil:
		return read.Origin, true
	}
	return o, false
}

// foreign returns the origin of the first text that is neither the user's nor the agents' own, or zero.
func (l *Ledger) foreign() (o memory.Origin) {
	if l == nil {
		return o
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.given) > 0 {
		o = l.given[0].Origin
	}
	return o
}

// How a value stands in a text.
const (
	absent = iota
	scaled // a hundredth or a hundred times of it, as of euros and cents
	exact
)

// stand is the first text with a value: to the letter before scaled, one with a name before one without.
func stand(v value, in []*text) (found *text, how int) {
	for _, t := range in {
		if is := t.read().has(v); is > how || is == how && is != absent && found.Source == "" {
			found, how = t, is
		}
	}
	return found, how
}

// shortest is how many letters and digits a value has at least that is found also inside of words and across what
// parts it, as the digits of an account are.
const shortest = 6

// value is one that is looked for in texts, in the forms that it is looked for in.
type value struct {
	words, squeezed string
	amounts         []string // what it may mean as a number; nil if it is none
}

func valueOf(content string) value {
	v := value{words: plain(content)}
	v.squeezed = strings.ReplaceAll(v.words, " ", "")
	n := strings.ToLower(strings.TrimSpace(visible(content)))
	word := strings.TrimLeftFunc(n, func(r rune) bool { return !unicode.IsLetter(r) })
	if _, ok := multiples[word]; (ok || word == "") && number.FindString(n) == n {
		v.amounts = amounts(n)
	} else if mantissa, power, ok := strings.Cut(n, "e"); ok {
		if e, err := strconv.Atoi(power); err == nil && isDecimal.MatchString(mantissa) { // of a number in JSON
			v.amounts = []string{decimal(mantissa, e)}
		}
	}
	return v
}

// has says how a value stands in a text.
func (t *text) has(v value) (how int) {
	for _, a := range v.amounts {
		digits, power, _ := strings.Cut(a, "e")
		e, _ := strconv.Atoi(power)
		switch {
		case t.numbers[a]:
			return exact
		case t.numbers[fmt.Sprintf("%se%d", digits, e-2)],
			(len(digits) > 1 || e > 0) && t.numbers[fmt.Sprintf("%se%d", digits, e+2)]:
			how = scaled
		}
	}
	if v.squeezed != "" && (v.amounts == nil && strings.Contains(t.words, v.words) ||
		len(v.squeezed) >= shortest && t.holds(v.squeezed)) {
		return exact
	}
	return how
}

// holds says whether a value stands in a text whatever parts it. The user has to have said it as whole words: a document
// may name an address that is a part of theirs. Scripts without spaces have no such bounds.
func (t *text) holds(squeezed string) bool {
	for at := 0; ; at++ {
		next := strings.Index(t.squeezed[at:], squeezed)
		if next < 0 {
			return false
		}
		at += next
		if t.From != memory.FromUser || unspaced.MatchString(squeezed) || t.parted[at] && t.parted[at+len(squeezed)] {
			return true
		}
	}
}

// read makes the forms of a text. Callers hold the ledger's mu.
func (t *text) read() *text {
	if t.words == "" {
		content := visible(nonce.ReplaceAllString(t.Text, ""))
		if strings.Contains(content, `\`) { // of JSON, whose escapes would be letters of the words behind them
			content += " " + escape.ReplaceAllString(content, " ")
		}
		t.words = plain(content)
		t.squeezed = strings.ReplaceAll(t.words, " ", "")
		t.parted = map[int]bool{0: true}
		if t.From == memory.FromUser {
			end := 0
			for word := range strings.FieldsSeq(t.words) {
				end += len(word)
				t.parted[end] = true
			}
		}
		t.numbers = map[string]bool{}
		for _, n := range number.FindAllString(content, -1) {
			for _, a := range amounts(n) {
				t.numbers[a] = true
			}
		}
	}
	return t
}

// shares says whether one of some fours is in the text.
func (t *text) shares(fours map[string]bool) bool {
	if t.fours == nil {
		t.fours = inFours(strings.Fields(t.words))
	}
	for four := range fours {
		if t.fours[four] {
			return true
		}
	}
	return false
}

// unspaced matches letters of scripts that part no words.
var unspaced = regexp.MustCompile(`[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]`)

// inFours are all four words that follow each other, each with a space around.
func inFours(words []string) map[string]bool {
	fours := map[string]bool{}
	for i := 0; i+4 <= len(words); i++ {
		fours[" "+strings.Join(words[i:i+4], " ")+" "] = true
	}
	return fours
}

var (
	// nonce matches the tags of envelopes, whose random digits are nobody's words. No text from outside has such a tag.
	nonce = regexp.MustCompile(`</?(?:passage|recalled|outside) nonce="[A-Z2-7]{26}"`)
	// number matches digits with what parts them in amounts, dates and accounts, and a word that may multiply them.
	number = regexp.MustCompile(`\d+(?:[.,'’-]\d+|[\s\x{a0}\x{202f}]\d{3}\b)*(?:\s?\pL+)?`)
	// amount parts thousands, or none, from their fraction and the word behind.
	amount = regexp.MustCompile(`^(\d{1,3}(?:[\s.,'’\x{a0}\x{202f}]\d{3})+|\d+)(?:[.,](\d+))?(?:\s?(\pL+))?$`)
	// inflected are the stem and the ending of a Russian word.
	inflected = regexp.MustCompile(`^(\p{Cyrillic}{2,}?)[аеёиоуыэюяйьмх]{1,3}$`)
	isDecimal = regexp.MustCompile(`^\d+(?:\.\d+)?$`)
	escape    = regexp.MustCompile(`\\(?:[nrtbf"/\\]|u[0-9a-fA-F]{4})`)
)

// multiples are words for powers of ten.
var multiples = map[string]int{"k": 3, "thousand": 3, "тыс": 3, "mln": 6, "million": 6, "млн": 6}

// amounts are what a number may mean, each as decimal gives it: what is no amount, as a date, means its digits and each
// of its parts.
func amounts(n string) (all []string) {
	parts := amount.FindStringSubmatch(n)
	if parts == nil || strings.ContainsFunc(parts[1], unicode.IsSpace) {
		for _, part := range strings.FieldsFunc(n, func(r rune) bool { return r < '0' || r > '9' }) {
			all = append(all, decimal(part, 0))
		}
	}
	if parts == nil {
		return append(all, decimal(digits(n), 0))
	}
	power := multiples[strings.ToLower(parts[3])]
	all = append(all, decimal(digits(parts[1])+"."+parts[2], power))
	if whole, fraction, ok := strings.Cut(strings.ReplaceAll(parts[1], ",", "."), "."); ok && isDecimal.MatchString(
		whole+"."+fraction) { // one dot or comma may part thousands, or a fraction
		all = append(all, decimal(whole+"."+fraction, power))
	}
	return all
}

// decimal is a number times a power of ten as its digits without zeros around, and the power that they are to be taken
// by: "25e-1" of 2.50.
func decimal(n string, power int) string {
	whole, fraction, _ := strings.Cut(n, ".")
	all := strings.TrimLeft(whole+fraction, "0")
	short := strings.TrimRight(all, "0")
	if short == "" {
		return "0e0"
	}
	return fmt.Sprintf("%se%d", short, power-len(fraction)+len(all)-len(short))
}

func digits(n string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, n)
}

// telling matches what a text is recognised by: addresses, and words with digits.
var telling = regexp.MustCompile(`[^\s"'<>()\[\]]+(?:@|://)[^\s"'<>()\[\]]+|[\pL\pN][\pL\pN.,_/-]*\d[\pL\pN.,_/-]*|\d`)

// tellingValues are those of a text, words if they have so many digits.
func tellingValues(content string, least int) (values []string) {
	for _, v := range telling.FindAllString(visible(content), -1) {
		if strings.ContainsAny(v, "@:") || len(digits(v)) >= least {
			values = append(values, strings.TrimRight(v, ".,"))
		}
	}
	return values
}

// names are words of a text with a large letter, but for those that begin a sentence of more words than a name has; what
// follows a title, as Dr., begins none.
func names(content string) (all []string) {
	words := strings.Fields(content)
	for i, word := range words {
		name := strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if isUpper(name) && (len(words) <= 3 || i > 0 && (!strings.ContainsAny(words[i-1], ".!?:") || isUpper(words[i-1]))) {
			all = append(all, name)
		}
	}
	return all
}

func isUpper(word string) bool {
	first, _ := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(first)
}

// visible is a text in compatibility form, with the digits of all scripts as 0 to 9, without what is not seen.
func visible(content string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
			return -1
		case r > unicode.MaxASCII && unicode.IsDigit(r):
			return rune('0' + envelope.Digit(r))
		}
		return r
	}, norm.NFKC.String(content))
}

// plain is a visible text in lower case, with one space around each word. Russian words are without their endings: a
// user inflects the name that a call has as it is. A stemmer is no help with names, since it takes Елена for a verb.
func plain(content string) string {
	words := strings.FieldsFunc(strings.ToLower(visible(content)), func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.Nd, unicode.Mn)
	})
	for i, word := range words {
		words[i] = inflected.ReplaceAllString(word, "$1")
	}
	return " " + strings.Join(append(words, ""), " ")
}

// ledgerKey is that of a Ledger in a context.
type ledgerKey struct{}

// In gives a context whose tools tell a ledger what they give.
func In(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ledgerKey{}, l)
}

// From is the ledger of a context; nil if it has none.
func From(ctx context.Context) *Ledger {
	l, _ := ctx.Value(ledgerKey{}).(*Ledger)
	return l
}
