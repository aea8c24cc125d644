package thinking

import (
	"context"
	"slices"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Unproven is the policy for thinking that the ledger does not know.
type Unproven string

// The ways with it.
const (
	Lazy Unproven = "lazy" // it is sent unchanged, and the retry takes it out if the vendor refuses it
	Text Unproven = "text" // it becomes visible text
	Drop Unproven = "drop" // it is removed
)

// Policy is how a Session treats thinking that the ledger alone cannot decide about.
type Policy struct {
	Unproven Unproven // "" means Lazy
	// Bound: the backend has said that a block is bound to a different conversation, see SaysBound.
	// Then turns that were made under another system text or other tools cannot be kept.
	Bound bool
	// Own says whether the backend has refused thinking of other models, or of other
	// backends, of its own vendor. That is as foreign as another vendor's.
	Own Strangers
	// Moved: what precedes the message of this index differs from what preceded it at the last
	// answer, and the model binds thinking to it. The thinking before that message, which is a
	// leading run, is left out.
	Moved int
}

// Session is the Replay of a request in the main pipeline, where the backend may change
// between requests. It decides which thinking the backend gets to see.
type Session struct {
	*Replay
	policy Policy
}

// Begin takes the snapshot that the session works with, see Look.
func Begin(ctx context.Context, l *ledger.Ledger, r ledger.Request, p Policy) *Session {
	return &Session{Look(ctx, l, r), p}
}

// Filter is the request with the thinking that its backend may see. Turns are replaced by their
// stored form where the client shows them differently. Edited, foreign and refused thinking is
// removed, and so is what is not on the chain (see the package documentation). Unknown thinking is
// treated by the policy. If there is nothing to do the body is the outline's own.
func (s *Session) Filter() (body []byte, report Report) {
	s.steps = s.plan()
	return s.apply(s.steps)
}

// plan decides on a step for each judged message, from the newest to the oldest.
func (s *Session) plan() []step {
	h := history{s.request.Outline, s.request.Dialect}
	steps := make([]step, len(s.judged))
	w := walk{session: s, loop: h.loop(), torn: -1, moved: s.policy.Moved}
	if s.policy.Bound {
		w.context = ledger.ContextKey(s.request.Outline)
	}
	w.tear()
	for i := len(s.judged) - 1; i >= 0; i-- {
		steps[i] = w.step(&s.judged[i])
	}
	return steps
}

// foreign reports whether thinking is of no use to the model that is asked.
func (s *Session) foreign(j *ledger.Judged) bool {
	strangers := s.stranger(j)
	return s.Replay.foreign(j) || s.policy.Own.Models && strangers.Models || s.policy.Own.Backends && strangers.Backends
}

// walk follows the chain from the newest message to the oldest.
type walk struct {
	session *Session
	loop    int // index of the first message of the current tool loop
	// torn is the last message of the current tool loop with thinking that cannot be sent; -1 for
	// none. Vendors accept a loop's thinking only as a whole, so all thinking up to there is
	// removed, and with it what was produced in sight of it. gone are the keys of what is removed.
	torn    int
	removed []string
	context string // the request's context key; empty if the context does not count
	moved   int    // thinking of messages before this index has moved, see Policy.Moved

	own   chain // of the asked backend's thinking
	other chain // of what other backends of the vendor thought and this one has not answered to
}

// chain is how far one has been followed.
type chain struct {
	started bool   // a block was kept, and the chain begins at the newest of those
	linked  bool   // wanted is known
	nextKey string // the key of the next link
	broken  bool   // the chain has ended
}

// end marks the end of the chain. Before the first kept block there is no chain to end: older
// blocks are not bound to anything that comes after them.
func (c *chain) end() { c.broken = c.broken || c.started }

// leads reports whether a key is the chain's next link.
func (c *chain) leads(key string) bool { return c.linked && key != "" && key == c.nextKey }

// step decides about one message. The order of the cases matters: what cannot be sent comes first.
func (w *walk) step(j *ledger.Judged) step {
	if w.breaks(j) || w.own.leads(last(j.TurnKeys)) && (w.session.refused(j) || w.session.foreign(j)) {
		w.end()
	}
	if w.tears(j) {
		return step{remove, ledger.Altered}
	}
	if j.Message < w.moved && !w.session.refused(j) && !w.session.foreign(j) && !j.Edited {
		return w.movedStep(j)
	}
	switch {
	case w.session.refused(j):
		return step{remove, ledger.Refused}
	case w.session.foreign(j):
		return step{remove, ledger.Foreign}
	case j.Edited:
		return step{remove, ledger.Altered}
	case w.session.canRestore(j):
		return w.proven(j)
	case holds(j, ledger.Altered):
		return step{remove, ledger.Altered} // its original form is not known
	case holds(j, ledger.Unknown) || holds(j, ledger.Proven):
		return w.unknown(j)
	}
	return step{}
}

// tear finds the last message that breaks the current tool loop, and all thinking that has to go
// with it.
func (w *walk) tear() {
	judged := w.session.judged
	for i := range judged {
		if j := &judged[i]; j.Message >= w.loop && w.breaks(j) {
			w.torn = j.Message
		}
	}
	for i := range judged {
		if j := &judged[i]; j.Message == w.torn || w.tears(j) {
			w.removed = append(append(w.removed, j.Keys...), j.TurnKeys...)
		}
	}
}

// breaks reports whether what was thought in sight of a message cannot stand without its thinking.
// That of another backend was not seen here if this one refuses it.
func (w *walk) breaks(j *ledger.Judged) bool {
	return j.Edited || w.session.refused(j) && w.session.stranger(j) == Strangers{}
}

// tears reports whether a message of the current tool loop has to lose its thinking because of the
// one that breaks the loop.
func (w *walk) tears(j *ledger.Judged) bool {
	switch {
	case j.Message < w.loop || w.torn < 0 || j.Message == w.torn:
		return false
	case j.Message < w.torn:
		return true
	}
	return j.Turn != nil && j.Turn.Predecessor != "" && slices.Contains(w.removed, j.Turn.Predecessor)
}

// movedStep is the step for a message with thinking that may be bound to what has moved.
func (w *walk) movedStep(j *ledger.Judged) step {
	w.end()
	if last(j.TurnKeys) == "" && last(j.Keys) == "" {
		return step{}
	}
	return unchained
}

// end marks the end of both chains.
func (w *walk) end() {
	w.own.end()
	w.other.end()
}

// proven is the step for a message of a known turn.
func (w *walk) proven(j *ledger.Judged) step {
	key := last(j.TurnKeys)
	if key == "" {
		return restoreStep(j) // no thinking, so it is not a link
	}
	if w.context != "" && j.Turn.Context != w.context {
		w.end()
		return unchained
	}
	c := &w.own
	if w.session.stranger(j).Backends && !c.leads(key) {
		c = &w.other
	}
	if c.broken || c.linked && key != c.nextKey {
		return unchained
	}
	nextKey := j.Turn.Predecessor
	*c = chain{started: true, linked: true, nextKey: nextKey, broken: nextKey == ""} // broken: nothing preceded it
	return restoreStep(j)
}

// unknown is the step for a message with thinking that the ledger does not know. In the current
// tool loop vendors want all thinking back, so it is sent and the vendor judges it.
func (w *walk) unknown(j *ledger.Judged) step {
	c := &w.own
	onChain := c.linked && last(j.Keys) == c.nextKey
	if p := w.session.policy.Unproven; holds(j, ledger.Unknown) && (p == Text || p == Drop) {
		if onChain {
			w.end()
		}
		if p == Text {
			return step{intoText, ledger.Unknown}
		}
		return step{remove, ledger.Unknown}
	}
	if (c.broken || c.linked && !onChain) && j.Message < w.loop {
		return unchained
	}
	if onChain {
		c.linked = false // its predecessor is not known
	}
	c.started = true
	return step{leave, ledger.Unknown}
}

// hollow are the keys of thinking without content, which lastThinking skips too.
var hollow = []string{
	ledger.BlockKey([]byte(`{"type":"thinking","thinking":""}`)), ledger.BlockKey([]byte(`{"reasoning_content":""}`)),
	ledger.BlockKey([]byte(`{"type":"thinking","thinking":"` + wire.LostThinking + `"}`)),
}

// last is the last key of thinking with content; empty if there is none.
func last(keys []string) string {
	for i := len(keys) - 1; i >= 0; i-- {
		if keys[i] != "" && !slices.Contains(hollow, keys[i]) {
			return keys[i]
		}
	}
	return ""
}
