// Package provenance finds the origin of the values that agents write. It is taint tracking over texts, because models
// have none. A Ledger keeps the texts that the agents of a run were given until the run ends, and while it waits. A value
// belongs to the user or to a tool of this service only if a text of theirs contains it, up to case, punctuation, the
// endings of Russian words and the form of numbers. If the run has foreign texts, any other number, address or identifier
// is foreign.
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

	"mneme/memory"
	"mneme/memory/envelope"
	"mneme/memory/number"
)

// Ledger holds the texts that the agents of one run were given. The zero value is empty. A nil Ledger stores nothing. It
// is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	unique   map[piece]bool // guarded by mu
	user     []*text        // of the user; of each message first the part that they surely typed; guarded by mu
	own      []*text        // of tools of this service, and of its models without a trace of other texts; guarded by mu
	external []*text        // of documents, other tools and images, and pasted text; guarded by mu
	// neutral are texts of clients and descriptions of tools. A value can be theirs, but they taint no run.
	neutral []*text // guarded by mu
}

// piece is a text with its origin.
type piece struct {
	memory.Origin
	Text string `json:"text"`
}

// text is a piece with its search forms.
type text struct {
	piece
	words     string                      // in lower case, with a space around each
	squeezed  string                      // only the letters and digits
	parted    map[int]bool                // where words begin and end in squeezed
	numbers   map[number.Decimal]bool     // see amounts; only of other texts
	figures   map[number.Decimal][]figure // only of texts of the user and of this service, by value
	sums      bool                        // a figure is an amount of money
	ratio     float64                     // the part or multiple of a sum that it asks for; 0 for none
	latin     string                      // words, transliterated; only of the user
	addresses map[string]bool             // of the same
	rows      map[string]bool             // its words, and each four that follow each other; nil until asked for
}

// maybePasted is the Source of words in a message of the user that may be pasted. Only these have a Source among the texts
// of the user. An argument that the user has to write themselves relies on this, see external.Tool.FromUser.
const maybePasted = "a message that may have pasted text"

// Add adds a text.
func (l *Ledger) Add(o memory.Origin, content string) {
	if o.Authority == memory.FromUser {
		l.AddMessage(content, nil)
	} else {
		l.add(o, content)
	}
}

// AddMessage adds a message of the user, see memory.Own. Pasted parts cannot form a tag of an envelope.
func (l *Ledger) AddMessage(content string, pasted []memory.Span) {
	w := memory.Own(content, pasted)
	l.add(memory.Origin{Authority: memory.FromUser}, w.Typed)
	if w.Own != w.Typed {
		l.add(memory.Origin{Authority: memory.FromUser, Source: maybePasted}, w.Own)
	}
	l.add(memory.Pasted, strings.ReplaceAll(w.Pasted, "<", " "))
}

// AddNonText adds content without a text, such as an image.
func (l *Ledger) AddNonText(o memory.Origin) { l.add(o, unseen) }

// unseen is the text of content that has none.
const unseen = "\x00"

func (l *Ledger) add(o memory.Origin, content string) {
	if l == nil || strings.TrimSpace(content) == "" {
		return
	}
	p := piece{o, content}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unique[p] {
		return
	}
	if l.unique == nil {
		l.unique = map[piece]bool{}
	}
	l.unique[p] = true
	switch {
	case o.Authority == memory.FromClient:
		l.neutral = append(l.neutral, &text{piece: p})
	case o.Authority == memory.FromUser:
		l.user = append(l.user, &text{piece: p})
	case o.Authority.Foreign():
		l.external = append(l.external, &text{piece: p})
	default:
		l.own = append(l.own, &text{piece: p})
	}
}

// Save returns the texts for another Ledger of the same run, see Restore.
func (l *Ledger) Save() (json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pieces []piece
	for _, t := range slices.Concat(l.user, l.own, l.external, l.neutral) {
		pieces = append(pieces, t.piece)
	}
	return json.Marshal(pieces)
}

// Restore adds the texts that Save returned. Nil adds nothing.
func (l *Ledger) Restore(saved json.RawMessage) error {
	var pieces []piece
	if saved == nil {
		return nil
	}
	err := json.Unmarshal(saved, &pieces)
	for _, p := range pieces {
		l.add(p.Origin, p.Text)
	}
	return err
}

