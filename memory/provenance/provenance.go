// Package provenance knows whose words the agents of a run were given, and with that where a value is from that they
// write: taint tracking over texts, since models have none. A Ledger owns what it was told for as long as a run lasts,
// over waits too. A value counts as a person's, or as a tool's of this service, only if it stands there as it is, up to
// case, punctuation, the endings of Russian words and the form of numbers. If the run has a text of anybody else, a
// number, an address or an identifier of any other source counts as that text's, whatever the model says of it.
package provenance

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
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
	said  []*text        // by the user, what is certainly theirs first of each message; guarded by mu
	own   []*text        // by tools of this service, and by its models with no trace of others; guarded by mu
	given []*text        // by documents, tools and images, and pasted; guarded by mu
	// beside are texts of clients and of tools' descriptions. A value may be from one, and none makes others so.
	beside []*text // guarded by mu
}

// piece is a text as it was given.
type piece struct {
	memory.Origin
	Text string `json:"text"`
}

// text is a piece with the forms that it is searched in.
type text struct {
	piece
	words     string              // in lower case, each between two spaces
	squeezed  string              // without anything but letters and digits
	parted    map[int]bool        // where words begin and end in that
	numbers   map[string]bool     // see amounts; of the words of others
	figures   map[string][]figure // of the words of the user and of this service, by their values
	sums      bool                // one of those is an amount of money
	addresses map[string]bool     // of the same
	rows      map[string]bool     // its words, and each four that follow each other; nil until asked for
}

// MaybePasted is the Source of words in a message of the user of which it is not certain that they typed them.
const MaybePasted = "a message that may have pasted text"

// Add tells the ledger of a text.
func (l *Ledger) Add(o memory.Origin, content string) {
	if o.From == memory.FromUser {
		l.Said(content, nil)
	} else {
		l.add(o, content)
	}
}

// Said tells the ledger of a message of the user; see memory.Own for the parts that were pasted. Those cannot pass for
// the tag of an envelope.
func (l *Ledger) Said(content string, pasted []memory.Span) {
	w := memory.Own(content, pasted)
	l.add(memory.Origin{From: memory.FromUser}, w.Typed)
	if w.Own != w.Typed {
		l.add(memory.Origin{From: memory.FromUser, Source: MaybePasted}, w.Own)
	}
	l.add(memory.Pasted, strings.ReplaceAll(w.Pasted, "<", " "))
}

// Saw tells the ledger of something without a text, such as an image.
func (l *Ledger) Saw(o memory.Origin) { l.add(o, unseen) }

// unseen stands for what the ledger cannot read.
const unseen = "\x00"

func (l *Ledger) add(o memory.Origin, content string) {
	if l == nil || strings.TrimSpace(content) == "" {
		return
	}
	p := piece{o, content}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known[p] {
		return
	}
	if l.known == nil {
		l.known = map[piece]bool{}
	}
	l.known[p] = true
	switch {
	case o.From == memory.FromClient:
		l.beside = append(l.beside, &text{piece: p})
	case o.From == memory.FromUser:
		l.said = append(l.said, &text{piece: p})
	case o.From.Foreign():
		l.given = append(l.given, &text{piece: p})
	default:
		l.own = append(l.own, &text{piece: p})
	}
}

