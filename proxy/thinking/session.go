package thinking

import (
	"context"
	"slices"

	"mneme/proxy/ledger"
)

// Unproven is what becomes of thinking that nobody knows.
type Unproven string

// The ways with it.
const (
	Lazy Unproven = "lazy" // it is sent as it is; the one retry stands behind it
	Text Unproven = "text" // it becomes visible text
	Drop Unproven = "drop"
)

// Policy is how a Session treats what the ledger does not settle.
type Policy struct {
	Unproven Unproven // "" is Lazy
	// Bound: the backend has said that a block was bound to a different
	// conversation, see SaysBound. Turns that were made under another system text
	// or other tools cannot be kept then.
	Bound bool
	// OwnModel: the backend has refused thinking of another model of its vendor. It
	// is as foreign as another vendor's then.
	OwnModel bool
	// Moved: what stands before the current turn is not what stood there when the
	// last answer was given. Thinking that is older than the turn is left out then,
	// a leading run, and that of the turn itself too, if the backend is Bound.
	Moved bool
}

// Session is the Replay of a request in the main pipeline, whose backend can
// change: it decides which thinking the backend gets to see.
type Session struct {
	*Replay
	policy Policy
}

// Begin captures, at once, whose request this is, who is to be asked, and what is
// proven. What follows goes by that, whatever other requests do meanwhile.
func Begin(ctx context.Context, l Ledger, r ledger.Request, p Policy) *Session {
	return &Session{Look(ctx, l, r), p}
}

// Filter is the request with the thinking that its backend may see. Whole stored
// turns go back where the client shows them otherwise; edited, foreign and refused
// thinking goes, and all that is not on the chain, see the package's
// documentation; what nobody knows goes by the policy. With nothing to do the body
// is the outline's own.
func (s *Session) Filter() (body []byte, report Report) {
	s.steps = s.plan()
	return s.apply(s.steps)
}

func (s *Session) plan() []step {
	h := history{s.request.Outline, s.request.Dialect}
	steps := make([]step, len(s.judged))
	w := walk{session: s, loop: h.loop(), torn: -1}
	if s.policy.Bound {
		w.context = ledger.ContextKey(s.request.Outline)
	}
	if s.policy.Moved {
		w.moved = w.loop
		if s.policy.Bound {
			w.moved = len(h.Messages)
		}
	}
	w.tear()
	for i := len(s.judged) - 1; i >= 0; i-- {
		steps[i] = w.step(&s.judged[i])
	}
	return steps
}

// foreign reports whether thinking is of no use to the model that is asked.
func (s *Session) foreign(j *ledger.Judged) bool {
	return s.Replay.foreign(j) || s.policy.OwnModel && s.otherModel(j)
}

// walk goes along the chain from the newest message to the oldest.
type walk struct {
	session *Session
	loop    int // index of the first message of the current tool loop
	// torn is the last message of the current tool loop whose thinking cannot go back;
	// -1 for none. Vendors want the thinking of a loop whole, so all of it up to
	// there goes, gone being its keys, and what was made in sight of it.
	torn    int
	gone    []string
	context string // of the request, if it counts
	moved   int    // thinking of messages before it has moved

	begun  bool   // a block was kept: the chain begins at the newest of those
	linked bool   // wanted is set
	wanted string // the key that the chain goes on with
	broken bool   // it has ended
}

func (w *walk) step(j *ledger.Judged) step {
	if w.session.refused(j) || j.Edited {
		w.end()
	}
	if w.tears(j) {
		return step{remove, ledger.Altered}
	}
	if j.Message < w.moved && !w.session.refused(j) && !w.session.foreign(j) && !j.Edited {
		return w.left(j)
	}
	switch {
	case w.session.refused(j):
		return step{remove, ledger.Refused}
	case w.session.foreign(j):
		return step{remove, ledger.Foreign}
	case j.Edited:
		return step{remove, ledger.Altered}
	case w.session.known(j):
		return w.proven(j)
	case holds(j, ledger.Altered):
		return step{remove, ledger.Altered} // nobody knows how it was
	case holds(j, ledger.Unknown) || holds(j, ledger.Proven):
		return w.unknown(j)
	}
	return step{}
}

// tear finds the last message that tears the current tool loop, and all that goes
// along with it.
func (w *walk) tear() {
	judged := w.session.judged
	for i := range judged {
		if j := &judged[i]; j.Message >= w.loop && (j.Edited || w.session.refused(j)) {
			w.torn = j.Message
		}
	}
	for i := range judged {
		if j := &judged[i]; j.Message == w.torn || w.tears(j) {
			w.gone = append(append(w.gone, j.Keys...), j.TurnKeys...)
		}
	}
}

// tears says whether a message of the current tool loop has to go along with the
// one that tears it.
func (w *walk) tears(j *ledger.Judged) bool {
	switch {
	case j.Message < w.loop || w.torn < 0 || j.Message == w.torn:
		return false
	case j.Message < w.torn:
		return true
	}
	return j.Turn != nil && j.Turn.Predecessor != "" && slices.Contains(w.gone, j.Turn.Predecessor)
}

// left is the step for a message whose thinking may be bound to what is gone.
func (w *walk) left(j *ledger.Judged) step {
	w.end()
	if last(j.TurnKeys) == "" && last(j.Keys) == "" {
		return step{}
	}
	return unchained
}

// end is called where the chain cannot go on. What is older than the newest kept
// block was bound to nothing that comes later.
func (w *walk) end() { w.broken = w.broken || w.begun }

// proven is the step for a message whose turn is known.
func (w *walk) proven(j *ledger.Judged) step {
	key := last(j.TurnKeys)
	if key == "" {
		return back(j) // no thinking: nothing that could be a link
	}
	if w.context != "" && j.Turn.Context != w.context {
		w.end()
		return unchained
	}
	if w.broken || w.linked && key != w.wanted {
		return unchained
	}
	w.begun, w.linked, w.wanted = true, true, j.Turn.Predecessor
	w.broken = w.wanted == "" // nothing stood before it
	return back(j)
}

// unknown is the step for a message with thinking whose turn nobody knows. In the
// current tool loop vendors want all thinking back, so that only they can judge
// what is there.
func (w *walk) unknown(j *ledger.Judged) step {
	onChain := w.linked && last(j.Keys) == w.wanted
	if p := w.session.policy.Unproven; holds(j, ledger.Unknown) && (p == Text || p == Drop) {
		if onChain {
			w.end()
		}
		if p == Text {
			return step{intoText, ledger.Unknown}
		}
		return step{remove, ledger.Unknown}
	}
	if (w.broken || w.linked && !onChain) && j.Message < w.loop {
		return unchained
	}
	if onChain {
		w.linked = false // what stood before it is not known
	}
	w.begun = true
	return step{leave, ledger.Unknown}
}

// hollow are the keys of thinking that says nothing. LastThinking passes over it,
// too.
var hollow = []string{
	ledger.BlockKey([]byte(`{"type":"thinking","thinking":""}`)), ledger.BlockKey([]byte(`{"reasoning_content":""}`)),
}

// last is the last key of thinking that says something; empty for none.
func last(keys []string) string {
	for i := len(keys) - 1; i >= 0; i-- {
		if keys[i] != "" && !slices.Contains(hollow, keys[i]) {
			return keys[i]
		}
	}
	return ""
}
