// Package price knows what the tokens of models cost, in integer millionths of a USD: by prices.yaml, which is
// embedded and names its sources, under what the configuration says. It owns nothing that changes, asks no vendor,
// and never guesses: a model that it does not know has no price, unless it is on this machine.
package price

import (
	_ "embed"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"

	"github.com/goccy/go-yaml"

	"mneme/access"
)

//go:embed prices.yaml
var builtin []byte

// Price is what a model costs, in USD per million tokens.
type Price struct {
	Input       USD  `yaml:"input"`
	CachedInput *USD `yaml:"cached_input,omitempty"` // of input that the vendor had in its cache; nil: as Input
	CacheWrite  *USD `yaml:"cache_write,omitempty"`  // of input that it put there; nil: as Input
	Output      USD  `yaml:"output"`                 // with the thinking

	Threshold int64  `yaml:"above,omitempty"` // tokens of input beyond which all of a call costs what Long says
	Long      *Price `yaml:"long,omitempty"`
}

// USD is an amount of money in millionths of a dollar; as text it is in dollars, such as 2.50.
type USD int64

// most bounds a price, in millionths of a dollar per million tokens.
const most = 100_000 * access.MicrosPerUSD

// UnmarshalYAML reads dollars with up to six decimals. With an UnmarshalText instead, goccy/go-yaml would format the
// whole document once per price.
func (u *USD) UnmarshalYAML(read func(any) error) error {
	var text string
	if err := read(&text); err != nil {
		return err
	}
	n, err := access.ParseDollars(text)
	if err != nil || n > most {
		return fmt.Errorf("a price is a number of USD per million tokens, such as 2.50, not %q", text)
	}
	*u = USD(n)
	return nil
}

// MarshalText is the price in dollars.
func (u USD) MarshalText() ([]byte, error) { return []byte(access.Dollars(int64(u))), nil }

// Tokens are those of one call, each counted once.
type Tokens struct{ Input, CachedInput, CacheWrite, Output int64 }

// Cost is what tokens cost in millionths of a USD, rounded up.
func (p Price) Cost(t Tokens) int64 {
	if p.Long != nil && t.Input+t.CachedInput+t.CacheWrite > p.Threshold {
		return p.Long.Cost(t)
	}
	cached, write := p.Input, p.Input
	if p.CachedInput != nil {
		cached = *p.CachedInput
	}
	if p.CacheWrite != nil {
		write = *p.CacheWrite
	}
	const million = 1_000_000
	var total, rest int64 // in two parts, so that nothing overflows
	for _, part := range []struct {
		tokens int64
		price  USD
	}{{t.Input, p.Input}, {t.CachedInput, cached}, {t.CacheWrite, write}, {t.Output, p.Output}} {
		n := min(max(part.tokens, 0), access.Most/million*million)
		total += n / million * int64(part.price)
		rest += n % million * int64(part.price)
	}
	return total + (rest+million-1)/million
}

// Most is the most that so many tokens of input and output can cost.
func (p Price) Most(input, output int64) int64 {
	t := Tokens{Input: input, Output: output}
	if p.Long != nil && input > p.Threshold {
		return p.Long.Most(input, output)
	}
	if p.CacheWrite != nil && *p.CacheWrite > p.Input {
		t.Input, t.CacheWrite = 0, input
	}
	return p.Cost(t)
}

// Table are the prices of models by their vendors' names.
type Table struct {
	Unpriced map[string]string // why there is none of a model that is proposed to users
	models   map[string]Price
}

// New is the built-in table with own entries over it.
func New(own map[string]Price) (*Table, error) {
	var file struct {
		Models   map[string]Price  `yaml:"models"`
		Unpriced map[string]string `yaml:"unpriced"`
	}
	if err := yaml.UnmarshalWithOptions(builtin, &file, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("prices.yaml: %w", err)
	}
	maps.Copy(file.Models, own)
	return &Table{Unpriced: file.Unpriced, models: file.Models}, nil
}

// dated is what the names of one model's versions end in: -20250514, -2024-08-06, -latest.
var dated = regexp.MustCompile(`-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$`)

// Local says whether an address is one of this machine.
func Local(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// LookupAt is Of for a server that is local or not: a model without a price costs nothing at one that is.
func (t *Table) LookupAt(local bool, model string) (Price, bool) {
	p, ok := t.Lookup(model)
	return p, ok || local && t != nil
}

// Lookup is the price of a model as its vendor calls it, also by the name without its version's date; false if it is not
// known.
func (t *Table) Lookup(model string) (Price, bool) {
	if t == nil {
		return Price{}, false
	}
	p, ok := t.models[model]
	if !ok {
		p, ok = t.models[dated.ReplaceAllString(model, "")]
	}
	return p, ok
}