// OriginOf returns the origin of a text that an agent wrote. It is the agent if the run has no foreign text, or if the text has
// no trace of one. A trace is four words in a row, some rare words, or a number, an address or a name from neither the
// user nor this service. Short values count too, because a later run may know them only from this text.
func (l *Ledger) OriginOf(content string) memory.Origin {
	if l == nil {
		return agents
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.external) == 0 || len(content) > maxJudged { // before anything is done with what may be megabytes
		return l.lowest()
	}
	telling := append(identifying(argument{party: true}, content, false), names(content)...)
	if len(telling) > maxTelling {
		return l.anybody()
	}
	if o := l.overlapOrigin(content, telling); o != agents {
		return o
	}
	first, _, _ := strings.Cut(content, " ")
	for _, one := range telling {
		if _, ok := l.supplied(argument{}, one, false); !ok && len(one) > 1 && !strings.HasPrefix(first, one) {
			return l.anybody()
		}
	}
	for _, n := range number.Find(visible(content)) {
		if n.Words && !n.Vague && !slices.ContainsFunc(slices.Concat(l.user, l.own), func(t *text) bool {
			return t.read().figures[n.Decimals[0]] != nil
		}) {
			return l.anybody()
		}
	}
	return agents
}

var agents = memory.Origin{Authority: memory.FromAgent}

// maxJudged bounds a text that is searched for, in bytes. A longer one has the lowest origin of the run.
const maxJudged = 64 << 10

// maxTelling bounds the values and names of a text that are searched for. A text with more of them is from anybody.
const maxTelling = 300

// lowest returns the lowest origin of a foreign text, or the agent. Callers hold mu.
func (l *Ledger) lowest() memory.Origin {
	o := agents
	for _, t := range l.external {
		if t.Authority.LowerThan(o.Authority) {
			o = t.Origin
		}
	}
	return o
}

// anybody returns the lowest authority of the foreign texts with all of their names, for a value of unknown source. Without
// foreign texts it is the agent. Callers hold mu.
func (l *Ledger) anybody() memory.Origin {
	o := l.lowest()
	var sources []string
	for _, t := range l.external {
		if !slices.Contains(sources, t.DisplaySource()) {
			sources = append(sources, t.DisplaySource())
		}
	}
	o.Source = memory.Shorten(strings.Join(sources, ", "), memory.MaxSource)
	return o
}

// overlapOrigin returns the lowest origin of the foreign texts that share four words in a row, some rare words, or a telling value
// with content. Callers hold mu.
func (l *Ledger) overlapOrigin(content string, telling []string) memory.Origin {
	lowest := agents
	words := strings.Fields(plain(content))
	fours := inFours(words)
	rare := map[string]bool{}
	for _, word := range words {
		if utf8.RuneCountInString(word) >= rareLength {
			rare[word] = true
		}
	}
	for _, u := range slices.Concat(l.user, l.own) {
		rows := u.read().inRows()
		has := func(one string, _ bool) bool { return rows[one] }
		maps.DeleteFunc(fours, has)
		maps.DeleteFunc(rare, has)
	}
	var values []value
	for _, content := range telling {
		if _, ok := l.supplied(argument{}, content, false); !ok {
			values = append(values, valueOf(content))
		}
	}
	for _, t := range l.external {
		t.read()
		if !t.Authority.LowerThan(lowest.Authority) && (lowest.Source != "" || t.Authority != lowest.Authority) {
			continue
		}
		if common(t.inRows(), fours) > 0 || telling != nil && common(t.inRows(), rare) >= rareWords ||
			slices.ContainsFunc(values, func(v value) bool { return t.has(v) }) {
			lowest = t.Origin
		}
	}
	return lowest
}

// An answer is about a text if they share so many words of at least so many letters.
const rareWords, rareLength = 3, 5

// value returns the origin of an argument that an agent put into a call. number reports whether content is a number.
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
		slices.ContainsFunc(l.user, func(t *text) bool { return code.MatchString(t.Text) }) {
		return memory.Origin{Authority: memory.FromUser}
	}
	full, others := valueOf(content), slices.Concat(l.external, l.neutral)
	if t, ok := find(others, func(t *text) bool { return t.has(full) }); ok && (a.party || !isCode(content)) {
		return t.Origin
	}
	if isCode(content) && len(content) > 2 && len(l.external) > 0 && slices.ContainsFunc(l.user, func(t *text) bool {
		return t.read().sums
	}) {
		return l.anybody() // the user named another currency
	}
	telling := identifying(a, content, number)
	if len(telling) > maxTelling && len(l.external) > 0 {
		return l.anybody()
	}
	for _, one := range telling {
		if _, ok := l.supplied(a, one, number); ok || constant(a, one, number) {
			continue
		}
		v := valueOf(one)
		if t, ok := find(others, func(t *text) bool { return t.has(v) }); ok {
			return t.Origin
		}
		if len(l.external) > 0 {
			return l.anybody()
		}
	}
	if o := l.overlapOrigin(content, nil); o != agents {
		return o
	}
	if a.party && len(telling) == 0 && len(l.external) > 0 && len(strings.Fields(content)) <= maxName {
		return l.anybody()
	}
	return agents
}

// maxName is the largest number of words in the name of a person or a firm.
const maxName = 4

