package offline

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// calcStyle is what a calculator says that it understands.
type calcStyle struct {
	sqrt  bool
	power string // the operator for powers
}

// calculatorAny accepts every expression; it serves to recognise arithmetic, not to send it.
var calculatorAny = calcStyle{sqrt: true, power: "^"}

func styleOf(t tool) calcStyle {
	about := t.Description
	s := calcStyle{sqrt: strings.Contains(about, "sqrt"), power: "^"}
	if strings.Contains(about, "**") && !strings.Contains(about, "^") {
		s.power = "**"
	}
	return s
}

// operatorPhrases are operators said in words; the value is written in the expression.
var operatorPhrases = map[string]string{
	"+": "plus|added to|плюс|прибавить", "-": "minus|less|минус|отнять|вычесть",
	"*":  "times|multiplied by|x|х|умножить на|умноженное на|умножено на|помножить на|помноженное на|на",
	"/":  "divided by|over|разделить на|деленное на|поделить на|делить на|разделенное на|поделенное на",
	"^":  "to the power of|raised to|в степени",
	"^2": "squared|в квадрате", "^3": "cubed|в кубе",
	"%of": "percent of|процент от|процента от|процентов от|per cent of",
	"√":   "square root of|sqrt of|sqrt|root of|квадратный корень из|корень квадратный из|корень из",
	"(+":  "sum of|add|сумма|сумму|сложи|сложить|сложите|прибавь",
	"(*":  "product of|multiply|произведение|умножь|умножить|умножьте|перемножь",
	"(/":  "quotient of|divide|раздели|разделить|разделите|подели|частное",
	"(-":  "difference between|difference of|разность|разница между", "(-r": "subtract|вычти|вычесть|отними",
}

var operatorIndex = indexPhrases(operatorPhrases)

// lexeme is a piece of a text read as arithmetic: a number, an operator, a bracket, or a word that is neither.
type lexeme struct {
	s     string
	kind  lexKind
	tight bool // an operator without a space on either side
}

type lexKind int

const (
	lexWord lexKind = iota
	lexNumber
	lexOp
	lexOpen
	lexClose
	lexVerb // "multiply 3 by 4": an operator said before its operands
	lexRoot
)

// arithmetic finds the longest arithmetic expression in s, written so that a calculator of the style reads it.
func arithmetic(s string, style calcStyle) (string, bool) {
	if len(datesIn(s)) > 0 {
		return "", false
	}
	lexemes := lexWords(s)
	var best []lexeme
	for from := range lexemes {
		if run := runAt(lexemes, from); len(run) > len(best) {
			best = run
		}
		if from > 400 {
			break // a longer text is no question of arithmetic
		}
	}
	if len(best) < 3 || !style.sqrt && slices.ContainsFunc(best, func(l lexeme) bool { return l.kind == lexRoot }) {
		if len(best) < 2 || best[0].kind != lexRoot || !style.sqrt {
			return "", false
		}
	}
	if ambiguous(best) && strayContent(lexemes) {
		return "", false
	}
	return write(best, style), true
}

// isCalculation says whether s is an expression and nothing else.
func isCalculation(s string) bool {
	if len(s) > 200 {
		return false
	}
	_, ok := arithmetic(s, calculatorAny)
	return ok && !strayContent(lexWords(s))
}

// ambiguous says whether the only operators of a run are ones that numbers like 555-1234, 5/6 and 24-7 hold too.
func ambiguous(run []lexeme) bool {
	return !slices.ContainsFunc(run, func(l lexeme) bool {
		return l.kind == lexRoot || l.kind == lexOp && !(l.tight && (l.s == "-" || l.s == "/"))
	})
}

func strayContent(lexemes []lexeme) bool {
	return slices.ContainsFunc(lexemes, func(l lexeme) bool {
		return l.kind == lexWord && isWordRune([]rune(l.s)[0]) && !stopWords[l.s] && !commands[l.s] && !calcWords[l.s]
	})
}

var calcWords = words("result value equal equals answer expression будет равно результат значение выражение чему пример")

