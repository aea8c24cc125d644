package openaiapi

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"mneme/memory"
)

// message is a message of a chat's history, as far as matching needs it.
type message struct {
	ID     string
	Run    string // that made it, "" for none
	User   bool
	Text   string // of the user, as normal gives it
	Failed bool   // it stands for an answer that there is none of
	// What the client called the user's message, and the answer to it; empty if it did not say.
	ClientID, AnswerID string
	// From names the client that sent the user's message in a transcript; empty for one that came alone.
	From string
}

// outcome is what a transcript asks for.
type outcome string

// Outcomes.
const (
	post     outcome = "post"     // the message follows all there is
	again    outcome = "again"    // it is there, and to be answered once more
	edit     outcome = "edit"     // it takes the place of another one
	branch   outcome = "branch"   // it goes on in a fork of the chat, which begins with what stands before After
	mismatch outcome = "mismatch" // the transcript is of another history
)

// decision is an outcome and where it leads.
type decision struct {
	Outcome outcome
	After   *string // as of a webapi.MessageRequest
	Last    *string // id of the newest message that there is, "" for none; nil if it does not matter
	// Marked: the message is to be stored as one of a client that sends transcripts.
	Marked bool
}

// transcript is what a client holds of a chat.
type transcript struct {
	Users []string // its messages of the user, as normal gives them; the last one is new, or to be answered again
	// Which of them no answer follows: the client may have kept what was refused and not stored. Nil is none.
	Unanswered []bool
	// What the client calls the last one and what it follows; empty if it does not say.
	ClientID, Parent string
	// There: the last one is in the chat, as far as the client knows, and answered once more or changed.
	There bool
	// Root: the client says that the last one follows nothing.
	Root bool
	// Run is the one whose answer the last one follows, and nothing else counts; empty if the client does not say.
	Run string
	// From names the client; empty where a chat may be that of several conversations of the client's.
	From string
}

// match says what a transcript asks for, of which known are the newest messages of the chat's
// history; whole says that there are no others. If they do not suffice, enough is false.
func match(t transcript, known []message, whole bool) (d decision, enough bool) {
	v := view{t: t, known: known, whole: whole}
	for i, m := range known {
		if m.User {
			v.users = append(v.users, i)
		}
	}
	if d.Last = new(string); len(known) > 0 {
		d.Last = &known[len(known)-1].ID
	}
	if t.Run != "" {
		return v.behind(d)
	}
	d.Marked = len(t.Users) > 1
	if t.Parent != "" {
		at := v.find(func(m message) bool { return m.AnswerID == t.Parent || m.ClientID == t.Parent })
		switch {
		case at >= 0:
			return v.follow(d, at), true
		case !whole:
			return d, false
		}
	}
	if t.ClientID != "" {
		at := v.find(func(m message) bool { return m.ClientID == t.ClientID || t.There && m.ID == t.ClientID })
		switch {
		case at >= 0:
			return v.replace(d, again, at)
		case t.There && !whole:
			return d, false
		}
	}
	if t.Root && len(t.Users) == 1 {
		switch {
		case !whole:
			return d, false
		case len(v.users) > 0 && known[v.users[0]].ClientID != "": // what others began is not the client's to change
			return v.replace(d, edit, 0)
		}
	}
	if len(t.Users) == 1 {
		return v.alone(d)
	}
	return v.byText(d)
}

// view is a transcript beside what is known of the history.
type view struct {
	t     transcript
	known []message
	users []int // indexes in known of the user's messages
	whole bool
}

// find is the newest of the user's messages that is as asked, by its place in users; -1 for none.
func (v view) find(is func(message) bool) int {
	for at := len(v.users) - 1; at >= 0; at-- {
		if is(v.known[v.users[at]]) {
			return at
		}
	}
	return -1
}

// follow is a message behind the exchange at a place.
func (v view) follow(d decision, at int) decision {
	d.Outcome = post
	if at+1 == len(v.users) {
		return d
	}
	d.Outcome, d.After = edit, &v.known[v.users[at+1]-1].ID
	return d
}

// behind is a message behind the answer of a run. What others have said there stays, but for the same message that
// failed.
func (v view) behind(d decision) (decision, bool) {
	at, newest := v.find(func(m message) bool { return m.Run == v.t.Run }), len(v.users)-1
	switch {
	case at < 0 && !v.whole:
		return d, false
	case at < 0, v.redacted(at):
		d.Outcome = mismatch
		return d, true
	}
	d = v.follow(d, at)
	failed := at+1 == newest && v.is(newest) && v.users[newest]+1 < len(v.known) && v.unanswered()
	if d.Outcome == edit && !failed {
		d.Outcome = branch
	}
	return d, true
}