// constant reports whether any call may have a number.
func constant(a argument, one string, number bool) bool {
	return number && !a.id && !a.party && (one == "0" || one == "1")
}

// find returns the first matching text. Texts with a source come before texts without one.
func find(in []*text, is func(*text) bool) (best *text, ok bool) {
	for _, t := range in {
		if (best == nil || best.Source == "" && t.Source != "") && is(t.read()) {
			best = t
		}
	}
	return best, best != nil
}

// supplied returns the origin of a value in the texts of the user or of this service. Callers hold mu.
func (l *Ledger) supplied(a argument, content string, number bool) (memory.Origin, bool) {
	for _, texts := range [][]*text{l.user, l.own} {
		for _, t := range texts {
			if t.read().contains(a, content, number) {
				return t.Origin, true
			}
		}
	}
	if l.dated(content) {
		return memory.Origin{Authority: memory.FromUser}, true
	}
	telling := identifying(a, content, number)
	if len(telling) == 0 || len(telling) > maxTelling || telling[0] == strings.TrimSpace(visible(content)) {
		return agents, false
	}
	// Each of its values and words may be in another text of theirs.
	origin, words := memory.Origin{Authority: memory.FromUser}, plain(content)
	for _, one := range telling {
		o, ok := l.supplied(a, one, number)
		if !ok {
			return agents, false
		}
		if o.Authority.LowerThan(origin.Authority) || o.Source != "" && o.Authority == origin.Authority {
			origin = o
		}
		words = strings.Replace(words, plain(one), " ", 1)
	}
	for word := range strings.FieldsSeq(words) {
		has := func(t *text) bool { return strings.Contains(t.words, " "+word+" ") }
		if !slices.ContainsFunc(l.user, has) && !slices.ContainsFunc(l.own, has) {
			return agents, false
		}
	}
	return origin, true
}

// contains reports whether a text contains a value. The text is from the user or from this service.
func (t *text) contains(a argument, content string, number bool) bool {
	trimmed := strings.TrimSpace(visible(content))
	if isAddress(trimmed) {
		return t.addresses[address(trimmed)]
	}
	value, numeric := sole(trimmed, number)
	if numeric {
		scaled := shared(t.ratio, value)
		for _, power := range []int{0, 2, -2} {
			for _, v := range []figure{value, scaled} {
				for _, f := range t.figures[v.value.Shift(power)] {
					counts := !a.money || !t.sums || f.sum() || f.word
					if counts && (v == value || f.money) && f.supplies(v, a) {
						return true
					}
				}
			}
		}
		if number || a.money || value.value != value.value.Abs() {
			return false
		}
	}
	words := plain(content)
	squeezed := strings.ReplaceAll(words, " ", "")
	return squeezed != "" && (t.inRows()[strings.TrimSpace(words)] || strings.Contains(t.words, words) ||
		strings.Contains(t.latin, words) ||
		len(squeezed) >= shortest && t.holds(squeezed))
}

// latin transliterates Russian names.
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
	if len(l.external) > 0 {
		o = l.external[0].Origin
	}
	return o
}

// shortest is the least number of letters and digits of a value that is found inside words and across separators, such
// as the digits of an account.
const shortest = 6

// value has the search forms of a value.
type value struct {
	words, squeezed string
	folded          string           // the words as a reader sees them
	amounts         []number.Decimal // its meanings as a number; nil for other values
}

func valueOf(content string) value {
	v := value{words: plain(content), folded: plain(read(content))}
	v.squeezed = strings.ReplaceAll(v.words, " ", "")
	n := strings.TrimLeft(strings.ToLower(strings.TrimSpace(visible(content))), "-−–+ ")
	if numbers := number.Find(n); len(numbers) > 0 && numbers[0].Start == 0 && numbers[len(numbers)-1].End == len(n) &&
		!numbers[0].Words && (len(numbers) == 1 || !strings.ContainsFunc(n, unicode.IsLetter)) {
		v.amounts = amounts(n)
	}
	return v
}

// has reports whether a foreign text contains a value in any form.
func (t *text) has(v value) bool {
	for _, a := range v.amounts {
		digit := a.Compare(number.New(false, "9", "", 0)) <= 0 && strings.HasSuffix(a.String(), "e0")
		if t.numbers[a] || t.numbers[a.Shift(-2)] || !digit && t.numbers[a.Shift(2)] {
			return true
		}
	}
	matched := strings.Contains(t.words, v.words) || strings.Contains(t.words, v.folded)
	return v.squeezed != "" && (v.amounts == nil && matched ||
		len(v.squeezed) >= shortest && t.holds(v.squeezed))
}

