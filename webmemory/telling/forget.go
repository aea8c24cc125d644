package telling

import (
	"regexp"
	"strings"
)

// AsksToForget returns the sentence of a message that asks to forget or delete something, in its writer's own words and
// without "please" and the like. It returns "" if there is none.
func AsksToForget(typed string) (order string) {
	message := oneSpelling(typed)
	if mark := marks.FindStringIndex(message); mark != nil {
		message = message[:mark[0]]
	}
	said := words(message)
	if len(message) > maxMessage || aboutTexts.MatchString(said) ||
		reports.MatchString(ownWords.ReplaceAllString(said, " ")) {
		return ""
	}
	for _, sentence := range split(message) {
		said := " "
		for _, clause := range commas.Split(withoutEnd(sentence), -1) {
			said += strings.TrimPrefix(strings.TrimRight(words(clause), ".? "), " ") + " , "
		}
		said = ownWords.ReplaceAllString(firstNo.ReplaceAllString(said, " "), " ")
		at := forgets.FindStringIndex(said)
		asked := strings.Contains(sentence, "?") && !orderAsked.MatchString(said)
		if revokes.MatchString(said) {
			return ""
		}
		if order == "" && at != nil && !asked && !supposesToForget.MatchString(said) &&
			!denies.MatchString(said[:at[1]-1]+nextClause.ReplaceAllString(said[at[1]-1:], " ")) {
			order = polite.ReplaceAllString(said, " ")
		}
	}
	return order
}

var (
	commas  = regexp.MustCompile(`[,;(]\s|\s[—–-]\s`)
	firstNo = regexp.MustCompile(`^ (?:` + listed("first no") + `) , `)
	polite  = regexp.MustCompile(" (?:" + listed("polite") + ") ")
	forgets = regexp.MustCompile(`(?:^ | , | (?:` + listed("then") + `) )(?:(?:` + listed("polite") + `) )*(?:` +
		listed("forget") + `) `)
	orderAsked       = regexp.MustCompile(" (?:" + listed("forget asked") + ") ")
	supposesToForget = regexp.MustCompile(" (?:" + listed("forget supposed") + ") ")
	denies           = regexp.MustCompile(" (?:" + listed("denies") + ") ")
	nextClause       = regexp.MustCompile(" (?:,|" + listed("then") + ") .*")
	ownWords         = regexp.MustCompile(" (?:" + listed("own words") + ") ")
	revokes          = regexp.MustCompile(`(?:^| ,) (?:` + listed("revokes") + ") ")
)
