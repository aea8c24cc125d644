package provenance

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"mneme/memory"
	"mneme/memory/envelope"
	"mneme/memory/event"
	"mneme/memory/number"
)

// Bounds of the origins that a person sees.
const (
	maxOrigins = 64  // values of one call
	maxValue   = 100 // bytes of a value
)

// argument is the meaning of an argument by its name and its schema.
type argument struct {
	cents bool // it counts hundredths of a currency
	major bool // it counts a currency
	money bool // it is an amount of money
	party bool // it names a recipient or a target
	id    bool // it identifies something
	enum  map[string]bool
}

var (
	majorUnit = regexp.MustCompile(`(?i)(?:^|_)(?:eur|euros?|usd|dollars?|gbp|pounds?|rub|rubles?|chf)(?:_|$)`)
	sums      = regexp.MustCompile(`(?i)(?:^|_)(?:amount|sum|total|price|cost|fee|refund|payment|betrag|summe|preis|value|limit|` +
		`budget|balance|salary|сумма|цена)(?:_|$)`)
	parties = regexp.MustCompile(`(?i)(?:^|_)(?:to|cc|bcc|recipients?|receiver|payee|beneficiary|users?|owner|assignee|accounts?|` +
		`iban|bic|emails?|mail|phone|tel|mobile|address|urls?|uri|link|host|domain|webhook|channel|members?|contact|` +
		`customer|login|handle|wallet|card|roles?|permissions?|scopes?|groups?|path|file|folder|branch|repo|repository|table|` +
		`database|bucket|command|empfänger|konto|получатель|кому)(?:_|$)`)
	idNames = regexp.MustCompile(`(?i)(?:^|_)(?:ids?|number|no|nr|order|index|key|ticket|case)(?:_|$)`)
	humps   = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// argumentOf reads the name of an argument and the schema of its outermost member.
func argumentOf(name string, properties map[string]json.RawMessage) (a argument) {
	var own struct {
		Description string            `json:"description"`
		Enum        []json.RawMessage `json:"enum"`
	}
	outer, _, _ := strings.Cut(name, ".")
	_ = json.Unmarshal(properties[outer], &own) // a missing or damaged schema has no meanings
	last := humps.ReplaceAllString(strings.ReplaceAll(name[strings.LastIndex(name, ".")+1:], "-", "_"), "${1}_${2}")
	spaced := strings.ReplaceAll(last, "_", " ")
	a.cents = cent.MatchString(spaced) || cent.MatchString(own.Description)
	a.major = !a.cents && majorUnit.MatchString(last)
	a.money = a.cents || a.major || sums.MatchString(last)
	a.party, a.id = parties.MatchString(last), idNames.MatchString(last)
	for _, one := range own.Enum {
		if a.enum == nil {
			a.enum = map[string]bool{}
		}
		a.enum[strings.Trim(string(one), `"`)] = true
	}
	return a
}

// Arguments returns the origins of the values of a call's arguments, in the order of their names. Undeclared names are
// values too; parameters is the schema. A call without values has the first foreign origin of the run, which may have caused
// the call. So have values after the first maxOrigins.
func (l *Ledger) Arguments(parameters, arguments json.RawMessage) (origins []event.ArgumentOrigin) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(parameters, &schema) != nil {
		schema.Properties = nil
	}
	walk(arguments, func(name, value string, number bool) bool {
		if len(origins) == maxOrigins {
			origins = append(origins, event.ArgumentOrigin{Argument: "…", Origin: l.foreign()})
			return false
		}
		origin := l.value(argumentOf(name, schema.Properties), value, number)
		origins = append(origins, event.ArgumentOrigin{Argument: name, Value: value, Origin: origin})
		return true
	}, func(name string) bool { return schema.Properties[name] != nil })
	if origin := l.foreign(); len(origins) == 0 && origin != (memory.Origin{}) {
		origins = append(origins, event.ArgumentOrigin{Origin: origin})
	}
	for i := range origins { // the author of a document chose its name
		origins[i].Source, _ = envelope.Label(origins[i].Source)
		origins[i].Argument, _ = envelope.Label(origins[i].Argument)
		origins[i].Value, _ = envelope.Label(memory.Shorten(origins[i].Value, maxValue))
	}
	return origins
}

