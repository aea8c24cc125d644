package telling

import (
	"regexp"
	"strings"
	"sync"
)

// AsksToForget returns the sentence of a message that asks to forget or delete something, in its writer's own words and
// without "please" and the like. If no sentence does, it returns "".
func AsksToForget(typed string) (order string) {
	message := oneSpelling(typed)
	if mark := marks.FindStringIndex(message); mark != nil {
		message = message[:mark[0]]
	}
	text := words(message)
	if len(message) > maxMessage || aboutTexts.MatchString(text) ||
		reports.MatchString(ownWords().ReplaceAllString(text, " ")) {
		return ""
	}
	for _, sentence := range split(message) {
		normalized := " "
		for _, clause := range commas().Split(withoutEnd(sentence), -1) {
			normalized += strings.TrimPrefix(strings.TrimRight(words(clause), ".? "), " ") + " , "
		}
		normalized = ownWords().ReplaceAllString(firstNo().ReplaceAllString(normalized, " "), " ")
		loc := forgets().FindStringIndex(normalized)
		isQuestion := strings.Contains(sentence, "?") && !orderAsked().MatchString(normalized)
		if revokes().MatchString(normalized) {
			return ""
		}
		if order == "" && loc != nil && !isQuestion && !supposesToForget().MatchString(normalized) &&
			!denies().MatchString(normalized[:loc[1]-1]+nextClause().ReplaceAllString(normalized[loc[1]-1:], " ")) {
			order = polite().ReplaceAllString(normalized, " ")
		}
	}
	return order
}

// pattern returns a regular expression that is compiled at its first use, because the lists are long.
func pattern(expression func() string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression()) })
}

var (
	commas  = pattern(func() string { return `[,;(]\s|\s[—–-]\s` })
	firstNo = pattern(func() string { return `^ (?:` + listed("first no") + `) , ` })
	polite  = pattern(func() string { return " (?:" + listed("polite") + ") " })
	forgets = pattern(func() string {
		return `(?:^ | , | (?:` + listed("then") + `) )(?:(?:` + listed("polite") + `) )*(?:` +
			listed("forget") + `) `
	})
	orderAsked       = pattern(func() string { return " (?:" + listed("forget asked") + ") " })
	supposesToForget = pattern(func() string { return " (?:" + listed("forget supposed") + ") " })
	denies           = pattern(func() string { return " (?:" + listed("denies") + ") " })
	nextClause       = pattern(func() string { return " (?:,|" + listed("then") + ") .*" })
	ownWords         = pattern(func() string { return " (?:" + listed("own words") + ") " })
	revokes          = pattern(func() string { return `(?:^| ,) (?:` + listed("revokes") + ") " })
)
