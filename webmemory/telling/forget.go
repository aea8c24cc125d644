package telling

import (
	"regexp"
	"slices"
	"strings"
)

// AsksToForget reports whether a message asks to forget or delete something, in its writer's own words.
func AsksToForget(typed string) bool {
	message := oneSpelling(typed)
	if mark := marks.FindStringIndex(message); mark != nil {
		message = message[:mark[0]]
	}
	if said := words(message); len(message) > maxMessage || aboutTexts.MatchString(said) || reports.MatchString(said) {
		return false
	}
	return slices.ContainsFunc(split(message), func(sentence string) bool {
		said := " "
		for _, clause := range commas.Split(withoutEnd(sentence), -1) {
			said += strings.TrimPrefix(strings.TrimRight(words(clause), ".? "), " ") + " , "
		}
		said = firstNo.ReplaceAllString(said, " ")
		at := forgets.FindStringIndex(said)
		asked := strings.Contains(sentence, "?") && !orderAsked.MatchString(said)
		return at != nil && !asked && !supposesToForget.MatchString(said) &&
			!denies.MatchString(said[:at[1]-1]+reasons.ReplaceAllString(said[at[1]-1:], " "))
	})
}

var (
	commas  = regexp.MustCompile(`[,;(]\s|\s[—–-]\s`)
	firstNo = regexp.MustCompile(`^ (?:` + listed("first no") + `) , `)
	forgets = regexp.MustCompile(`(?:^ | , | (?:` + listed("then") + `) )(?:(?:` + listed("polite") + `) )*(?:` +
		listed("forget") + `) `)
	orderAsked       = regexp.MustCompile(" (?:" + listed("forget asked") + ") ")
	supposesToForget = regexp.MustCompile(" (?:" + listed("forget supposed") + ") ")
	denies           = regexp.MustCompile(" (?:" + listed("denies") + ") ")
	reasons          = regexp.MustCompile(" , (?:" + listed("reasons") + ") .*")
)
