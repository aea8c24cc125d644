package rag

import (
	"encoding/json"
	"regexp"
	"strings"

	"mneme/memory/event"
)

// AnswerStatus says how far the documents answer a task.
type AnswerStatus string

// The statuses of an answer.
const (
	Answered       AnswerStatus = event.Answered
	Partial        AnswerStatus = event.Partial        // Missing says what the documents do not answer
	NotFound       AnswerStatus = event.NotFound       // it rests on no passage
	Underspecified AnswerStatus = event.Underspecified // it asks back
)

// Answer is a subagent's final answer as it was checked.
type Answer struct {
	Status AnswerStatus `json:"status"`
	Answer string       `json:"answer"` // never empty; every marker [n] in it has its citation
	// Citations are the passages that Answer cites, ascending by number.
	Citations []Citation `json:"citations"`
	Missing   []string   `json:"missing"`
	Flags     []Flag     `json:"flags,omitempty"`
	// InjectionSignals counts what in the passages looked like an attempt to give
	// orders.
	InjectionSignals int `json:"injection_signals,omitempty"`

	unsupported []Flag // those of Flags that readers are told
}

// event is the answer as the events of a run have it.
func (a Answer) event() *event.Answer {
	e := &event.Answer{
		Status: string(a.Status), Answer: a.Answer, Citations: []event.Citation{}, Missing: a.Missing, InjectionSignals: a.InjectionSignals,
	}
	for _, c := range a.Citations {
		e.Citations = append(e.Citations, event.Citation{
			N: c.N, PassageID: c.PassageID, DocID: c.DocID, Title: c.Title, Source: c.Source, Section: c.Section, Page: c.Page,
			Quote: c.Quote, Start: c.Start, End: c.End,
		})
	}
	for _, f := range a.Flags {
		e.Flags = append(e.Flags, event.Flag{Kind: string(f.Kind), Text: f.Text})
	}
	return e
}

// Citation is a passage that an answer cites. Start and End are the quote's place
// in the document's text, in bytes.
type Citation struct {
	N            int    `json:"n"`
	PassageID    string `json:"passage_id"`
	DocID        string `json:"doc_id"`
	Title        string `json:"title,omitempty"`
	Source       string `json:"source,omitempty"`
	Section      string `json:"section,omitempty"`
	Page         int    `json:"page,omitempty"` // of the passage, from 1
	Quote        string `json:"quote"`          // at most 200 characters; empty if the passage shares no word with what was said
	Start        int    `json:"start"`
	End          int    `json:"end"`
	Collection   string `json:"collection"`
	IndexVersion int64  `json:"index_version"`
	Hash         string `json:"hash"` // of the passage, for Library.Resolve
}

// FlagKind is what was found wrong with an answer.
type FlagKind string

// What is found wrong with answers.
const (
	UnknownMarker FlagKind = "unknown_marker" // dropped: no passage has the number
	ManyMarkers   FlagKind = "many_markers"   // dropped: the sentence has three others
	Unverified    FlagKind = "unverified"     // a number or date that no cited passage has
	BadQuote      FlagKind = "bad_quote"      // it is not in the passage, or too long for a citation
	Misattributed FlagKind = "misattributed"  // replaced: the sentence is clearly from another passage
	RemovedLink   FlagKind = "removed_link"   // an address that is no passage's source, or an image
	Uncited       FlagKind = "uncited"        // it says answered, but cites nothing
)

// Flag is one thing that was found wrong, and the piece of the answer that it was
// found in.
type Flag struct {
	Kind FlagKind `json:"kind"`
	Text string   `json:"text"`
}

// draft is an answer as the model gave it.
type draft struct {
	text    string
	status  AnswerStatus // "" if it says none
	missing []string
	quotes  map[int]string
}

var (
	statusLine  = regexp.MustCompile(`(?i)^[\s*_>#-]*status[\s*_]*[:=][\s*_"']*(.*?)[\s*_"'.]*$`)
	missingLine = regexp.MustCompile(`(?i)^[\s*_>#-]*missing[\s*_]*[:=][\s*_]*(.*?)\s*$`)
	fence       = regexp.MustCompile("(?s)^```(?:json)?\\s*(\\{.*\\})\\s*```$")
)

// readDraft reads what a model answered: a text that ends with lines for status and
// missing, or the JSON of an Answer.
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
func status(said string) AnswerStatus {
	switch s := AnswerStatus(said); s {
	case Answered, Partial, NotFound, Underspecified:
		return s
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

// check makes an Answer of what a model responded with; s is what it may rest on.
func check(response string, s *scope) Answer {
	d := readDraft(response)
	a := Answer{Status: d.status, Missing: []string{}}
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
			a.Flags = append(a.Flags, Flag{BadQuote, d.quotes[citation.N]})
		}
	}
	a.unsupported = s.unsupported(a.Answer, used(a.Answer))
	a.Flags = append(a.Flags, a.unsupported...)
	a.conclude()
	return a
}

// conclude gives a status that fits the answer: one that cites nothing rests on
// nothing.
func (a *Answer) conclude() {
	cites := len(a.Citations) > 0
	switch {
	case a.Status == Underspecified, a.Status == NotFound:
	case !cites && strings.HasSuffix(strings.TrimRight(a.Answer, " \n*_\"»”"), "?"):
		a.Status = Underspecified
	case !cites:
		if a.Status != "" && a.Answer != "" {
			a.Flags = append(a.Flags, Flag{Uncited, string(a.Status)})
		}
		a.Status = NotFound
	case a.Status == "" && len(a.Missing) > 0:
		a.Status = Partial
	case a.Status == "":
		a.Status = Answered
	}
	if a.Answer == "" {
		a.Answer = notFound(strings.Join(a.Missing, " "))
	}
}

// cite is the citation of a passage with the quote that the model gave, if it is
// one, or else with the piece that fits best what was said; without one if it
// shares no word with that.
func (p Passage) cite(n int, quote, said string) (c Citation, good bool) {
	start, end, found := findQuote(p.Text, quote)
	good = quote == "" || found && len([]rune(p.Text[start:end])) <= maxCitation
	c = Citation{
		N: n, PassageID: p.ID, DocID: p.DocID, Title: p.Title, Source: p.Source, Section: p.Section, Page: p.Page,
		Collection: p.Collection, IndexVersion: p.IndexVersion, Hash: p.Hash,
	}
	if quote == "" || !good {
		if start, end, found = bestQuote(p.Text, said+" "+quote); !found {
			return c, good
		}
	}
	c.Quote, c.Start, c.End = p.Text[start:end], p.Start+start, p.Start+end
	return c, good
}
