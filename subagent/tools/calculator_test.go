package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"mneme/memory"
	"mneme/subagent/loop"
)

func TestCalculator(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		// Operators and their order.
		{"2 + 3 * 4", "14"},
		{"(2 + 3) * 4", "20"},
		{"10 - 4 - 3", "3"},
		{"100 / 10 / 5", "2"},
		{"-2^2", "-4"},
		{"(-2)^2", "4"},
		{"2^3^2", "512"},
		{"2^-2", "0.25"},
		{"2**10", "1024"},
		{"2*-3", "-6"},
		{"--5", "5"},
		{"+5 - +3", "2"},
		{"6 × 7 ÷ 2 − 1", "20"},
		{"3·4", "12"},
		// Exactness.
		{"0.1 + 0.2", "0.3"},
		{"1/3 + 1/6", "0.5"},
		{"1/3", "1/3 ≈ 0.33333333333333333333"},
		{"-2/3", "-2/3 ≈ -0.66666666666666666667"},
		{"1/3 * 3", "1"},
		{"12345678901234567890 * 98765432109876543210", "1219326311370217952237463801111263526900"},
		{"2^200", "1606938044258990275541962092341162602522202993782792835301376"},
		{"1/8", "0.125"},
		{"1e3", "1000"},
		{"1.5e-3", "0.0015"},
		{"5.", "5"},
		{".5", "0.5"},
		{"007", "7"},
		{"2^-40", "1/1099511627776 ≈ 9.0949470177292823792e-13"},
		{"(2/3)^100", "≈ 2.4596544265798292692e-18"},
		// Percent.
		{"15% * 80", "12"},
		{"100 + 10%", "100.1"},
		{"100 * (1 + 10%)", "110"},
		{"50%%", "0.005"},
		{"10%^2", "0.01"},
		{"10% - 3", "-2.9"},
		// Spellings of numbers.
		{"1,250.50 + 1", "1251.5"},
		{"1,250,000", "1250000"},
		{"1,250", "1250"},
		{"2,5 * 2", "5"},
		{"0,125", "0.125"},
		{"1234,500", "1234.5"},
		{"1 250,50 + 0", "1250.5"},
		{"1\u00a0250\u202f000", "1250000"},
		{"1 250.5", "1250.5"},
		// Functions.
		{"sqrt(144)", "12"},
		{"sqrt(2.25)", "1.5"},
		{"sqrt(1/9)", "1/3 ≈ 0.33333333333333333333"},
		{"sqrt(2)", "≈ 1.4142135623730950488"},
		{"sqrt(2)^2", "≈ 2"},
		{"sqrt(2e-100)", "≈ 1.4142135623730950488e-50"},
		{"sqrt(0)", "0"},
		{"min(3, -1, 2)", "-1"},
		{"MAX(3, 10, 2)", "10"},
		{"max(100,200)", "200"},
		{"max(1,250; 3)", "1250"},
		{"sum(1,5; 2,5)", "4"},
		{"sum((1,5), 2)", "3.5"},
		{"sum(1, max(2; 3,5), 4)", "8.5"},
		{"abs(-7/2)", "3.5"},
		{"sum(1, 2, 3) / 2", "3"},
		{"avg(1, 2, 4)", "7/3 ≈ 2.3333333333333333333"},
		{"round(2.5)", "3"},
		{"round(-2.5)", "-3"},
		{"round(2.345, 2)", "2.35"},
		{"round(1250, -2)", "1300"},
		{"round(sqrt(2), 3)", "≈ 1.414"},
		{"mod(17, 5)", "2"},
		{"mod(-17, 5)", "3"},
		{"mod(5.5, 2)", "1.5"},
	} {
		t.Run(c.expression, func(t *testing.T) {
			v, err := evaluate(c.expression)
			require.NoError(t, err)
			require.Equal(t, c.want, v.String())
		})
	}
}

