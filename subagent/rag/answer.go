package rag

import (
	"encoding/json"
	"regexp"
	"strings"

	"mneme/memory/event"
)

// Kinds of event.Flag: what the check of an answer finds wrong.
const (
	UnknownMarker = "unknown_marker" // dropped: no passage has the number
	ManyMarkers   = "many_markers"   // dropped: the sentence has three others
	Unverified    = "unverified"     // a number or date that no cited passage has
	BadQuote      = "bad_quote"      // it is not in the passage, or too long for a citation
	Misattributed = "misattributed"  // replaced: the sentence is clearly from another passage
	RemovedLink   = "removed_link"   // an address that is not a passage's source, or an image
	Uncited       = "uncited"        // it says that it answers, but cites nothing
)

// draft is an answer as the model gave it.
type draft struct {
	text    string
	status  string // "" if it says none
	missing []string
	quotes  map[int]string
}

var (
	statusLine  = regexp.MustCompile(`(?i)^[\s*_>#-]*status[\s*_]*[:=][\s*_"']*(.*?)[\s*_"'.]*$`)
	missingLine = regexp.MustCompile(`(?i)^[\s*_>#-]*missing[\s*_]*[:=][\s*_]*(.*?)\s*$`)
	fence       = regexp.MustCompile("(?s)^```(?:json)?\\s*(\\{.*\\})\\s*```$")
)

// readDraft reads what a model answered: a text that ends with lines for status and
// missing, or the JSON of an event.Answer.
func readDraft(response string) draft {
	response = strings.TrimSpace(response)
	if d, ok := readJSON(response); ok {
		return d
	}
	d := draft{text: response}
	for {
		rest, line := "", d.text
		if at := strings.LastIndexByte(d.text, '\n'); at >= 0 {
			rest, line = d.text[:at], d.text[at+1:]
		}
		if m := statusLine.FindStringSubmatch(line); m != nil && d.status == "" {
			d.status = status(strings.ReplaceAll(strings.ToLower(m[1]), " ", "_"))
		} else if m := missingLine.FindStringSubmatch(line); m != nil {
			d.missing = append(list(m[1]), d.missing...)
		} else {
			return d
		}
		d.text = strings.TrimSpace(rest)
	}
}

// status is a known one, or none.
func status(said string) string {
	switch said {
	case event.Answered, event.Partial, event.NotFound, event.Underspecified:
		return said
	}
	return ""
}

func readJSON(response string) (draft, bool) {
	if m := fence.FindStringSubmatch(response); m != nil {
		response = m[1]
	}
	var a struct {
		Status    string  `json:"status"`
		Answer    *string `json:"answer"`
		Citations []struct {
			N     int    `json:"n"`
			Quote string `json:"quote"`
		} `json:"citations"`
		Missing []string `json:"missing"`
	}
	if !strings.HasPrefix(response, "{") || json.Unmarshal([]byte(response), &a) != nil || a.Answer == nil {
		return draft{}, false
	}
	d := draft{text: strings.TrimSpace(*a.Answer), missing: a.Missing, quotes: map[int]string{}}
	d.status = status(a.Status)
	for _, c := range a.Citations {
		d.quotes[c.N] = c.Quote
	}
	return d, true
}

// list are the parts of a line that names several things.
func list(line string) []string {
	var parts []string
	for p := range strings.SplitSeq(line, ";") {
		p = strings.TrimSpace(p)
		if low := strings.ToLower(strings.Trim(p, ".-–— ")); low != "" && low != "none" && low != "nothing" && low != "нет" {
			parts = append(parts, p)
		}
	}
	return parts
}

// notFound is the answer when there is nothing to answer from.
func notFound(task string) string {
	if russian(task) {
		return "В документах нет ответа на этот вопрос."
	}
	return "The documents do not answer this."
}

// check makes a checked answer of what a model responded with; s is what it may rest
// on. unsupported are those of its flags that readers are told.
func check(response string, s *scope) (a event.Answer, unsupported []event.Flag) {
	d := readDraft(response)
	a = event.Answer{Status: d.status, Missing: []string{}}
	c := newStrictChecker(s, true)
	a.Answer = strings.TrimSpace(c.write(d.text) + c.close(false))
	a.Flags = c.flags
	for _, part := range d.missing {
		of := newStrictChecker(s, true)
		if part = strings.TrimSpace(of.write(part) + of.close(false)); part != "" {
			a.Missing = append(a.Missing, part)
		}
		a.Flags = append(a.Flags, of.flags...)
	}
	a.Citations = s.cite(a.Answer, d.quotes)
	for _, citation := range a.Citations {
		if _, good := s.passages[citation.N].cite(citation.N, d.quotes[citation.N], ""); !good {
			a.Flags = append(a.Flags, event.Flag{Kind: BadQuote, Text: d.quotes[citation.N]})
		}
	}
	unsupported = s.unsupported(a.Answer, used(a.Answer))
	a.Flags = append(a.Flags, unsupported...)
	conclude(&a)
	return a, unsupported
}

// conclude gives a status that fits the answer: one that cites nothing rests on
// nothing.
func conclude(a *event.Answer) {
	cites := len(a.Citations) > 0
	switch {
	case a.Status == event.Underspecified, a.Status == event.NotFound:
	case !cites && strings.HasSuffix(strings.TrimRight(a.Answer, " \n*_\"»”"), "?"):
		a.Status = event.Underspecified
	case !cites:
		if a.Status != "" && a.Answer != "" {
			a.Flags = append(a.Flags, event.Flag{Kind: Uncited, Text: a.Status})
		}
		a.Status = event.NotFound
	case a.Status == "" && len(a.Missing) > 0:
		a.Status = event.Partial
	case a.Status == "":
		a.Status = event.Answered
	}
	if a.Answer == "" {
		a.Answer = notFound(strings.Join(a.Missing, " "))
	}
}

// cite is the citation of a passage with the quote that the model gave, if it is
// one, or else with the piece that fits best what was said; without one if it
// shares no word with that.
func (p Passage) cite(n int, quote, said string) (c event.Citation, good bool) {
	start, end, found := findQuote(p.Text, quote)
	good = quote == "" || found && len([]rune(p.Text[start:end])) <= maxCitation
	c = event.Citation{
		N: n, PassageID: p.ID, DocID: p.DocID, Title: p.Title, Source: p.Source, Section: p.Section, Page: p.Page,
	}
	if quote == "" || !good {
		if start, end, found = bestQuote(p.Text, said+" "+quote); !found {
			return c, good
		}
	}
	c.Quote, c.Start, c.End = p.Text[start:end], p.Start+start, p.Start+end
	return c, good
}