// holds reports whether a text contains a value across separators. In the user's text it must be whole words, because a
// document may name an address that is a part of theirs. Scripts without spaces have no such bounds.
func (t *text) holds(squeezed string) bool {
	for i := 0; ; i++ {
		next := strings.Index(t.squeezed[i:], squeezed)
		if next < 0 {
			return false
		}
		i += next
		if t.Authority.Foreign() || memory.Unspaced.MatchString(squeezed) || t.parted[i] && t.parted[i+len(squeezed)] {
			return true
		}
	}
}

// read computes the forms of a text. Callers hold the ledger's mu.
func (t *text) read() *text {
	if t.words != "" {
		return t
	}
	content := visible(nonce.ReplaceAllString(t.Text, ""))
	if strings.Contains(content, `\`) { // of JSON, whose escapes would be letters of the words behind them
		content += " " + escape.ReplaceAllString(content, " ")
	}
	if t.Authority.Foreign() {
		t.words = plain(content)
		if folded := plain(read(content)); folded != t.words {
			t.words += folded[1:]
		}
		t.squeezed = strings.ReplaceAll(t.words, " ", "")
		t.numbers = map[number.Decimal]bool{}
		for _, a := range amounts(content) {
			t.numbers[a] = true
		}
		return t
	}
	t.words, t.ratio = plain(content), ratio(t.Text)
	if t.Authority == memory.FromUser {
		t.latin = latin.Replace(t.words)
	}
	t.squeezed = strings.ReplaceAll(t.words, " ", "")
	t.parted = map[int]bool{0: true}
	end := 0
	for word := range strings.FieldsSeq(t.words) {
		end += len(word)
		t.parted[end] = true
	}
	t.figures, t.addresses = map[number.Decimal][]figure{}, map[string]bool{}
	for _, f := range figures(content) {
		t.figures[f.value], t.sums = append(t.figures[f.value], f), t.sums || f.sum()
	}
	for _, one := range addressed.FindAllString(content, -1) {
		one = address(one)
		t.addresses[one], t.addresses[host(one)] = true, true
	}
	return t
}

// read returns a text as a reader sees it. It resolves escapes and letters that look alike, and joins addresses that are
// spelled out.
func read(content string) string {
	return spelledDot.ReplaceAllString(spelledAt.ReplaceAllString(envelope.Fold(content).Text, "@"), ".")
}

// inRows returns the words of a text and each four words in a row.
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

// common counts the members of both sets.
func common(a, b map[string]bool) (n int) {
	for one := range b {
		if a[one] {
			n++
		}
	}
	return n
}

// inFours returns each four words in a row, with a space around each word.
func inFours(words []string) map[string]bool {
	fours := map[string]bool{}
	for i := 0; i+4 <= len(words); i++ {
		fours[" "+strings.Join(words[i:i+4], " ")+" "] = true
	}
	return fours
}

var (
	// nonce matches the tags of envelopes, whose random digits belong to no text. No text from outside has such a tag.
	nonce = regexp.MustCompile(`</?(?:passage|recalled|outside) nonce="[A-Z2-7]{26}"`)
	// inflected are the stem and the ending of a Russian word.
	inflected = regexp.MustCompile(`^(\p{Cyrillic}{2,}?)[аеёиоуыэюяйьмх]{1,3}$`)
	escape    = regexp.MustCompile(`\\(?:[nrtbf"/\\]|u[0-9a-fA-F]{4})`)
)

// names returns the capitalised words of a text, except at the beginning of a sentence. A text of up to three words may be
// a name, and the word after a title such as Dr. begins no sentence.
func names(content string) (list []string) {
	words := strings.Fields(content)
	for i, word := range words {
		name := strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		if isUpper(name) && (len(words) <= 3 || i > 0 && (!strings.ContainsAny(words[i-1], ".!?:") || isUpper(words[i-1]))) {
			list = append(list, name)
		}
	}
	return list
}

func isUpper(word string) bool {
	first, _ := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(first)
}

// visible returns a text as number.Fold does, without invisible characters.
func visible(content string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, number.Fold(content))
}

// plain returns a visible text in lower case, with one space around each word. Russian words lose their endings, because
// users inflect names and calls do not. A stemmer does not help with names. It treats Елена as a verb.
func plain(content string) string {
	words := strings.FieldsFunc(strings.ToLower(visible(content)), func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.Nd, unicode.Mn)
	})
	for i, word := range words {
		words[i] = inflected.ReplaceAllString(word, "$1")
	}
	return " " + strings.Join(append(words, ""), " ")
}

// ledgerKey is the key of a Ledger in a context.
type ledgerKey struct{}

// In returns a context whose tools add their results to a ledger.
func In(ctx context.Context, l *Ledger) context.Context {
	return context.WithValue(ctx, ledgerKey{}, l)
}

// FromContext returns the ledger of a context, or nil.
func FromContext(ctx context.Context) *Ledger {
	l, _ := ctx.Value(ledgerKey{}).(*Ledger)
	return l
}
