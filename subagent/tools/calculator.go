package tools

import (
	"context"
	"errors"
	"math/big"
	"strings"

	"mneme/memory"
	"mneme/subagent/loop"
)

// Limits of one calculation. They keep it within milliseconds and its result
// within what a model can read.
const (
	maxExpression = 2000  // characters
	maxNesting    = 100   // parentheses, signs and powers inside one another
	maxExponent   = 10000 // of ^ and of numbers like 1e6
	maxDigits     = 10000 // of a numerator or denominator
)

// How results are written, in decimal digits.
const (
	exactDecimal  = 30 // a finite decimal up to here stands for itself
	exactFraction = 60 // numerator and denominator together; longer ones are only approximated
	significant   = 20 // of an approximation
)

type calculator struct{}

var calculatorSpec = loop.Spec{
	Name: "calculator",
	Description: "Exact arithmetic. Use it for every calculation instead of doing it in your head. " +
		"Operators + - * / ^ (integer exponents), parentheses, and % for percent: 15% is 0.15, so 15% of 80 is 15% * 80. " +
		"Functions: sqrt, abs, min, max, sum, avg, round(x, decimals), mod(a, b). " +
		"A result after ≈ is rounded to 20 significant digits, every other result is exact.",
	Parameters: schema(`{
		"type": "object",
		"properties": {
			"expression": {
				"type": "string",
				"description": "What to calculate, for example (1,250.50 - 17%) * 3 or sum(3; 4.5; 7) / 2. Write numbers with a decimal point. In a function call a comma separates the arguments; separate them with ; if numbers in it contain commas."
			}
		},
		"required": ["expression"],
		"additionalProperties": false
	}`),
	Parallel: true,
}

// Spec presents the calculator.
func (calculator) Spec() loop.Spec { return calculatorSpec }

// Computes implements loop.Computing.
func (calculator) Computes() {}

// Call evaluates the expression and returns its value.
func (calculator) Call(_ context.Context, call memory.ToolCall) (string, error) {
	var args struct {
		Expression string `json:"expression"`
	}
	if err := decode(call, &args); err != nil {
		return "", err
	}
	if strings.TrimSpace(args.Expression) == "" {
		return "", errors.New(`the field "expression" must be set`)
	}
	v, err := evaluate(args.Expression)
	if err != nil {
		return "", err
	}
	return v.String(), nil
}

// value is a rational number. approx says that a root was rounded on the way to
// it; everything calculated from it is marked as well.
type value struct {
	*big.Rat
	approx bool
}

func (v value) plus(w value) value {
	return value{new(big.Rat).Add(v.Rat, w.Rat), v.approx || w.approx}
}

func (v value) times(w value) value {
	return value{new(big.Rat).Mul(v.Rat, w.Rat), v.approx || w.approx}
}

func (v value) negative() value { return value{new(big.Rat).Neg(v.Rat), v.approx} }

// inverse is 1/v; v must not be 0.
func (v value) inverse() value { return value{new(big.Rat).Inv(v.Rat), v.approx} }

// String writes integers and short finite decimals as they are, other exact
// values as "1/3 ≈ 0.333…", and approximations as "≈ 1.414…".
func (v value) String() string {
	rounded := "≈ " + roundedText(v.Rat)
	if v.approx {
		return rounded
	}
	if v.IsInt() {
		return v.Num().String()
	}
	if decimals, finite := v.FloatPrec(); finite && decimals <= exactDecimal {
		s := v.FloatString(decimals)
		if digits := strings.TrimLeft(strings.ReplaceAll(s, ".", ""), "-0"); len(digits) <= exactDecimal {
			return s
		}
	}
	if s := v.RatString(); len(s) <= exactFraction {
		return s + " " + rounded
	}
	return rounded
}

// roundedText writes r with the significant digits of an approximation.
func roundedText(r *big.Rat) string {
	return new(big.Float).SetPrec(rootBits).SetRat(r).Text('g', significant)
}
