package offline

import (
	"strings"
)

// turnedEN and turnedRU give the second person for first-person words whose turn needs no other change.
var turnedEN = map[string]string{
	"i": "you", "me": "you", "my": "your", "mine": "yours", "myself": "yourself", "i'm": "you're", "i've": "you've", "i'll": "you'll",
	"i'd": "you'd", "am": "are", "we": "you", "us": "you", "our": "your", "ours": "yours", "we're": "you're", "we've": "you've",
}

var turnedRU = map[string]string{
	"меня": "вас", "мне": "вам", "мной": "вами", "мною": "вами", "мой": "ваш", "моя": "ваша", "мое": "ваше", "мои": "ваши", "моего": "вашего",
	"моей": "вашей", "моему": "вашему", "моим": "вашим", "моих": "ваших", "мою": "вашу", "моими": "вашими", "моем": "вашем",
	"наш": "ваш", "наша": "ваша", "наше": "ваше", "наши": "ваши", "нашего": "вашего", "нашей": "вашей", "нашу": "вашу", "нашем": "вашем",
}

// callMe are openings in which the first person cannot be turned.
var callMe = phrases("call me|зови меня|называй меня|зовите меня")

// turnPerson gives a statement of the user back in the second person. It fails where that is not safe: where the statement
// already speaks to somebody, and where a Russian verb would have to agree with a new subject.
func turnPerson(s string) (string, bool) {
	toks := tokenize(s)
	l := langOf(s)
	table := turnedEN
	if l == ru {
		table = turnedRU
	}
	if longestPhrase(toks, callMe) > 0 {
		return "", false
	}
	shouted, inQuote := isShouted(s), quoted(s)
	var sb strings.Builder
	from := 0
	for i, t := range toks {
		if inQuote(t.start) {
			continue
		}
		if secondWords[t.low] || l == ru && (t.low == "я" || t.low == "мы" || i == 0 && endsFirstPerson(t.low)) {
			return "", false
		}
		to, ok := table[t.low]
		if t.low == "was" && i > 0 && toks[i-1].low == "i" {
			to, ok = "were", true
		}
		if !ok || t.low == "us" && t.raw == "US" && !shouted {
			continue
		}
		if shouted {
			to = strings.ToUpper(to)
		}
		sb.WriteString(s[from:t.start])
		sb.WriteString(to)
		from = t.end
	}
	sb.WriteString(s[from:])
	return sb.String(), true
}

// endsFirstPerson guesses a Russian verb of the first person, as opens "Живу в …".
func endsFirstPerson(low string) bool {
	return len([]rune(low)) > 3 && (strings.HasSuffix(low, "у") || strings.HasSuffix(low, "ю") || strings.HasSuffix(low, "усь") || strings.HasSuffix(low, "юсь"))
}

// exclamations are openers only before a comma: "No, I live in …" but not "No pets".
var exclamations = words("no nope wait sorry oops hmm нет извини извините подожди стоп")

// dropOpeners removes "actually", "by the way" and the like from the front of a statement.
func dropOpeners(s string) string {
	for {
		toks := tokenize(s)
		n := longestPhrase(toks, openers)
		for k := 0; n == 0 && k+1 < len(toks) && exclamations[toks[k].low]; k++ {
			if strings.Contains(gapBefore(s, toks, k+1), ",") {
				n = k + 1
			}
		}
		if n == 0 || n == len(toks) {
			return s
		}
		s = trimPunct(s[toks[n-1].end:])
	}
}

// giveBack says a fact to the user in language l: turned where that is safe, else quoted.
func giveBack(text string, l lang) string {
	text = strings.TrimRight(dropOpeners(text), " ,;")
	if langOf(text) == l {
		if s, ok := turnPerson(text); ok {
			return capitalizeAll(terminated(s, "."))
		}
	}
	return quoteBack(text, l)
}

func quoteBack(text string, l lang) string {
	text = strings.TrimRight(text, ". ")
	return l.pick(`You told me: "`+capitalize(text)+`".`, "Вы сказали: «"+capitalize(text)+"».")
}

// capitalizeAll raises the first letter of every sentence, which turning may have lowered.
func capitalizeAll(s string) string {
	parts := sentences(s)
	for i, p := range parts {
		parts[i] = capitalize(p)
	}
	return strings.Join(parts, " ")
}

// acknowledge confirms what was stated, in the words that were noted.
func acknowledge(text string, l lang) string {
	text = shorten(strings.TrimRight(dropOpeners(text), " ,;"), 400)
	if said, ok := turnPerson(text); ok {
		return l.pick("Noted: ", "Запомнил: ") + terminatedLow(said)
	}
	text = strings.TrimRight(text, ". ")
	return l.pick(`Noted: "`+text+`".`, "Запомнил: «"+text+"».")
}

// terminatedLow ends s with a full stop and lowers a first function word, which now follows a colon.
func terminatedLow(s string) string {
	toks := tokenize(s)
	shouted := isShouted(s)
	s = capitalizeAll(terminated(s, "."))
	if len(toks) > 0 && toks[0].start == 0 && (secondWords[toks[0].low] || subjects[toks[0].low]) && !shouted {
		return strings.ToLower(s[:toks[0].end]) + s[toks[0].end:]
	}
	return s
}

// shorten cuts s to about n bytes at a word.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if i := strings.LastIndexByte(s[:n], ' '); i > 0 {
		return s[:i] + " …"
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
