// Package number defines what a number of a text is. The check of answers, the index and the origins of values read
// numbers with it, so that spellings of one number are equal for all of them: grouped digits, exponents, times, words
// and the digits of every script. It keeps raised figures, such as the mark of a note, apart from the number before them.
package number

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Decimal is an exact decimal number. Decimals of the same value are equal.
type Decimal struct {
	negative bool
	digits   string // without zeros at the ends; empty for zero
	power    int    // the power of ten that multiplies digits
}

// New returns the number with the digits before and after its point, times a power of ten.
func New(negative bool, integer, fraction string, power int) Decimal {
	significant := strings.TrimLeft(integer+fraction, "0")
	digits := strings.TrimRight(significant, "0")
	if digits == "" {
		return Decimal{}
	}
	return Decimal{negative, digits, power - len(fraction) + len(significant) - len(digits)}
}

// notation matches a number as programs write it, such as -2.50 and 1e6.
var notation = regexp.MustCompile(`^([-+]?)(\d*)(?:\.(\d*))?(?:[eE]([-+]?\d{1,9}))?$`)

// Parse reads a number as programs write it. It reports whether text is one.
func Parse(text string) (Decimal, bool) {
	m := notation.FindStringSubmatch(text)
	if m == nil || m[2]+m[3] == "" {
		return Decimal{}, false
	}
	power, _ := strconv.Atoi(m[4]) // empty for none
	return New(m[1] == "-", m[2], m[3], power), true
}

// FromFloat returns a float as the shortest decimal that denotes it.
func FromFloat(value float64) Decimal {
	d, _ := Parse(strconv.FormatFloat(value, 'e', -1, 64))
	return d
}

// String returns d in one form for each value: "25e-1" for 2.50.
func (d Decimal) String() string {
	sign := ""
	if d.negative {
		sign = "-"
	}
	return sign + cmp.Or(d.digits, "0") + "e" + strconv.Itoa(d.power)
}

// Shift returns d times a power of ten.
func (d Decimal) Shift(power int) Decimal {
	if d.digits != "" {
		d.power += power
	}
	return d
}

// Negate returns -d.
func (d Decimal) Negate() Decimal {
	d.negative = !d.negative && d.digits != ""
	return d
}

// Abs returns d without its sign.
func (d Decimal) Abs() Decimal {
	d.negative = false
	return d
}

// Compare returns -1, 0 or 1 if d is less than, equal to or greater than other.
func (d Decimal) Compare(other Decimal) int {
	if d.negative && !other.negative {
		return -1
	} else if other.negative && !d.negative {
		return 1
	}
	order := cmp.Or(cmp.Compare(d.size(), other.size()), cmp.Compare(d.digits, other.digits))
	if d.negative {
		return -order
	}
	return order
}

// size returns the number of digits before the point.
func (d Decimal) size() int {
	if d.digits == "" {
		return math.MinInt
	}
	return len(d.digits) + d.power
}