// walk calls add for the texts and numbers of a JSON value, and for the names of undeclared members, until add returns
// false.
func walk(arguments json.RawMessage, add func(name, value string, number bool) bool, declared func(name string) bool) {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	var root any
	if d.Decode(&root) != nil {
		return // its schema was checked before
	}
	var into func(name string, v any) bool
	into = func(name string, v any) bool {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if (name != "" || !declared(key)) && !add(name, key, false) ||
					!into(strings.TrimPrefix(name+"."+key, "."), v[key]) {
					return false
				}
			}
		case []any:
			return !slices.ContainsFunc(v, func(one any) bool { return !into(name, one) })
		case string:
			return add(name, v, false)
		case json.Number:
			return add(name, v.String(), true)
		}
		return true
	}
	into("", root)
}

// Returned adds the result of a tool. A computed result has the origin of its inputs. From the result of a tool of this
// service, the values of the call itself are left out.
func (l *Ledger) Returned(o memory.Origin, computed bool, arguments, content string) {
	if l == nil || o.Authority.Foreign() {
		l.Add(o, content)
		return
	}
	if !computed && o.Source == "" { // it may quote foreign text
		return
	}
	add := func(_, value string, _ bool) bool {
		if origin := l.computed(value); origin.Authority.LowerThan(o.Authority) {
			o = origin
		}
		return true
	}
	masked, words := []byte(content), [][]int(nil)
	if !computed {
		words = word.FindAllStringIndex(content, -1)
		add = func(_, value string, number bool) bool {
			if len(value) > 1 && l.value(argument{}, value, number).Authority != memory.FromUser {
				blank(masked, words, content, value)
			}
			return true
		}
	}
	walk(json.RawMessage(arguments), add, func(string) bool { return true })
	l.Add(o, string(masked))
}

// word matches a word, an address or a number with all of its digits.
var word = regexp.MustCompile(`(?:\d(?:[\s\x{a0}\x{202f}]\d{3})+\b|[\pL\pN\pM.,'’_@/:+#-])+`)

// blank overwrites the words of a text that a value is in. The rest of such a word would be another value.
func blank(masked []byte, words [][]int, content, value string) {
	for start, end := 0, 0; ; start = end {
		next := strings.Index(content[start:], value)
		if next < 0 {
			return
		}
		start += next
		end = start + len(value)
		i, _ := slices.BinarySearchFunc(words, start, func(w []int, target int) int { return w[1] - target - 1 })
		for ; i < len(words) && words[i][0] < end; i++ {
			copy(masked[words[i][0]:], strings.Repeat(" ", words[i][1]-words[i][0]))
		}
	}
}

// computed returns the lowest origin of the numbers of an expression. Constants count only if a foreign text has them.
func (l *Ledger) computed(expression string) (lowest memory.Origin) {
	lowest = memory.Origin{Authority: memory.FromOwn}
	for _, n := range decimals.FindAllString(visible(expression), -1) {
		if len(digits(n)) <= 2 || strings.Trim(n, "0") == "1" {
			l.mu.Lock()
			d, _ := number.Parse(n)
			_, ok := find(l.external, func(t *text) bool { return t.numbers[d] })
			l.mu.Unlock()
			if !ok {
				continue
			}
		}
		if origin := l.value(argument{}, n, true); origin.Authority.LowerThan(lowest.Authority) {
			lowest = origin
		}
	}
	return lowest
}

var decimals = regexp.MustCompile(`\d+(?:\.\d+)?`)

// isCode reports whether a word is the code of a currency or of a language.
func isCode(word string) bool {
	return (len(word) == 3 && strings.ToUpper(word) == word || len(word) == 2 && strings.ToLower(word) == word) &&
		!strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsLetter(r) })
}
