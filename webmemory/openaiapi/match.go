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
	// Client identifies the client that sent the user's message, see clientOf. It is "" for a message of another endpoint.
	Client       string
	NoTranscript bool // the user's message came without a transcript
	Diverged     bool // the message was appended although its transcript did not end where the chat did
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
	Outcome  outcome
	ParentID *string // as in webapi.MessageRequest
	Last     *string // id of the newest stored message, "" for none; nil if the outcome does not depend on it
	Run      string  // of a join
	// Diverged reports that the transcript does not end where the chat does. Again reports the same of the
	// client's message before.
	Diverged, PrevDiverged bool
	Guess                  bool   // the words led to a replace, and no id
	Newest                 string // id of the newest stored message of the user, "" for none
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
	Client    string // identifies the client, see clientOf
}

func (t transcript) question() string { return t.Exchanges[len(t.Exchanges)-1].User }

// match decides on the effect of a request. known are the chat's newest messages; whole reports that these are all. If
// match needs older messages, enough is false.
//
// Without ids, match replaces at most the newest exchange, and only if the same client sent it. It appends every message
// that it does not recognize.
func match(t transcript, messages []message, complete bool) (d decision, enough bool) {
	v := view{t: t, messages: messages, complete: complete}
	for i, m := range messages {
		if m.User {
			v.users = append(v.users, i)
		}
	}
	d.Outcome, d.Last = post, new(string)
	if len(messages) > 0 {
		d.Last = &messages[len(messages)-1].ID
	}
	newest := len(v.users) - 1
	if newest >= 0 {
		d.Newest, d.PrevDiverged = v.message(newest).ID, v.message(newest).Diverged && v.message(newest).Client == t.Client
	}
	switch {
	case t.Run != "":
		return v.afterRun(d)
	case newest < 0 && !complete:
		return d, false
	case newest >= 0 && v.text(newest) == t.question() && v.text(newest) != redacted:
		answer, failed := v.answer(newest)
		single, placed := len(t.Exchanges) == 1, newest > 0 && v.follows(newest-1)
		failed = failed && (single || placed)
		switch retry := t.Retry && v.message(newest).Client == t.Client && !v.follows(newest); {
		case failed, retry && answer != nil && answer.Partial:
			d.Diverged = !single && !placed
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
	t        transcript
	messages []message
	users    []int // indexes in known of the user's messages, one for each exchange
	complete bool
}

// byID decides by the client's ids. done is false if they decide nothing.
func (v view) byID(d decision) (_ decision, done, enough bool) {
	t, explicit, index := v.t, v.t.Replaces || v.t.Newest, -1
	if t.ClientID != "" {
		index = v.find(func(m message) bool { return m.ClientID == t.ClientID || explicit && m.ID == t.ClientID })
	}
	switch {
	case index < 0 && explicit && !v.complete:
		return d, false, false
	case index < 0 && explicit:
		knows := len(v.users) == 0 || len(t.Exchanges) > 1 && v.follows(len(v.users)-1)
		if t.Newest && !knows {
			d.Outcome = conflict
		} else {
			d.Diverged = !knows
		}
		return d, true, true
	case index >= 0 && t.Newest && index+1 < len(v.users):
		d.Outcome = conflict
		return d, true, true
	case index >= 0 && explicit, index >= 0 && (v.text(index) == t.question() || v.samePlace(index)) &&
		v.sameClient(index):
		d, enough = v.replaceExchange(d, index)
		return d, true, enough
	case index >= 0 && len(t.Exchanges) == 1 && v.text(index) != t.question():
		return v.sameID(d, index)
	case t.Parent == "":
		return d, false, true
	}
	index = v.find(func(m message) bool { return m.AnswerID == t.Parent || m.ClientID == t.Parent })
	switch {
	case index < 0 && !v.complete:
		return d, false, false
	case index < 0:
		return d, false, true
	case index+1 < len(v.users) && !v.sameClient(index+1):
		d.Diverged = true
		return d, true, true
	}
	return v.appendAfter(d, index), true, true
}

// sameID decides on a single message that has the id of the exchange at and other words. Either message may be a task of
// the page. A task's prompt contains the user's message, or it comes after the answer.
func (v view) sameID(d decision, index int) (_ decision, done, enough bool) {
	words, stored := squeezed(v.t.Content), squeezed(v.message(index).Content)
	answer, _ := v.answer(index)
	switch last := index+1 == len(v.users); {
	case words != "" && last && strings.Contains(stored, words): // the task came first
		d, enough = v.replaceExchange(d, index)
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
	case newest == 0 && !v.complete:
		return d, false
	case newest < 0:
		d.Diverged = true
		return d, true
	case v.text(newest) == redacted:
		return d, true
	case v.follows(newest):
		previous := t.Exchanges[len(t.Exchanges)-2]
		d.Diverged = previous.Answer == "" && previous.User != v.text(newest) // a message that was never stored
		return d, true
	case v.samePlace(newest) && t.Client != "" && t.Client == v.message(newest).Client && !v.message(newest).NoTranscript:
		d.Guess = true
		return v.replaceExchange(d, newest)
	}
	d.Diverged = true
	return d, true
}

// afterRun places the message after the answer of a run. The messages that follow it stay, except for the same message
// if it failed. A retry of the same message joins the run of the first attempt.
func (v view) afterRun(d decision) (decision, bool) {
	index, newest := v.find(func(m message) bool { return m.Run == v.t.Run }), len(v.users)-1
	switch {
	case index < 0 && !v.complete:
		return d, false
	case index < 0, v.text(index) == redacted:
		d.Outcome = missing
		return d, true
	}
	d = v.appendAfter(d, index)
	if d.Outcome != replace {
		return d, true
	}
	next, same := v.message(index+1), v.text(index+1) == v.t.question()
	answer, failed := v.answer(index + 1)
	cut := answer != nil && answer.Partial
	switch retry := same && v.t.Retry && next.Client == v.t.Client; {
	case index+1 == newest && (same && failed || retry && cut):
	case retry && !failed && !cut && (answer == nil || v.t.Abandoned(next.Run)):
		d.Outcome, d.Run = join, next.Run
	default:
		d.Outcome = branch
	}
	return d, true
}

// appendAfter places the message after the exchange at.
func (v view) appendAfter(d decision, index int) decision {
	if index+1 < len(v.users) {
		d.Outcome, d.ParentID = replace, &v.messages[v.users[index+1]-1].ID
	}
	return d
}

// replaceExchange places the message where the exchange at is.
func (v view) replaceExchange(d decision, index int) (decision, bool) {
	i := v.users[index]
	if i == 0 && !v.complete {
		return d, false // the message before it is not known yet
	}
	d.Outcome, d.ParentID = replace, new(string)
	if i > 0 {
		d.ParentID = &v.messages[i-1].ID
	}
	return d, true
}

// samePlace reports whether the new message has the place of the exchange at: the transcript's message before it is the
// one before the exchange.
func (v view) samePlace(index int) bool {
	if index == 0 || len(v.t.Exchanges) == 1 {
		return false
	}
	previous := v.t.Exchanges[len(v.t.Exchanges)-2]
	return previous.User == v.text(index-1) && v.indexOf(previous) == index-1
}

// follows reports whether the new message follows the exchange at. The transcript's newest answer decides. If the chat
// does not have it, since clients shorten and omit answers, the message before the new one decides.
func (v view) follows(index int) bool {
	previous := v.t.Exchanges[:len(v.t.Exchanges)-1]
	if len(previous) == 0 {
		return false
	}
	newest := previous[len(previous)-1]
	if newest.Answer == "" && newest.User == v.text(index) {
		return true
	}
	for _, e := range slices.Backward(previous) {
		if e.Answer != "" {
			return v.indexOf(e) == index
		}
	}
	return v.indexOf(newest) == index
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
func (v view) answer(index int) (last *message, failed bool) {
	end := len(v.messages)
	if index+1 < len(v.users) {
		end = v.users[index+1]
	}
	for i := v.users[index] + 1; i < end; i++ {
		if failed = failed || v.messages[i].Failed; !v.messages[i].Failed {
			last = &v.messages[i]
		}
	}
	return last, failed && last == nil
}

// sameClient reports whether the exchanges from at on are the client's own: they came with ids, or from the same client.
func (v view) sameClient(index int) bool {
	for ; index < len(v.users); index++ {
		if m := v.message(index); m.ClientID == "" && m.Client != v.t.Client {
			return false
		}
	}
	return true
}

// find returns the index of the newest exchange whose message of the user satisfies matches, or -1.
func (v view) find(matches func(message) bool) int {
	for i := len(v.users) - 1; i >= 0; i-- {
		if matches(v.message(i)) {
			return i
		}
	}
	return -1
}

func (v view) message(index int) message { return v.messages[v.users[index]] }

func (v view) text(index int) string { return v.message(index).Text }

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