func TestCalculatorRefuses(t *testing.T) {
	for _, c := range []struct{ name, expression, want string }{
		{"division by zero", "1 / (2 - 2)", "division by zero, at character 3"},
		{"zero to a negative power", "0^-1", "division by zero: 0 to a negative power"},
		{"remainder by zero", "mod(3, 0)", "division by zero in mod"},
		{"huge exponent", "2^1000000", "the exponent is above the limit of 10000, at character 2"},
		{"exponent beyond 64 bits", "2^99999999999999999999", "the exponent is above the limit of 10000"},
		{"tower of powers", "9^9^9", "the exponent is above the limit of 10000"},
		{"huge power", "99999^9999", "the result has more than 10000 digits"},
		{"huge product", "10^9000 * 10^9000", "the result has more than 10000 digits"},
		{"huge number", "1e9999999", "the power of ten is above the limit of 10000"},
		{"fractional exponent", "2^0.5", "the exponent must be an integer (a square root is sqrt(x))"},
		{"rounded exponent", "2^(sqrt(2)-sqrt(2))", "the exponent must be an integer"},
		{"negative root", "sqrt(-4)", "the square root of a negative number is not a real number, at character 1"},
		{"too long", strings.Repeat("1+", 1000) + "1", "the expression has 2001 characters, the limit is 2000"},
		{"too deep", strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200), "nested more than 100 deep"},
		{"too many signs", strings.Repeat("-", 200) + "1", "nested more than 100 deep"},
		{"modulo spelled as percent", "10 % 3", "an operator is missing before '3'"},
		{"implied product", "2(3)", "an operator is missing before '('"},
		{"open parenthesis", "(1 + 2", "the parenthesis is never closed, at character 1"},
		{"closed twice", "1)", `')' was not expected, at character 2`},
		{"nothing after the operator", "1 +", "the expression ends where a number or ( was expected"},
		{"two operators", "1 * / 2", `'/' was not expected, at character 5`},
		{"unknown function", "log(3)", `there is no function "log", only sqrt`},
		{"words", "15% of 80", "an operator is missing before 'o'"},
		{"function without arguments", "max", "max needs its arguments in parentheses"},
		{"too many arguments", "sqrt(1, 2)", "sqrt takes 1 argument, not 2"},
		{"too few arguments", "mod(1)", "mod takes 2 arguments, not 1"},
		{"empty arguments", "sum()", `')' was not expected`},
		{"argument missing", "sum(1,)", `')' was not expected`},
		{"decimals out of range", "round(1, 99)", "round needs an integer from -30 to 30"},
		{"two points", "1.2.3", `"1.2.3" is not a number: write it like 1250.5`},
		{"groups of two", "12,34,567", `"12,34,567" is not a number`},
		{"grouping among arguments", "sum(1,250, 3)", "separate the arguments with ;"},
		{"exponent without digits", "1e", "digits are missing after 'e'"},
		{"invisible end", "1\x00", "was not expected"},
		{"broken text", "1\xff", "not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := evaluate(c.expression)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// call runs a tool of the set as the loop does.
func call(t *testing.T, name, arguments string) (string, error) {
	t.Helper()
	return callIn(t.Context(), t, name, arguments)
}

func callIn(ctx context.Context, t *testing.T, name, arguments string) (string, error) {
	t.Helper()
	zone := time.FixedZone("MSK", 3*60*60)
	now := func() time.Time { return time.Date(2026, 2, 3, 14, 5, 6, 0, zone) }
	for _, tool := range analytic(now) {
		if tool.Spec().Name == name {
			return tool.Call(ctx, memory.ToolCall{
				ID: "1", Function: memory.FunctionCall{Name: name, Arguments: arguments},
			})
		}
	}
	t.Fatalf("there is no tool %q", name)
	return "", nil
}

func TestCalculatorArguments(t *testing.T) {
	got, err := call(t, "calculator", `{"expression": "15% * 80"}`)
	require.NoError(t, err)
	require.Equal(t, "12", got)
	for arguments, want := range map[string]string{
		``:                            `the field "expression" must be set`,
		`{}`:                          `the field "expression" must be set`,
		`{"expression": " "}`:         `the field "expression" must be set`,
		`{"expression": 5}`:           `the field "expression" must be a string, not number`,
		`{"expr": "1"}`:               `unknown field "expr"`,
		`[]`:                          `the arguments must be a JSON object, not array`,
		`{"expression": "1"`:          `the arguments cannot be read`,
		`{"expression": "1"} {}`:      `something follows the JSON object`,
		`{"expression": "1", "x": 1}`: `unknown field "x"`,
	} {
		_, err := call(t, "calculator", arguments)
		require.ErrorContains(t, err, want, arguments)
	}
}

func TestSpecs(t *testing.T) {
	for _, tool := range analytic(time.Now) {
		spec := tool.Spec()
		require.NotEmpty(t, spec.Description)
		var s struct {
			Type       string
			Properties map[string]struct{ Type, Description string }
			Required   []string
		}
		require.NoError(t, json.Unmarshal(spec.Parameters, &s))
		require.Equal(t, "object", s.Type)
		require.NotEmpty(t, s.Required)
		for name, p := range s.Properties {
			require.NotEmpty(t, p.Type, name)
			require.NotEmpty(t, p.Description, name)
		}
	}
}

// analytic is every tool there is.
func analytic(now func() time.Time) []loop.Tool { return []loop.Tool{Calculator(), Date(now)} }

func rational(t *rapid.T, label string) *big.Rat {
	num := rapid.Int64().Draw(t, label)
	denom := rapid.Int64Range(1, 1_000_000_007).Draw(t, label+" denominator")
	return big.NewRat(num, denom)
}

// exactly evaluates and requires a result without rounding.
func exactly(t require.TestingT, format string, args ...any) *big.Rat {
	v, err := evaluate(fmt.Sprintf(format, args...))
	require.NoError(t, err)
	require.False(t, v.approx)
	return v.Rat
}

func requireEqual(t require.TestingT, want, got *big.Rat) {
	require.Zero(t, want.Cmp(got), "%s and %s", want, got)
}

func TestCalculatorIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := rational(t, "a"), rational(t, "b"), rational(t, "c")
		requireEqual(t, a, exactly(t, "((%s) + (%s)) - (%s)", a, b, b))
		requireEqual(t, exactly(t, "(%s) * ((%s) + (%s))", a, b, c), exactly(t, "(%s)*(%s) + (%s)*(%s)", a, b, a, c))
		requireEqual(t, new(big.Rat).Abs(a), exactly(t, "sqrt((%s)^2)", a))
		requireEqual(t, exactly(t, "sum(%s, %s, %s) / 3", a, b, c), exactly(t, "avg(%s; %s; %s)", a, b, c))
		requireEqual(t, exactly(t, "(%s) + (%s)", a, b), exactly(t, "min(%s, %s) + max(%s, %s)", a, b, a, b))
		if b.Sign() != 0 {
			requireEqual(t, a, exactly(t, "(%s) / (%s) * (%s)", a, b, b))
			m := exactly(t, "mod(%s, %s)", a, b)
			require.True(t, m.Sign() == 0 || m.Sign() == b.Sign())
			require.Negative(t, m.Abs(m).Cmp(new(big.Rat).Abs(b)))
		}
	})
}