// Save gives what another Ledger of the same run goes on from; Restore takes it.
func (l *Ledger) Save() (json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []piece
	for _, t := range slices.Concat(l.said, l.own, l.given, l.beside) {
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

// Of is the origin of what an agent wrote. It is the agent if the run has no text of others, or if what it wrote shows no
// trace of one: four words in a row or some rare ones, a number, an address or a name that neither the user nor this
// service gave. It is told even of short ones, since a later run may have nothing but this text to know them from.
func (l *Ledger) Of(content string) memory.Origin {
	if l == nil {
		return agents
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.given) == 0 || len(content) > maxJudged { // before anything is done with what may be megabytes
		return l.lowest()
	}
	telling := append(identifying(argument{party: true}, content, false), names(content)...)
	if len(telling) > maxTelling {
		return l.anybody()
	}
	if o := l.taken(content, telling); o != agents {
		return o
	}
	first, _, _ := strings.Cut(content, " ")
	for _, one := range telling {
		if _, ok := l.supplied(argument{}, one, false); !ok && len(one) > 1 && !strings.HasPrefix(first, one) {
			return l.anybody()
		}
	}
	for _, n := range inWords(visible(content)) {
		if !slices.ContainsFunc(slices.Concat(l.said, l.own), func(t *text) bool {
			return t.read().figures[n.value] != nil
		}) {
			return l.anybody()
		}
	}
	return agents
}

var agents = memory.Origin{From: memory.FromAgent}

// maxJudged is how many bytes of a text are looked for: a longer one counts as of the lowest origin that there is.
const maxJudged = 64 << 10

// maxTelling is how many values and names of one are looked for: a text with more counts as of anybody.
const maxTelling = 300

// lowest is the lowest origin that a text was given of; the agent for none. Callers hold mu.
func (l *Ledger) lowest() memory.Origin {
	o := agents
	for _, t := range l.given {
		if t.From.Below(o.From) {
			o = t.Origin
		}
	}
	return o
}

// anybody is the lowest authority of others with the names of all of them: what is from one of them, and nobody knows
// which. The agent for none. Callers hold mu.
func (l *Ledger) anybody() memory.Origin {
	o := l.lowest()
	var sources []string
	for _, t := range l.given {
		if !slices.Contains(sources, t.Shown()) {
			sources = append(sources, t.Shown())
		}
	}
	o.Source = memory.Shorten(strings.Join(sources, ", "), memory.MaxSource)
	return o
}

// taken is the lowest origin that a text has four words in a row of, some rare words, or one of some values. Callers hold
// mu.
func (l *Ledger) taken(content string, telling []string) memory.Origin {
	lowest := agents
	words := strings.Fields(plain(content))
	fours := inFours(words)
	rare := map[string]bool{}
	for _, word := range words {
		if utf8.RuneCountInString(word) >= rareLength {
			rare[word] = true
		}
	}
	for _, u := range slices.Concat(l.said, l.own) {
		known := u.read().inRows()
		has := func(one string, _ bool) bool { return known[one] }
		maps.DeleteFunc(fours, has)
		maps.DeleteFunc(rare, has)
	}
	var values []value
	for _, content := range telling {
		if _, ok := l.supplied(argument{}, content, false); !ok {
			values = append(values, valueOf(content))
		}
	}
	for _, t := range l.given {
		t.read()
		if !t.From.Below(lowest.From) && (lowest.Source != "" || t.From != lowest.From) {
			continue
		}
		if common(t.inRows(), fours) > 0 || telling != nil && common(t.inRows(), rare) >= rareWords ||
			slices.ContainsFunc(values, func(v value) bool { return t.has(v) }) {
			lowest = t.Origin
		}
	}
	return lowest
}

// So many words of so many letters tell that an answer is about a text.
const rareWords, rareLength = 3, 5

// Value is the origin of a value that an agent put into a call.
func (l *Ledger) Value(name, content string) memory.Origin {
	return l.value(argumentOf(name, nil), content, isDecimal.MatchString(strings.TrimPrefix(content, "-")))
}

// value is the origin of a text or a number. One that the user or this service gave is theirs.
func (l *Ledger) value(a argument, content string, number bool) memory.Origin {
	if l == nil || strings.TrimSpace(content) == "" || a.enum[content] {
		return agents
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(content) > maxJudged {
		return l.lowest()
	}
	if o, ok := l.supplied(a, content, number); ok {
		return o
	}
	if code := codes[content]; code != nil &&
		slices.ContainsFunc(l.said, func(t *text) bool { return code.MatchString(t.Text) }) {
		return memory.Origin{From: memory.FromUser}
	}
	whole, others := valueOf(content), slices.Concat(l.given, l.beside)
	if t, found := find(others, func(t *text) bool { return t.has(whole) }); found && (a.party || !isCode(content)) {
		return t.Origin
	}
	if isCode(content) && len(content) > 2 && len(l.given) > 0 && slices.ContainsFunc(l.said, func(t *text) bool {
		return t.read().sums
	}) {
		return l.anybody() // the user named another currency
	}
	telling := identifying(a, content, number)
	if len(telling) > maxTelling && len(l.given) > 0 {
		return l.anybody()
	}
	for _, one := range telling {
		if _, ok := l.supplied(a, one, number); ok || constant(a, one, number) {
			continue
		}
		v := valueOf(one)
		if t, found := find(others, func(t *text) bool { return t.has(v) }); found {
			return t.Origin
		}
		if len(l.given) > 0 {
			return l.anybody()
		}
	}
	if o := l.taken(content, nil); o != agents {
		return o
	}
	if a.party && len(telling) == 0 && len(l.given) > 0 && len(strings.Fields(content)) <= maxName {
		return l.anybody()
	}
	return agents
}

// maxName is how many words the name of a person or a firm has at most.
const maxName = 4

// constant reports whether a number is one that every call may have.
func constant(a argument, one string, number bool) bool {
	return number && !a.id && !a.party && (one == "0" || one == "1")
}

// find returns the first text of a kind, one with a name before one without.
func find(in []*text, is func(*text) bool) (found *text, ok bool) {
	for _, t := range in {
		if (found == nil || found.Source == "" && t.Source != "") && is(t.read()) {
			found = t
		}
	}
	return found, found != nil
}

// supplied is the origin of a value that the user or this service gave, as it is. Callers hold mu.
func (l *Ledger) supplied(a argument, content string, number bool) (memory.Origin, bool) {
	for _, t := range slices.Concat(l.said, l.own) {
		if t.read().gives(a, content, number) {
			return t.Origin, true
		}
	}
	if l.dated(content) {
		return memory.Origin{From: memory.FromUser}, true
	}
	telling := identifying(a, content, number)
	if len(telling) == 0 || len(telling) > maxTelling || telling[0] == strings.TrimSpace(visible(content)) {
		return agents, false
	}
	// All of its values and words, each from somewhere.
	origin, words := memory.Origin{From: memory.FromUser}, plain(content)
	for _, one := range telling {
		o, ok := l.supplied(a, one, number)
		if !ok {
			return agents, false
		}
		if o.From.Below(origin.From) || o.Source != "" && o.From == origin.From {
			origin = o
		}
		words = strings.Replace(words, plain(one), " ", 1)
	}
	for word := range strings.FieldsSeq(words) {
		if _, ok := find(slices.Concat(l.said, l.own), func(t *text) bool {
			return strings.Contains(t.words, " "+word+" ")
		}); !ok {
			return agents, false
		}
	}
	return origin, true
}

// gives reports whether a text of the user or of this service has a value as it is.
func (t *text) gives(a argument, content string, number bool) bool {
	shown := strings.TrimSpace(visible(content))
	if isAddress(shown) {
		return t.addresses[address(shown)]
	}
	value, numeric := numeral(shown), number
	if all := figures(shown); !number && len(all) > 0 && amount.MatchString(strings.TrimLeft(shown, "-−–+ ")) {
		value, numeric = all[0], true
	}
	if numeric {
		whole := shared(t.Text, value)
		for _, power := range []int{0, 2, -2} {
			for _, v := range []figure{value, whole} {
				for _, f := range t.figures[times(v.value, power)] {
					counts := !a.money || !t.sums || f.sum() || f.word
					if counts && (v == value || f.money) && f.supplies(v, a) {
						return true
					}
				}
			}
		}
		if number || value.negative || a.money {
			return false
		}
	}
	words := plain(content)
	squeezed := strings.ReplaceAll(words, " ", "")
	return squeezed != "" && (t.inRows()[strings.TrimSpace(words)] || strings.Contains(t.words, words) ||
		t.From == memory.FromUser && strings.Contains(latin.Replace(t.words), words) ||
		len(squeezed) >= shortest && t.holds(squeezed))
}

// latin writes Russian names as they are in English.
var latin = strings.NewReplacer("а", "a", "б", "b", "в", "v", "г", "g", "д", "d", "е", "e", "ё", "e", "ж", "zh",
	"з", "z", "и", "i", "й", "y", "к", "k", "л", "l", "м", "m", "н", "n", "о", "o", "п", "p", "р", "r", "с", "s", "т", "t",
	"у", "u",
	"ф", "f", "х", "kh", "ц", "ts", "ч", "ch", "ш", "sh", "щ", "shch", "ы", "y", "э", "e", "ю", "yu", "я", "ya", "ь", "",
	"ъ", "")

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

// shortest is how many letters and digits a value has at least that is found also inside of words and across what
// parts it, as the digits of an account are.
const shortest = 6

// value is one that is looked for in the texts of others, in the forms that it is looked for in.
type value struct {
	words, squeezed string
	folded          string   // the words as they could be read
	amounts         []string // what it may mean as a number; nil if it is none
}

func valueOf(content string) value {
	v := value{words: plain(content), folded: plain(read(content))}
	v.squeezed = strings.ReplaceAll(v.words, " ", "")
	n := strings.TrimLeft(strings.ToLower(strings.TrimSpace(visible(content))), "-−–+ ")
	word := strings.TrimLeftFunc(n, func(r rune) bool { return !unicode.IsLetter(r) })
	if _, ok := multiples[word]; (ok || word == "") && number.FindString(n) == n {
		v.amounts = amounts(n)
	} else if mantissa, _, ok := strings.Cut(n, "e"); ok && isDecimal.MatchString(mantissa) { // of a number in JSON
		v.amounts = []string{numeral(n).value}
	}
	return v
}

// has reports whether a value stands in a text of somebody else, in whatever form.
func (t *text) has(v value) bool {
	for _, a := range v.amounts {
		digits, power, _ := strings.Cut(a, "e")
		if t.numbers[a] || t.numbers[times(a, -2)] || (len(digits) > 1 || power != "0") && t.numbers[times(a, 2)] {
			return true
		}
	}
	stands := strings.Contains(t.words, v.words) || strings.Contains(t.words, v.folded)
	return v.squeezed != "" && (v.amounts == nil && stands ||
		len(v.squeezed) >= shortest && t.holds(v.squeezed))
}

// holds reports whether a value stands in a text whatever parts it. The user has to have said it as whole words: a document
// may name an address that is a part of theirs. Scripts without spaces have no such bounds.
func (t *text) holds(squeezed string) bool {
	for at := 0; ; at++ {
		next := strings.Index(t.squeezed[at:], squeezed)
		if next < 0 {
			return false
		}
		at += next
		if t.From.Foreign() || unspaced.MatchString(squeezed) || t.parted[at] && t.parted[at+len(squeezed)] {
			return true
		}
	}
}

// read makes the forms of a text. Callers hold the ledger's mu.
func (t *text) read() *text {
	if t.words != "" {
		return t
	}
	content := visible(nonce.ReplaceAllString(t.Text, ""))
	if strings.Contains(content, `\`) { // of JSON, whose escapes would be letters of the words behind them
		content += " " + escape.ReplaceAllString(content, " ")
	}
	if t.From.Foreign() {
		t.words = plain(content)
		if folded := plain(read(content)); folded != t.words {
			t.words += folded[1:]
		}
		t.squeezed = strings.ReplaceAll(t.words, " ", "")
		t.numbers = map[string]bool{}
		for _, n := range number.FindAllString(content, -1) {
			for _, a := range amounts(n) {
				t.numbers[a] = true
			}
		}
		return t
	}
	t.words = plain(content)
	t.squeezed = strings.ReplaceAll(t.words, " ", "")
	t.parted = map[int]bool{0: true}
	end := 0
	for word := range strings.FieldsSeq(t.words) {
		end += len(word)
		t.parted[end] = true
	}
	t.figures, t.addresses = map[string][]figure{}, map[string]bool{}
	for _, f := range figures(content) {
		t.figures[f.value], t.sums = append(t.figures[f.value], f), t.sums || f.sum()
	}
	for _, one := range addressed.FindAllString(content, -1) {
		one = address(one)
		t.addresses[one], t.addresses[host(one)] = true, true
	}
	return t
}

// read is a text as it could be read: escapes and letters that look alike resolved, addresses that are spelled out joined.
func read(content string) string {
	return spelledDot.ReplaceAllString(spelledAt.ReplaceAllString(envelope.Fold(content).Text, "@"), ".")
}

// inRows returns the words of a text and each four that follow each other.
func (t *text) inRows() map[string]bool {
	if t.rows == nil {
		words := strings.Fields(t.words)
		t.rows = inFours(words)
		for _, word := range words {
			t.rows[word] = true
		}
	}
	return t.rows
}

// common is how many texts are in both.
func common(a, b map[string]bool) (n int) {
	for one := range b {
		if a[one] {
			n++
		}
	}
	return n
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
	// inflected are the stem and the ending of a Russian word.
	inflected = regexp.MustCompile(`^(\p{Cyrillic}{2,}?)[аеёиоуыэюяйьмх]{1,3}$`)
	escape    = regexp.MustCompile(`\\(?:[nrtbf"/\\]|u[0-9a-fA-F]{4})`)
)

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
