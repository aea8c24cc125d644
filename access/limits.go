package access

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrBadLimit is wrapped by refusals of a text that is no rate or no budget; the text of
// the error is for its author.
var ErrBadLimit = errors.New("not a limit")

// Unit is what a limit counts.
type Unit string

// The units.
const (
	Requests Unit = "requests" // calls of models
	Tokens   Unit = "tokens"   // input and output together
	USD      Unit = "usd"      // in micro-units: 1 USD is 1,000,000
	AtOnce   Unit = "atonce"   // calls of models that run at the same time
	Runs     Unit = "runs"     // runs, of any number of calls, that go on at the same time
)

// MicrosPerUSD is how many units of money a dollar has.
const MicrosPerUSD = 1_000_000

// Most bounds what a limit may be, in its unit, so that sums stay sound.
const Most = 1_000_000_000_000

// Rate bounds how much may be used in a time, or at once.
type Rate struct {
	N    int64
	Unit Unit          // Requests, Tokens, AtOnce or Runs
	Per  time.Duration // a second, a minute, an hour or a day; 0 for AtOnce and Runs
}

// Period is how long a budget is for: a calendar day or month in UTC, or for ever.
type Period string

// The periods.
const (
	Day   Period = "day"
	Month Period = "month"
	Total Period = "total"
)

// Budget bounds how much may be spent in a period.
type Budget struct {
	N      int64 // in tokens, or in millionths of a USD
	Unit   Unit  // Tokens or USD
	Period Period
}

// Rates are rates of different units, as one text with commas: 60/m,100000tokens/m,8atonce,4runs.
type Rates []Rate

// Budgets are budgets of different units or periods, as one text with commas:
// 5000000tokens/month,20usd/month.
type Budgets []Budget

// Limits bound what one key, one tenant or one user may use. The zero value bounds nothing.
type Limits struct {
	Rate   Rates   `yaml:"rate"   json:"rate,omitempty"`
	Budget Budgets `yaml:"budget" json:"budget,omitempty"`
	Stored int64   `yaml:"-"      json:"-"` // bytes that a tenant may store, 0 for any number
}

// Empty reports whether there are no limits.
func (l Limits) Empty() bool { return len(l.Rate) == 0 && len(l.Budget) == 0 && l.Stored == 0 }

// pers are the times of rates by their letters.
var pers = []struct {
	letter string
	per    time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour}}

// ParseRates reads what Rates.String writes; "" is no rate. Errors wrap ErrBadLimit.
func ParseRates(s string) (Rates, error) {
	return parseList(s, parseRate, func(a, b Rate) bool { return a.Unit == b.Unit && a.Per == b.Per })
}

// ParseBudgets reads what Budgets.String writes; "" is no budget. Errors wrap ErrBadLimit.
func ParseBudgets(s string) (Budgets, error) {
	return parseList(s, parseBudget, func(a, b Budget) bool { return a.Unit == b.Unit && a.Period == b.Period })
}

// ParseLimits reads the texts of rates and of budgets. Errors wrap ErrBadLimit.
func ParseLimits(rate, budget string) (l Limits, err error) {
	if l.Rate, err = ParseRates(rate); err == nil {
		l.Budget, err = ParseBudgets(budget)
	}
	return l, err
}

func parseList[T any](s string, parse func(string) (T, error), same func(a, b T) bool) ([]T, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	var list []T
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		one, err := parse(part)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(other T) bool { return same(one, other) }) {
			return nil, fmt.Errorf("%w: %q bounds what another one in %q bounds already: keep one of them", ErrBadLimit, part, s)
		}
		list = append(list, one)
	}
	return list, nil
}

func parseRate(s string) (Rate, error) {
	bad := fmt.Errorf("%w: a rate is such as 60/m, 5/s, 100000tokens/m (per s, m, h or d), 8atonce or 4runs, not %q",
		ErrBadLimit, s)
	for _, unit := range []Unit{AtOnce, Runs} {
		if number, ok := strings.CutSuffix(s, string(unit)); ok {
			n, ok := parseCount(number)
			if !ok {
				return Rate{}, bad
			}
			return Rate{N: n, Unit: unit}, nil
		}
	}
	amount, letter, _ := strings.Cut(s, "/")
	unit := Requests
	if number, ok := strings.CutSuffix(amount, string(Tokens)); ok {
		amount, unit = number, Tokens
	}
	n, ok := parseCount(amount)
	for _, p := range pers {
		if ok && p.letter == letter {
			return Rate{n, unit, p.per}, nil
		}
	}
	return Rate{}, bad
}

