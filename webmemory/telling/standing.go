package telling

import (
	"strings"

	"mneme/memory"
)

// Standing returns the sentences of a message that set a rule for later answers or state a lasting fact about the
// writer, such as a diet. It returns at most maxStanding. It knows words only, so it can be wrong.
func Standing(own string) (sentences []string) {
	for _, sentence := range split(oneSpelling(own)) {
		normalized := words(lead.ReplaceAllString(sentence, ""))
		text, err := memory.NoteText(sentence)
		if len(sentences) < maxStanding && standingRule().MatchString(normalized) && err == nil &&
			!momentary().MatchString(firstDay().ReplaceAllString(normalized, " ")) && Asserts(own, text) {
			sentences = append(sentences, text)
		}
	}
	return sentences
}

const maxStanding = 5

var (
	standingRule = pattern(func() string {
		return `^ (?:(?:` + listed("polite") + `) )*(?:` +
			strings.ReplaceAll(listed("standing"), "VERB", "(?:"+listed("service")+")") + ")"
	})
	firstDay  = pattern(func() string { return " (?:" + listed("first day") + ") " })
	momentary = pattern(func() string { return " (?:" + listed("momentary") + ") " })
)