// lexWords cuts s into lexemes, with operators said in words.
func lexWords(s string) []lexeme {
	raw := scan(fold(s))
	var out []lexeme
	for i := 0; i < len(raw); {
		if raw[i].kind != lexWord {
			out = append(out, raw[i])
			i++
			continue
		}
		key, n := operatorAt(raw[i:])
		if n == 0 {
			if v, k, ok := spelledNumber(raw[i:]); ok {
				out = append(out, lexeme{s: v, kind: lexNumber})
				i += k
				continue
			}
			out = append(out, raw[i])
			i++
			continue
		}
		out = append(out, operatorLexemes(key)...)
		i += n
	}
	return expandVerbs(joinPercent(out))
}

func operatorAt(raw []lexeme) (string, int) {
	for _, p := range operatorIndex[raw[0].s] {
		if len(p.words) > len(raw) {
			continue
		}
		ok := true
		for i, w := range p.words {
			ok = ok && raw[i].s == w
		}
		if ok {
			return p.key, len(p.words)
		}
	}
	return "", 0
}

func operatorLexemes(key string) []lexeme {
	switch key {
	case "^2", "^3":
		return []lexeme{{s: "^", kind: lexOp}, {s: key[1:], kind: lexNumber}}
	case "%of":
		return percent
	case "√":
		return []lexeme{{s: "√", kind: lexRoot}}
	}
	if key[0] == '(' {
		return []lexeme{{s: key[1:], kind: lexVerb}}
	}
	return []lexeme{{s: key, kind: lexOp}}
}

var percent = []lexeme{{s: "/", kind: lexOp}, {s: "100", kind: lexNumber}, {s: "*", kind: lexOp}}

// scan cuts s into numbers, signs and words.
func scan(s string) []lexeme {
	var out []lexeme
	rs := []rune(s)
	for i := 0; i < len(rs); {
		r := rs[i]
		j := i + 1
		switch {
		case unicode.IsSpace(r):
		case '0' <= r && r <= '9':
			for j < len(rs) && (isDigitRune(rs[j]) || (rs[j] == '.' || rs[j] == ',') && j+1 < len(rs) && isDigitRune(rs[j+1])) {
				j++
			}
			out = append(out, lexeme{s: number(string(rs[i:j])), kind: lexNumber})
		case unicode.IsLetter(r):
			for j < len(rs) && (unicode.IsLetter(rs[j]) || rs[j] == '\'') {
				j++
			}
			out = append(out, lexeme{s: string(rs[i:j]), kind: lexWord})
		case r == '(':
			out = append(out, lexeme{s: "(", kind: lexOpen})
		case r == ')':
			out = append(out, lexeme{s: ")", kind: lexClose})
		case r == '*' && j < len(rs) && rs[j] == '*':
			out = append(out, lexeme{s: "^", kind: lexOp})
			j++
		case signs[r] != "":
			tight := i > 0 && j < len(rs) && !unicode.IsSpace(rs[i-1]) && !unicode.IsSpace(rs[j])
			out = append(out, lexeme{s: signs[r], kind: lexOp, tight: tight})
		case r == '√':
			out = append(out, lexeme{s: "√", kind: lexRoot})
		default:
			out = append(out, lexeme{s: string(r), kind: lexWord})
		}
		i = j
	}
	return out
}

var signs = map[rune]string{'+': "+", '-': "-", '−': "-", '*': "*", '×': "*", '·': "*", '/': "/", '÷': "/", '^': "^", '%': "%"}

func isDigitRune(r rune) bool { return '0' <= r && r <= '9' }

// number writes 1,000 as 1000 and 2,5 as 2.5.
func number(s string) string {
	groups := strings.Split(s, ",")
	if len(groups) == 1 {
		return s
	}
	for _, g := range groups[1:] {
		if len(strings.SplitN(g, ".", 2)[0]) != 3 {
			return strings.Replace(s, ",", ".", 1)
		}
	}
	return strings.Join(groups, "")
}

// joinPercent reads "15% of 80" and a closing "15%".
func joinPercent(in []lexeme) []lexeme {
	var out []lexeme
	for i, l := range in {
		switch {
		case l.s == "%" && i+1 < len(in) && (in[i+1].s == "of" || in[i+1].s == "от"):
			out = append(out, percent...)
		case l.kind == lexWord && (l.s == "of" || l.s == "от") && i > 0 && in[i-1].s == "%":
		case l.s == "%" && (i+1 == len(in) || in[i+1].kind != lexNumber && in[i+1].kind != lexOpen):
			out = append(out, percent[:2]...)
		default:
			out = append(out, l)
		}
	}
	return out
}

