package provenance

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mneme/memory/number"
)

var (
	addressed = regexp.MustCompile(`[a-zA-Z][\w+.-]*://[^\s"'<>«»“”]+|[^\s"'<>()\[\]{},;:|«»“”]*@[^\s"'<>()\[\]{},;|«»“”]+|` +
		`(?:[\pL\d](?:[\pL\d-]*[\pL\d])?\.)+[a-z]{2,24}(?:[/?#][^\s"'<>]*)?`)
	scheme = regexp.MustCompile(`^(?:mailto:|https?://)?(?:www\.)?`)
	// coded matches numbers of accounts and telephones in groups, and words with digits.
	coded = regexp.MustCompile(`\b[A-Z]{2}\d{2}(?:[ -]?(?:[A-Z]{4}\b|[A-Z]{0,3}\d[A-Z\d]*)){3,}|\+?\d{1,4}(?:[ ()/-]+\d{2,}){2,}|` +
		`[\pL\pN][\pL\pN.,_/#+-]*`)
	// shaped matches an identifier by its shape.
	shaped = regexp.MustCompile(`^[#]?\pL*(?:\pL[/#:=\\.]\pL|\p{Ll}\p{Lu})\S*$|^#\pL+$`)
	year   = regexp.MustCompile(`^(?:19|20)\d{2}$`)
	// spelledAt and spelledDot match how addresses are written for readers.
	spelledAt  = regexp.MustCompile(`\s*[(\[{]\s*(?:at|ät|собака)\s*[)\]}]\s*`)
	spelledDot = regexp.MustCompile(`\s*[(\[{]\s*(?:dot|punkt|punto|point|точка)\s*[)\]}]\s*`)

	date     = regexp.MustCompile(`^\d{4}-(\d{2})-(\d{2})(?:[T ]\d{2}:\d{2}.*)?$|^(\d{1,2}):\d{2}(?::\d{2})?$`)
	relative = regexp.MustCompile(`(?i)(?:^|[^\pL])(?:today|tonight|tomorrow|noon|midnight|morning|evening|next|mon(?:day)?|` +
		`tue(?:sday)?|wed(?:nesday)?|thu(?:rsday)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?|heute|morgen|übermorgen|montags?|` +
		`dienstags?|mittwochs?|donnerstags?|freitags?|samstags?|sonntags?|woche|сегодня|завтра|послезавтра|понедельник\pL*|` +
		`вторник\pL*|сред[ауы]|четверг\pL*|пятниц\pL*|суббот\pL*|воскресень\pL*|недел\pL*|demain|lundi|mardi|mercredi|jeudi|` +
		`vendredi|samedi|dimanche|mañana|hoy|lunes|martes|miércoles|jueves|viernes|sábado|domingo)(?:[^\pL]|$)|[今明]天|[今明]日|周`)
)

// identifying returns the numbers, addresses and identifiers of a value. Free text is the model's own, but for addresses
// and words with several digits.
func identifying(a argument, content string, number bool) (list []string) {
	clean := visible(content)
	if number {
		return []string{clean}
	}
	letters := 0
	for word := range strings.FieldsSeq(clean) {
		if utf8.RuneCountInString(word) > 1 && !strings.ContainsFunc(word, unicode.IsDigit) {
			letters++
		}
	}
	free := !a.party && letters >= 4
	rest := addressed.ReplaceAllStringFunc(clean, func(one string) string {
		list = append(list, strings.TrimRight(one, ".,;:!?"))
		return " "
	})
	if free {
		list = append(list, priced.FindAllString(rest, -1)...)
	}
	for _, one := range coded.FindAllString(rest, -1) {
		one = strings.TrimRight(one, ".,-/")
		if n := len(digits(one)); n > 2 && !(free && year.MatchString(one)) || n > 0 && !free {
			list = append(list, one)
		}
	}
	if len(list) == 0 && shaped.MatchString(strings.TrimSpace(clean)) {
		list = append(list, strings.TrimSpace(clean))
	}
	return list
}

// Telling returns the addresses and long numbers in the description of a tool. It is slow for long descriptions.
func Telling(description string) string {
	return strings.Join(slices.DeleteFunc(identifying(argument{}, description, false), func(one string) bool {
		return !isAddress(one) && len(digits(one)) < shortest
	}), " ")
}

func isAddress(text string) bool {
	loc := addressed.FindStringIndex(text)
	return loc != nil && loc[0] == 0 && loc[1] == len(text)
}

// address returns an address as it is compared.
func address(text string) string {
	text = strings.ToLower(strings.TrimRight(text, ".,;:!?)"))
	return strings.TrimRight(text[len(scheme.FindString(text)):], "/")
}

// host returns the host of an address.
func host(text string) string {
	text = text[strings.LastIndex(text, "@")+1:]
	if i := strings.IndexAny(text, "/?#:"); i >= 0 {
		text = text[:i]
	}
	return text
}

// dated reports whether the user named a date or a time in another way, which no other text has. Callers hold mu.
func (l *Ledger) dated(content string) bool {
	m := date.FindStringSubmatch(strings.TrimSpace(visible(content)))
	if m == nil {
		return false
	}
	v := valueOf(m[0])
	if _, ok := find(l.external, func(t *text) bool { return strings.Contains(t.words, v.words) }); ok {
		return false
	}
	hour, _ := strconv.Atoi(m[3])
	return slices.ContainsFunc(l.user, func(t *text) bool {
		return relative.MatchString(t.Text) || slices.ContainsFunc([]string{m[2], m[3], strconv.Itoa(max(hour-12, 0))},
			func(s string) bool {
				d := number.New(false, s, "", 0)
				return d != (number.Decimal{}) && t.read().figures[d] != nil
			})
	})
}