// replace is a message in the place of another one.
func (v view) replace(d decision, as outcome, at int) (decision, bool) {
	if v.users[at] == 0 && !v.whole {
		return d, false // what stands before it is not known yet
	}
	d.Outcome, d.After = as, new(string)
	if i := v.users[at]; i > 0 {
		d.After = &v.known[i-1].ID
	}
	return d, true
}

// alone decides on one message that no id places. If a client's newest message came in a transcript, it sends no
// message alone but the conversation's first one. SDKs send a message that failed once more by themselves.
func (v view) alone(d decision) (decision, bool) {
	n := len(v.users)
	if n == 0 && !v.whole {
		return d, false
	}
	transcripts := n > 0 && v.t.From != "" && v.t.Parent == "" && v.known[v.users[n-1]].From == v.t.From
	switch {
	case transcripts && !v.whole:
		return d, false
	case transcripts && !v.redacted(0):
		d.Marked = true
		if v.is(0) {
			return v.replace(d, again, 0)
		}
		return v.replace(d, edit, 0)
	case n > 0 && v.is(n-1) && v.users[n-1]+1 < len(v.known) && v.unanswered():
		return v.replace(d, again, n-1)
	}
	if d.Outcome = post; v.t.Parent == "" && v.t.ClientID == "" {
		d.Last = nil // it may wait behind others
	}
	return d, true
}

// byText decides by the user's words.
func (v view) byText(d decision) (decision, bool) {
	n, before := len(v.users), len(v.t.Users)-1
	if n <= before && !v.whole {
		return d, false
	}
	if n > 0 && v.unanswered() && v.is(n-1) {
		if _, same, ok := v.align(n - 1); ok && (same > 0 || n == 1) {
			return v.replace(d, again, n-1)
		}
	}
	if left, same, ok := v.align(n); ok && (same > 0 || n == 0 && left == 0) {
		d.Outcome = post
		return d, true
	}
	if !v.whole {
		return d, false
	}
	found, places := -1, 0
	for at := 1; at < n; at++ {
		if !v.is(at) {
			continue
		}
		if left, same, ok := v.align(at); ok && left == 0 && same > 0 {
			found, places = at, places+1
		}
	}
	edits := false
	if n > before {
		_, same, _ := v.align(before)
		edits = same == before && !v.is(before) && !v.redacted(before)
	}
	switch {
	case places == 1 && !edits:
		return v.replace(d, again, found)
	case places == 0 && edits:
		return v.replace(d, edit, before)
	}
	d.Outcome = mismatch
	return d, true
}

// unanswered says whether the newest message of the user has no answer.
func (v view) unanswered() bool {
	for _, m := range v.known[v.users[len(v.users)-1]+1:] {
		if !m.Failed {
			return false
		}
	}
	return true
}

func (v view) text(at int) string { return v.known[v.users[at]].Text }

func (v view) redacted(at int) bool { return v.text(at) == redacted }

// is says whether the message at a place is the transcript's last one.
func (v view) is(at int) bool { return v.text(at) == v.t.Users[len(v.t.Users)-1] && !v.redacted(at) }

// align walks the stored messages before a place and those of the transcript before its last one back from their ends,
// until either has no more. What no answer follows and is not stored there is passed over. It gives how many of the
// transcript's are left and how many were the same; ok is false where they differ.
func (v view) align(at int) (left, same int, ok bool) {
	for left = len(v.t.Users) - 1; left > 0; left-- {
		switch i := left - 1; {
		case at > 0 && (v.text(at-1) == v.t.Users[i] || v.redacted(at-1)):
			at, same = at-1, same+1
		case i < len(v.t.Unanswered) && v.t.Unanswered[i]:
		default:
			return left, same, at == 0
		}
	}
	return 0, same, true
}

var (
	redacted = normal(memory.RedactedText)
	// reasoning is what clients keep of it as text: blocks of tags.
	reasoning = regexp.MustCompile(`(?is)<think(?:ing)?>.*?</think(?:ing)?>|<details\s+type="reasoning".*?</details>`)
)

// maxText is how long a normal text is as it is, in bytes; of a longer one it is the SHA-256.
const maxText = 64

// normal is a text as it is compared: without reasoning, white space and what does not show, and with one spelling for
// what Unicode can spell in several ways.
func normal(text string) string {
	if strings.Contains(text, "<") {
		text = reasoning.ReplaceAllString(text, "")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, text)
	text = norm.NFC.String(text)
	if len(text) > maxText {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	return text
}