// expandVerbs rewrites "multiply 3 by 4" to 3 * 4 and "subtract 3 from 10" to 10 - 3.
func expandVerbs(in []lexeme) []lexeme {
	var out []lexeme
	for i := 0; i < len(in); i++ {
		if in[i].kind != lexVerb {
			out = append(out, in[i])
			continue
		}
		rest := in[i+1:]
		if len(rest) < 3 || rest[0].kind != lexNumber || rest[2].kind != lexNumber || !verbJoints[rest[1].s] {
			out = append(out, lexeme{s: "?", kind: lexWord})
			continue
		}
		a, b := rest[0], rest[2]
		if in[i].s == "-r" {
			a, b = b, a
		}
		out = append(out, a, lexeme{s: in[i].s[:1], kind: lexOp}, b)
		i += 3
	}
	return out
}

var verbJoints = words("and by to from with и на к из с *")

// runAt is the longest well-formed expression that starts at from.
func runAt(ls []lexeme, from int) []lexeme {
	depth, operand := 0, true // operand: one is expected next
	ops, end := 0, 0
	for i := from; i < len(ls); i++ {
		l := ls[i]
		switch {
		case operand && l.kind == lexNumber:
			operand = false
		case operand && l.kind == lexOpen:
			depth++
		case operand && l.kind == lexRoot:
			ops++
		case operand && l.s == "-" && l.kind == lexOp && !l.tight && (i == from || ls[i-1].kind == lexOpen) && i+1 < len(ls) && ls[i+1].kind == lexNumber:
		case !operand && l.kind == lexOp:
			operand = true
			ops++
		case !operand && l.kind == lexClose && depth > 0:
			depth--
		default:
			return ls[from : from+end]
		}
		if !operand && depth == 0 && ops > 0 {
			end = i + 1 - from
		}
	}
	return ls[from : from+end]
}

// write spells a run for a calculator.
func write(run []lexeme, style calcStyle) string {
	var parts []string
	closeRoot := false
	for i, l := range run {
		s := l.s
		switch {
		case l.kind == lexRoot:
			parts = append(parts, "sqrt(")
			closeRoot = true
			continue
		case l.s == "^":
			s = style.power
		case closeRoot:
			closeRoot = l.kind == lexOpen
			if !closeRoot {
				s += ")"
			} else {
				s, closeRoot = "", false
				continue
			}
		}
		if l.kind == lexOp && !(l.s == "-" && (i == 0 || run[i-1].kind == lexOpen)) {
			s = " " + s + " "
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "")
}

// spelled gives the number words that arithmetic is asked in.
var spelled = func() map[string]int {
	m := map[string]int{}
	for i, w := range strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen") {
		m[w] = i
	}
	for i, w := range strings.Fields("ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать тринадцать четырнадцать пятнадцать шестнадцать семнадцать восемнадцать девятнадцать") {
		m[w] = i
	}
	for i, w := range strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety hundred") {
		m[w] = 10 * (i + 2)
	}
	for i, w := range strings.Fields("двадцать тридцать сорок пятьдесят шестьдесят семьдесят восемьдесят девяносто сто") {
		m[w] = 10 * (i + 2)
	}
	m["thousand"], m["тысяча"] = 1000, 1000
	return m
}()

// spelledNumber reads a number word, with a unit after tens: "twenty-five".
func spelledNumber(raw []lexeme) (string, int, bool) {
	v, ok := spelled[raw[0].s]
	if !ok {
		return "", 0, false
	}
	n := 1
	if v >= 20 && v < 100 {
		next := 1
		if len(raw) > 2 && raw[1].s == "-" && raw[1].tight {
			next = 2
		}
		if len(raw) > next {
			if unit, ok := spelled[raw[next].s]; ok && unit > 0 && unit < 10 {
				v, n = v+unit, next+1
			}
		}
	}
	return strconv.Itoa(v), n, true
}