func parseBudget(s string) (Budget, error) {
	bad := fmt.Errorf("%w: a budget is such as 5000000tokens/month, 20usd/month or 0.50usd/day (per day, month or "+
		"total), not %q", ErrBadLimit, s)
	amount, period, _ := strings.Cut(s, "/")
	b := Budget{Period: Period(period)}
	if b.Period != Day && b.Period != Month && b.Period != Total {
		return Budget{}, bad
	}
	if number, ok := strings.CutSuffix(amount, string(Tokens)); ok {
		b.Unit = Tokens
		b.N, _ = parseCount(number)
	} else if number, ok := strings.CutSuffix(amount, string(USD)); ok {
		b.Unit = USD
		b.N, _ = ParseDollars(number)
	}
	if b.N == 0 {
		return Budget{}, bad
	}
	return b, nil
}

// parseCount reads a number from 1 to Most, of digits alone; it is 0 if there is none.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > Most || s[0] == '+' {
		return 0, false
	}
	return n, true
}

// sizes are the units of stored bytes, largest first.
var sizes = []struct {
	unit  string
	bytes int64
}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}}

// ParseSize reads a number of bytes, such as 20GB or 500MB, at most 1,000 TB; "" is 0. Errors wrap ErrBadLimit.
func ParseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	for _, size := range sizes {
		if number, ok := strings.CutSuffix(s, size.unit); ok {
			if n, ok := parseCount(number); ok && n <= 1000*sizes[0].bytes/size.bytes {
				return n * size.bytes, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: a size is a whole number of KB, MB, GB or TB, such as 500MB, not %q", ErrBadLimit, s)
}

// Size returns bytes as ParseSize reads them, in the largest unit without a fraction.
func Size(bytes int64) string {
	for _, size := range sizes {
		if bytes >= size.bytes && bytes%size.bytes == 0 {
			return strconv.FormatInt(bytes/size.bytes, 10) + size.unit
		}
	}
	return strconv.FormatInt(bytes, 10) + " bytes"
}

// ParseDollars reads dollars with up to six decimals, as millionths. Errors wrap ErrBadLimit.
func ParseDollars(s string) (int64, error) {
	dollars, rest, point := strings.Cut(s, ".")
	digits := dollars + rest
	n, err := strconv.ParseInt(digits+strings.Repeat("0", max(0, 6-len(rest))), 10, 64)
	if err != nil || n > Most || dollars == "" || point && rest == "" || len(rest) > 6 ||
		strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%w: an amount of USD is such as 20 or 0.50, not %q", ErrBadLimit, s)
	}
	return n, nil
}

// String is the rate as it is configured.
func (r Rate) String() string {
	if r.Unit == AtOnce || r.Unit == Runs {
		return strconv.FormatInt(r.N, 10) + string(r.Unit)
	}
	unit := ""
	if r.Unit == Tokens {
		unit = string(Tokens)
	}
	for _, p := range pers {
		if p.per == r.Per {
			return strconv.FormatInt(r.N, 10) + unit + "/" + p.letter
		}
	}
	return fmt.Sprintf("%d%s/%s", r.N, unit, r.Per)
}

// String is the budget as it is configured.
func (b Budget) String() string { return b.amount(b.N) + "/" + string(b.Period) }

func (b Budget) amount(n int64) string {
	if b.Unit == USD {
		return Dollars(n) + string(USD)
	}
	return strconv.FormatInt(n, 10) + string(b.Unit)
}

// Dollars are millionths of a USD as dollars, with as many decimals as there are: 0.5, 20.
func Dollars(micros int64) string {
	sign := ""
	if micros < 0 {
		sign, micros = "-", -micros
	}
	s := fmt.Sprintf("%s%d.%06d", sign, micros/MicrosPerUSD, micros%MicrosPerUSD)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func (r Rates) String() string { return joined(r) }

func (b Budgets) String() string { return joined(b) }

func joined[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = one.String()
	}
	return strings.Join(words, ",")
}

// MarshalText is String.
func (r Rates) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRates.
func (r *Rates) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRates(string(b))
	return err
}

// MarshalText is String.
func (b Budgets) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText is ParseBudgets.
func (b *Budgets) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBudgets(string(text))
	return err
}
