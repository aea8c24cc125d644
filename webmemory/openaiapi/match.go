package openaiapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"mneme/memory"
)

// message is a stored message, as far as matching needs it.
type message struct {
	ID      string
	Run     string // the run that stored it, "" if none did
	User    bool
	Text    string // in normal form
	Content string // the user's message as stored
	Failed  bool   // the placeholder of an answer that failed, or that was stopped before its first word
	Partial bool   // an answer that was stopped
	// ClientID and AnswerID are the client's ids of the user's message and of its answer, "" if it sent none.
	ClientID, AnswerID string
	// From identifies the client that sent the user's message, see clientOf. It is "" for a message of another endpoint.
	From     string
	Alone    bool // the user's message came without a transcript
	Diverged bool // the message was appended although its transcript did not end where the chat did
}

// outcome is the effect of a request on a chat.
type outcome string

// Outcomes.
const (
	post     outcome = "post"     // append the message
	replace  outcome = "replace"  // append the message after After, and set aside what follows After
	join     outcome = "join"     // repeat the answer of Run, which the same message began
	branch   outcome = "branch"   // continue after After in a fork of the chat
	task     outcome = "task"     // answer without the chat's memory: a title or the like
	conflict outcome = "conflict" // refuse: the client has not seen the newest exchange
	missing  outcome = "missing"  // the chat does not have the run that the message follows
)

// decision is an outcome and its place.
type decision struct {
	Outcome outcome
	After   *string // as in webapi.MessageRequest
	Last    *string // id of the newest stored message, "" for none; nil if the outcome does not depend on it
	Run     string  // of a join
	// Diverged reports that the transcript does not end where the chat does. Again reports the same of the
	// client's message before.
	Diverged, Again bool
	Guess           bool   // the words led to a replace, and no id
	Newest          string // id of the newest stored message of the user, "" for none
}

// exchange is a message of the user in a transcript and the last text that answers it, in normal form. Answer is "" if
// there is none. User is "" if the transcript begins with an answer.
type exchange struct{ User, Answer string }

// transcript is a client's view of the chat.
type transcript struct {
	Exchanges []exchange // oldest first; the last one is the new message
	Content   string     // the new message
	// ClientID and Parent are the client's ids of the new message and of the message before it, "" if it sent none.
	ClientID, Parent string
	Replaces         bool // the client asks for another answer to the message ClientID, or for another text of it
	Newest           bool // the client asks for another answer to what it believes to be the newest message
	Retry            bool // the client repeats a request that failed
	// Abandoned reports whether the client of a run left before it had the answer. Not nil if Retry is set.
	Abandoned func(run string) bool
	Run       string // the run whose answer the message follows; nothing else counts then
	From      string // identifies the client, see clientOf
}

func (t transcript) question() string { return t.Exchanges[len(t.Exchanges)-1].User }

// match decides on the effect of a request. known are the chat's newest messages; whole reports that these are all. If
// match needs older messages, enough is false.
//
// Without ids, match replaces at most the newest exchange, and only if the same client sent it. It appends every message
// that it does not recognize.
func match(t transcript, known []message, whole bool) (d decision, enough bool) {
	v := view{t: t, known: known, whole: whole}
	for i, m := range known {
		if m.User {
			v.users = append(v.users, i)
		}
	}
	d.Outcome, d.Last = post, new(string)
	if len(known) > 0 {
		d.Last = &known[len(known)-1].ID
	}
	newest := len(v.users) - 1
	if newest >= 0 {
		d.Newest, d.Again = v.message(newest).ID, v.message(newest).Diverged && v.message(newest).From == t.From
	}
	switch {
	case t.Run != "":
		return v.afterRun(d)
	case newest < 0 && !whole:
		return d, false
	case newest >= 0 && v.text(newest) == t.question() && v.text(newest) != redacted:
		answer, failed := v.answer(newest)
		alone, placed := len(t.Exchanges) == 1, newest > 0 && v.follows(newest-1)
		failed = failed && (alone || placed)
		switch retry := t.Retry && v.message(newest).From == t.From && !v.follows(newest); {
		case failed, retry && answer != nil && answer.Partial:
			d.Diverged = !alone && !placed
			return v.replaceExchange(d, newest)
		case retry && (answer == nil || t.Abandoned(v.message(newest).Run)):
			d.Outcome, d.Run = join, v.message(newest).Run
			return d, true
		}
	}
	if d, done, enough := v.byID(d); done || !enough {
		return d, enough
	}
	return v.byText(d)
}

