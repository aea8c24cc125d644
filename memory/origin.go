package memory

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Authority says whose words a text is. The authorities have an order: of several that a text is taken from, the lowest
// counts.
type Authority string

// Authorities, the highest first.
const (
	FromUser     Authority = "user"     // the person who posts, in words of their own
	FromAgent    Authority = "agent"    // a model of this service
	FromOwn      Authority = "own"      // a tool of this service, or one that the configuration trusts so
	FromDocument Authority = "document" // a document of the tenant's
	FromOutside  Authority = "outside"  // any other tool, and what a person pasted
)

var authorities = []Authority{FromUser, FromAgent, FromOwn, FromDocument, FromOutside}

// rank is how far down an authority is; one that is not known is the lowest.
func (a Authority) rank() int {
	if at := slices.Index(authorities, a); at >= 0 {
		return at
	}
	return len(authorities)
}

// Below says whether the authority is lower than another one.
func (a Authority) Below(b Authority) bool { return a.rank() > b.rank() }

// Foreign says whether the words are of somebody who has no say in what is done: the author of a document, or of what a
// tool returned.
func (a Authority) Foreign() bool { return a.Below(FromOwn) }

// Origin is the source of a text.
type Origin struct {
	From   Authority `json:"from,omitempty"`   // whose words it is
	Source string    `json:"source,omitempty"` // its name for a person: the title and page of a document, a tool; else empty
}

// MaxSource bounds Origin.Source, in bytes.
const MaxSource = 200

// Shown is the source for a person. It is no String, which every struct that embeds an Origin would have, and print
// itself by.
func (o Origin) Shown() string { return cmp.Or(o.Source, string(o.From)) }

// Written is the origin of a message. Of one that was stored without it, it is what its role and its citations tell:
// the user of a subagent is the master.
func (m Message) Written(subagent bool) Origin {
	switch {
	case m.From != "":
		return m.Origin
	case m.Role == RoleUser && !subagent:
		return Origin{From: FromUser}
	case m.Role == RoleTool:
		return Origin{From: FromOutside, Source: m.Name}
	}
	var cited []struct{ Title string }
	if json.Unmarshal(m.Citations, &cited) == nil && len(cited) > 0 {
		return Origin{From: FromDocument, Source: Shorten(cited[0].Title, MaxSource)}
	}
	return Origin{From: FromAgent}
}

// Own parts a message of a person into their own words and what they pasted: code, lines that quote, all behind a line
// that ends with a colon, parts texts or begins a mail, and what several sentences or many words say in quotation marks
// or behind a colon. Short quotations name things or are to be said, and are their own, but for addresses and figures in
// quotation marks behind a colon.
func Own(message string) (own, pasted string) {
	var mine, theirs strings.Builder
	fenced, rest := false, false
	for line := range strings.Lines(message) {
		text := strings.TrimSpace(line)
		fence := strings.HasPrefix(text, "```") || strings.HasPrefix(text, "~~~")
		parts := len(text) >= 3 && strings.Trim(text, "-=*_#~ ") == "" || parting.MatchString(text)
		if fence || fenced || rest || parts || indented(line) || strings.HasPrefix(text, ">") {
			theirs.WriteString(line)
			fenced, rest = fenced != fence, rest || parts
			continue
		}
		line = closeQuote.ReplaceAllString(openQuote.ReplaceAllString(line, `$1"`), `"$1`)
		line = quotation.ReplaceAllStringFunc(line, func(quoted string) string {
			text := strings.Trim(quoted, quoteMarks)
			if named := !colon.MatchString(quoted) || !figure.MatchString(text); named && !isPasted(text) {
				return quoted
			}
			theirs.WriteString(quoted + "\n")
			return " "
		})
		if at := colon.FindStringIndex(line); at != nil {
			if behind := line[at[1]:]; isPasted(behind) {
				theirs.WriteString(behind)
				line, rest = line[:at[0]], true
			}
		}
		mine.WriteString(line)
		rest = rest || strings.HasSuffix(text, ":") || strings.HasSuffix(text, "：")
	}
	return mine.String(), theirs.String()
}

func indented(line string) bool {
	return strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ")
}

// isPasted says whether what stands in quotation marks or behind a colon is more than a name or an instruction.
func isPasted(text string) bool {
	return len(strings.Fields(text)) > 12 || utf8.RuneCountInString(text) > 80 || sentenceEnd.MatchString(text)
}

const quoteMarks = `"“”„‟«»‹›「」『』: `

var (
	parting     = regexp.MustCompile(`^[-=_]{3,}.*[-=_]{3,}$|^(?:From|Von|De|От|От кого):\s.*@`)
	openQuote   = regexp.MustCompile(`(^|[^\pL\pN])['’‘]`)
	closeQuote  = regexp.MustCompile(`['’‘]([^\pL\pN]|$)`)
	quotation   = regexp.MustCompile(`(?:[:：]\s*)?["“„‟«‹「『][^"“”‟»›」』\n]*["“”‟»›」』]?`)
	figure      = regexp.MustCompile(`@|://|\d\S*\d\S*\d`)
	colon       = regexp.MustCompile(`[:：](?:\s|$|["“„‟«‹「『])`)
	sentenceEnd = regexp.MustCompile(`[.!?]\s+\pL|[。！？].`)
)
