package tools

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// function is one of the named functions: how many arguments it takes, the same
// in words, and its value.
type function struct {
	least, most int
	arity       string
	apply       func(args []value) (value, error)
}

const anyNumber = 1 << 20 // of arguments: the length of the expression bounds it

var functions = map[string]function{
	"sqrt": {1, 1, "1 argument", func(a []value) (value, error) { return root(a[0]) }},
	"abs": {1, 1, "1 argument", func(a []value) (value, error) {
		return value{new(big.Rat).Abs(a[0].Rat), a[0].approx}, nil
	}},
	"min": {1, anyNumber, "at least 1 argument", func(a []value) (value, error) {
		return slices.MinFunc(a, compare), nil
	}},
	"max": {1, anyNumber, "at least 1 argument", func(a []value) (value, error) {
		return slices.MaxFunc(a, compare), nil
	}},
	"sum":   {1, anyNumber, "at least 1 argument", func(a []value) (value, error) { return total(a), nil }},
	"avg":   {1, anyNumber, "at least 1 argument", average},
	"round": {1, 2, "1 or 2 arguments", round},
	"mod":   {2, 2, "2 arguments", mod},
}

const functionNames = "sqrt, abs, min, max, sum, avg, round, mod"

func compare(a, b value) int { return a.Cmp(b.Rat) }

// rootDigits is the precision of an irrational root, well above what is shown so
// that the roundings of a longer calculation do not show either; rootBits is the
// same and more in bits.
const (
	rootDigits = 60
	rootBits   = 256
)

// root is the square root: exact if it is rational, else rounded down after
// rootDigits significant digits.
func root(v value) (value, error) {
	if v.Sign() < 0 {
		return value{}, errors.New("the square root of a negative number is not a real number")
	}
	num, denom := new(big.Int).Sqrt(v.Num()), new(big.Int).Sqrt(v.Denom())
	exact := value{new(big.Rat).SetFrac(num, denom), v.approx}
	if new(big.Rat).Mul(exact.Rat, exact.Rat).Cmp(v.Rat) == 0 {
		return exact, nil
	}
	// A bit is less than a third of a digit, so a small number gets enough places.
	places := int64(rootDigits + max(0, v.Denom().BitLen()-v.Num().BitLen())/6 + 1)
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)
	scaled := new(big.Int).Mul(v.Num(), scale)
	scaled.Mul(scaled, scale).Quo(scaled, v.Denom())
	return value{new(big.Rat).SetFrac(scaled.Sqrt(scaled), scale), true}, nil
}

func total(args []value) value {
	t := value{Rat: new(big.Rat)}
	for _, a := range args {
		t = t.plus(a)
	}
	return t
}

func average(args []value) (value, error) {
	t := total(args)
	return value{t.Quo(t.Rat, big.NewRat(int64(len(args)), 1)), t.approx}, nil
}

// round goes to the nearest number with so many decimals (0 without a second
// argument; below 0 for tens, hundreds …), halves away from zero.
func round(args []value) (value, error) {
	decimals := int64(0)
	if len(args) == 2 {
		if !args[1].IsInt() || args[1].Num().CmpAbs(big.NewInt(exactDecimal)) > 0 {
			return value{}, fmt.Errorf("round needs an integer from -%d to %d as its number of decimals", exactDecimal,
				exactDecimal)
		}
		decimals = args[1].Num().Int64()
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(max(decimals, -decimals)), nil))
	if decimals < 0 {
		scale.Inv(scale)
	}
	scaled := new(big.Rat).Mul(new(big.Rat).Abs(args[0].Rat), scale)
	rounded := new(big.Rat).SetInt(floor(scaled.Add(scaled, big.NewRat(1, 2))))
	if args[0].Sign() < 0 {
		rounded.Neg(rounded)
	}
	return value{rounded.Quo(rounded, scale), args[0].approx}, nil
}

// mod is the remainder with the sign of the divisor.
func mod(args []value) (value, error) {
	a, b := args[0], args[1]
	if b.Sign() == 0 {
		return value{}, errors.New("division by zero in mod")
	}
	times := new(big.Rat).SetInt(floor(new(big.Rat).Quo(a.Rat, b.Rat)))
	return value{times.Sub(a.Rat, times.Mul(times, b.Rat)), a.approx || b.approx}, nil
}

// floor is the largest integer not above r.
func floor(r *big.Rat) *big.Int {
	return new(big.Int).Div(r.Num(), r.Denom()) // Euclidean: the denominator is positive
}
