// Package provenance knows whose words the agents of a run were given, and with that where a value is from that they
// write: taint tracking over texts, since models have none. A Ledger owns what it was told for as long as a run lasts,
// over waits too. It judges by what stands there to the letter, up to case, punctuation and the form of numbers: what a
// model computes or translates has no origin but the model.
package provenance

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"mneme/memory"
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
	numbers  map[string]bool // their digits, without what parts them
	fours    map[string]bool // four words that follow each other; nil until asked for
}

// Add tells the ledger of a text. Of a user's, what they pasted is from outside.
func (l *Ledger) Add(o memory.Origin, content string) {
	if l == nil {
		return
	}
	if o.From == memory.FromUser {
		own, pasted := memory.Own(content)
		l.add(o, own)
		o, content = memory.Origin{From: memory.FromOutside, Source: "a text that the user pasted"}, pasted
	}
	l.add(o, content)
}

// AddMessages tells the ledger of a history.
func (l *Ledger) AddMessages(messages []memory.Message, subagent bool) {
	for _, m := range messages {
		l.Add(m.Written(subagent), m.Content)
	}
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

// Of is the origin of what an agent wrote: the lowest that it has four words in a row of, or a figure or an address,
// which the user did not say; else the agent.
func (l *Ledger) Of(content string) memory.Origin {
	if l == nil {
		return memory.Origin{From: memory.FromAgent}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken(content)
}

// taken is Of. Callers hold mu.
func (l *Ledger) taken(content string) memory.Origin {
	lowest := memory.Origin{From: memory.FromAgent}
	if len(l.given) == 0 {
		return lowest
	}
	words := strings.Fields(plain(content))
	fours := inFours(words)
	for _, u := range l.user {
		u.read()
		for four := range fours {
			if strings.Contains(u.words, four) {
				delete(fours, four)
			}
		}
	}
	telling := slices.DeleteFunc(tellingValues(content), l.said)
	for _, t := range l.given {
		t.read()
		if !t.From.Below(lowest.From) && (lowest.Source != "" || t.From != lowest.From) {
			continue
		}
		if t.shares(fours) || slices.ContainsFunc(telling, t.has) {
			lowest = t.Origin
		}
	}
	return lowest
}

// Value is the origin of a value that an agent put into a call. One that the user said is the user's, and a long text is
// from where Of says.
func (l *Ledger) Value(value string) memory.Origin {
	if l == nil || plain(value) == " " {
		return memory.Origin{From: memory.FromAgent}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said(value) {
		return memory.Origin{From: memory.FromUser}
	}
	if t := stand(value, l.given); t != nil {
		return t.Origin
	}
	return l.taken(value)
}

// Foreign says whether the agents were given anything that is neither the user's nor theirs.
func (l *Ledger) Foreign() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.given) > 0
}

// said says whether the user said a value. Their 20 is no 2000 if another text has that: it may be hundredths, and may
// be what its author wants. Callers hold mu.
func (l *Ledger) said(value string) bool {
	words := plain(value)
	exactly := func(t *text) bool { return t.read().exactly(words) }
	return slices.ContainsFunc(l.user, exactly) ||
		stand(value, l.user) != nil && !slices.ContainsFunc(l.given, exactly)
}

// stand is the first text with a value, one with a name before one without.
func stand(value string, in []*text) (found *text) {
	for _, t := range in {
		if t.read().has(value) && (found == nil || found.Source == "") {
			found = t
		}
	}
	return found
}

// shortest is how many letters and digits a value has at least that is found also inside of words and across what
// parts it, as the digits of an account are.
const shortest = 6

// has says whether a value stands in a text.
func (t *text) has(value string) bool {
	words := plain(value)
	squeezed := strings.ReplaceAll(words, " ", "")
	if squeezed == "" {
		return false
	}
	if t.exactly(words) {
		return true
	}
	if len(squeezed) == 1 || strings.Trim(squeezed, "0123456789") != "" {
		return false
	}
	whole := strings.TrimSuffix(squeezed, "00") // an amount, and its hundredths
	return t.numbers[squeezed+"00"] || len(whole) > 1 && t.numbers[whole]
}

// exactly says whether a value stands in a text with these digits, its words parted by single spaces.
func (t *text) exactly(words string) bool {
	squeezed := strings.ReplaceAll(words, " ", "")
	return t.numbers[squeezed] || strings.Contains(t.words, words) ||
		len(squeezed) >= shortest && strings.Contains(t.squeezed, squeezed)
}

// read makes the forms of a text. Callers hold the ledger's mu.
func (t *text) read() *text {
	if t.words == "" {
		t.words = plain(t.Text)
		t.squeezed = strings.ReplaceAll(t.words, " ", "")
		t.numbers = map[string]bool{}
		for _, n := range number.FindAllString(norm.NFKC.String(t.Text), -1) {
			t.numbers[strings.Map(digit, n)] = true
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

// inFours are all four words that follow each other, each with a space around.
func inFours(words []string) map[string]bool {
	fours := map[string]bool{}
	for i := 0; i+4 <= len(words); i++ {
		fours[" "+strings.Join(words[i:i+4], " ")+" "] = true
	}
	return fours
}

// number matches digits with what parts them in amounts, dates and accounts.
var number = regexp.MustCompile(`\d+(?:[.,'’-]\d+|[\s\x{a0}\x{202f}]\d{3}\b)*`)

func digit(r rune) rune {
	if r < '0' || r > '9' {
		return -1
	}
	return r
}

// telling matches what a text is recognised by: addresses, and words with three digits or more.
var telling = regexp.MustCompile(`[^\s"'<>()\[\]]+(?:@|://)[^\s"'<>()\[\]]+|[\pL\pN][\pL\pN.,_/-]*\d[\pL\pN.,_/-]*`)

// tellingValues are those of a text.
func tellingValues(content string) (values []string) {
	for _, v := range telling.FindAllString(norm.NFKC.String(content), -1) {
		if strings.ContainsAny(v, "@:") || len(strings.Map(digit, v)) >= 3 {
			values = append(values, strings.TrimRight(v, ".,"))
		}
	}
	return values
}

// plain is a text in lower case, with one space around each word, in compatibility form and without what is not seen.
func plain(content string) string {
	var b strings.Builder
	b.WriteByte(' ')
	spaced := true
	for _, r := range norm.NFKC.String(content) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r):
			b.WriteRune(unicode.ToLower(r))
			spaced = false
		case unicode.Is(unicode.Cf, r):
		case !spaced:
			b.WriteByte(' ')
			spaced = true
		}
	}
	if !spaced {
		b.WriteByte(' ')
	}
	return b.String()
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

// Lower is the lower one of two origins, the first if they are alike.
func Lower(a, b memory.Origin) memory.Origin {
	if b.From.Below(cmp.Or(a.From, memory.FromUser)) || a.From == b.From && a.Source == "" {
		return b
	}
	return a
}