// view is a transcript and what is known of the history.
type view struct {
	t     transcript
	known []message
	users []int // indexes in known of the user's messages, one for each exchange
	whole bool
}

// byID decides by the client's ids. done is false if they decide nothing.
func (v view) byID(d decision) (_ decision, done, enough bool) {
	t, explicit, at := v.t, v.t.Replaces || v.t.Newest, -1
	if t.ClientID != "" {
		at = v.find(func(m message) bool { return m.ClientID == t.ClientID || explicit && m.ID == t.ClientID })
	}
	switch {
	case at < 0 && explicit && !v.whole:
		return d, false, false
	case at < 0 && explicit:
		knows := len(v.users) == 0 || len(t.Exchanges) > 1 && v.follows(len(v.users)-1)
		if t.Newest && !knows {
			d.Outcome = conflict
		} else {
			d.Diverged = !knows
		}
		return d, true, true
	case at >= 0 && t.Newest && at+1 < len(v.users):
		d.Outcome = conflict
		return d, true, true
	case at >= 0 && explicit, at >= 0 && (v.text(at) == t.question() || v.samePlace(at)) && v.sameClient(at):
		d, enough = v.replaceExchange(d, at)
		return d, true, enough
	case at >= 0 && len(t.Exchanges) == 1 && v.text(at) != t.question():
		return v.sameID(d, at)
	case t.Parent == "":
		return d, false, true
	}
	at = v.find(func(m message) bool { return m.AnswerID == t.Parent || m.ClientID == t.Parent })
	switch {
	case at < 0 && !v.whole:
		return d, false, false
	case at < 0:
		return d, false, true
	case at+1 < len(v.users) && !v.sameClient(at+1):
		d.Diverged = true
		return d, true, true
	}
	return v.appendAfter(d, at), true, true
}

// sameID decides on a single message that has the id of the exchange at and other words. Either message may be a task of
// the page. A task's prompt contains the user's message, or it comes after the answer.
func (v view) sameID(d decision, at int) (_ decision, done, enough bool) {
	words, stored := squeezed(v.t.Content), squeezed(v.message(at).Content)
	answer, _ := v.answer(at)
	switch last := at+1 == len(v.users); {
	case words != "" && last && strings.Contains(stored, words): // the task came first
		d, enough = v.replaceExchange(d, at)
		return d, true, enough
	case last && answer == nil && !strings.Contains(words, stored):
		return d, true, true
	}
	d.Outcome = task
	return d, true, true
}

// byText decides by the words.
func (v view) byText(d decision) (decision, bool) {
	t, newest := v.t, len(v.users)-1
	switch {
	case len(t.Exchanges) == 1:
		if t.Parent == "" && t.ClientID == "" && !t.Retry {
			d.Last = nil // it may wait until others have been answered
		}
		return d, true
	case newest == 0 && !v.whole:
		return d, false
	case newest < 0:
		d.Diverged = true
		return d, true
	case v.text(newest) == redacted:
		return d, true
	case v.follows(newest):
		before := t.Exchanges[len(t.Exchanges)-2]
		d.Diverged = before.Answer == "" && before.User != v.text(newest) // a message that was never stored
		return d, true
	case v.samePlace(newest) && t.From != "" && t.From == v.message(newest).From && !v.message(newest).Alone:
		d.Guess = true
		return v.replaceExchange(d, newest)
	}
	d.Diverged = true
	return d, true
}

// afterRun places the message after the answer of a run. The messages that follow it stay, except for the same message
// if it failed. A retry of the same message joins the run of the first attempt.
func (v view) afterRun(d decision) (decision, bool) {
	at, newest := v.find(func(m message) bool { return m.Run == v.t.Run }), len(v.users)-1
	switch {
	case at < 0 && !v.whole:
		return d, false
	case at < 0, v.text(at) == redacted:
		d.Outcome = missing
		return d, true
	}
	d = v.appendAfter(d, at)
	if d.Outcome != replace {
		return d, true
	}
	next, same := v.message(at+1), v.text(at+1) == v.t.question()
	answer, failed := v.answer(at + 1)
	cut := answer != nil && answer.Partial
	switch retry := same && v.t.Retry && next.From == v.t.From; {
	case at+1 == newest && (same && failed || retry && cut):
	case retry && !failed && !cut && (answer == nil || v.t.Abandoned(next.Run)):
		d.Outcome, d.Run = join, next.Run
	default:
		d.Outcome = branch
	}
	return d, true
}