// An irrational root is right in all the digits that are shown.
func TestCalculatorRoots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := new(big.Rat).Abs(rational(t, "a"))
		if scale := rapid.IntRange(-300, 300).Draw(t, "power of ten"); scale != 0 {
			a.Mul(a, exactly(t, "1e%d", scale))
		}
		v, err := evaluate(fmt.Sprintf("sqrt(%s)", a))
		require.NoError(t, err)
		if !v.approx {
			requireEqual(t, a, new(big.Rat).Mul(v.Rat, v.Rat))
			return
		}
		want := new(big.Float).SetPrec(2000).SetRat(a)
		want.Sqrt(want)
		require.Equal(t, "≈ "+want.Text('g', significant), v.String())
	})
}

// What the calculator prints as exact it reads back as the same number.
func TestCalculatorReadsItsResults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rational(t, "a")
		text, _, _ := strings.Cut(value{Rat: a}.String(), " ≈ ")
		requireEqual(t, a, exactly(t, "%s", text))
	})
}

func FuzzEvaluate(f *testing.F) {
	for _, s := range []string{
		"1,250.50 + 15% * 80", "sqrt(2)^-3", "max(1,5; 2)", "((1))", "2^3^2", "1e-5", "−3×(4÷5)", "round(1/3, 2)", "1 250,5",
		"sum(1,250, 3)", "9^9999", "5.%", ",", "e", "1e+",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		v, err := evaluate(expression)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.LessOrEqual(t, max(v.Num().BitLen(), v.Denom().BitLen()), maxBits)
		// White space and a parenthesis around it change nothing.
		if again, err := evaluate(" ( " + expression + " ) "); err == nil {
			require.Equal(t, v.String(), again.String())
		}
	})
}