// appendAfter places the message after the exchange at.
func (v view) appendAfter(d decision, at int) decision {
	if at+1 < len(v.users) {
		d.Outcome, d.After = replace, &v.known[v.users[at+1]-1].ID
	}
	return d
}

// replaceExchange places the message where the exchange at is.
func (v view) replaceExchange(d decision, at int) (decision, bool) {
	i := v.users[at]
	if i == 0 && !v.whole {
		return d, false // the message before it is not known yet
	}
	d.Outcome, d.After = replace, new(string)
	if i > 0 {
		d.After = &v.known[i-1].ID
	}
	return d, true
}

// samePlace reports whether the new message has the place of the exchange at: the transcript's message before it is the
// one before the exchange.
func (v view) samePlace(at int) bool {
	if at == 0 || len(v.t.Exchanges) == 1 {
		return false
	}
	before := v.t.Exchanges[len(v.t.Exchanges)-2]
	return before.User == v.text(at-1) && v.indexOf(before) == at-1
}

// follows reports whether the new message follows the exchange at. The transcript's newest answer decides. If the chat
// does not have it, since clients shorten and omit answers, the message before the new one decides.
func (v view) follows(at int) bool {
	before := v.t.Exchanges[:len(v.t.Exchanges)-1]
	if len(before) == 0 {
		return false
	}
	newest := before[len(before)-1]
	if newest.Answer == "" && newest.User == v.text(at) {
		return true
	}
	for _, e := range slices.Backward(before) {
		if e.Answer != "" {
			return v.indexOf(e) == at
		}
	}
	return v.indexOf(newest) == at
}

// indexOf returns the index of the newest exchange with the same message and answer. Otherwise it looks for the newest
// exchange with the same answer, then with the same message. It returns -1 if there is none.
func (v view) indexOf(e exchange) int {
	byAnswer, byUser := -1, -1
	for i := len(v.users) - 1; i >= 0; i-- {
		answer, _ := v.answer(i)
		sameUser := e.User != "" && v.text(i) == e.User
		sameAnswer := e.Answer != "" && answer != nil && answer.Text == e.Answer
		switch {
		case sameUser && sameAnswer:
			return i
		case sameAnswer && byAnswer < 0:
			byAnswer = i
		case sameUser && byUser < 0:
			byUser = i
		}
	}
	return cmp.Or(byAnswer+1, byUser+1) - 1
}

// answer returns the last answer to the exchange at, or nil. failed reports that there are only failures.
func (v view) answer(at int) (last *message, failed bool) {
	end := len(v.known)
	if at+1 < len(v.users) {
		end = v.users[at+1]
	}
	for i := v.users[at] + 1; i < end; i++ {
		if failed = failed || v.known[i].Failed; !v.known[i].Failed {
			last = &v.known[i]
		}
	}
	return last, failed && last == nil
}

// sameClient reports whether the exchanges from at on are the client's own: they came with ids, or from the same client.
func (v view) sameClient(at int) bool {
	for ; at < len(v.users); at++ {
		if m := v.message(at); m.ClientID == "" && m.From != v.t.From {
			return false
		}
	}
	return true
}

// find returns the index of the newest exchange whose message of the user satisfies matches, or -1.
func (v view) find(matches func(message) bool) int {
	for at := len(v.users) - 1; at >= 0; at-- {
		if matches(v.message(at)) {
			return at
		}
	}
	return -1
}

func (v view) message(at int) message { return v.known[v.users[at]] }

func (v view) text(at int) string { return v.message(at).Text }

var (
	redacted = normal(memory.RedactedText)
	// reasoning matches what clients store of an answer's reasoning as text: blocks between tags.
	reasoning = regexp.MustCompile(`(?is)<think(?:ing)?>.*?</think(?:ing)?>|<details\s+type="reasoning".*?</details>`)
)

// squeezed returns a text without white space and invisible characters.
func squeezed(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, text)
}

// maxText is the longest normal form that is the text itself, in bytes. That of a longer text is its SHA-256.
const maxText = 64

// normal returns the normal form for comparisons of texts: without reasoning, white space and invisible characters, and
// in Unicode's form NFC.
func normal(text string) string {
	if strings.Contains(text, "<") {
		text = reasoning.ReplaceAllString(text, "")
	}
	text = norm.NFC.String(squeezed(text))
	if len(text) > maxText {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	return text
}
