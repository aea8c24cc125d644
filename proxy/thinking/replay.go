package thinking

import (
	"context"
	"slices"
	"time"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Replay is a request together with what the ledger knew of its turns when the request began. It
// belongs to one request and is not safe for concurrent use.
type Replay struct {
	ledger  *ledger.Ledger
	request ledger.Request
	judged  []ledger.Judged
	began   time.Time // fixed by Look; the answer is recorded as of then
	steps   []step    // one for each judged message, as taken by Filter or PutBack
}

// Look takes a snapshot: which conversation the request belongs to, which model is asked, and what
// the ledger knows of the turns that it replays. Later changes in the ledger do not affect this
// request.
func Look(ctx context.Context, l *ledger.Ledger, r ledger.Request) *Replay {
	began := time.Now() // an erasure after this instant erases the answer too
	judged := l.Judge(ctx, r)
	return &Replay{ledger: l, request: r, judged: judged, began: began, steps: make([]step, len(judged))}
}

// PutBack replaces turns by their stored form where the client shows them differently, with the
// vendor's tool ids, and removes what the backend refused before. Everything else stays as it is. A
// vendor that verifies signatures gets thinking from before the current turn only as far as the
// chain leads (see the package documentation), and none of what has moved, see Policy.
func (r *Replay) PutBack(signed bool, moved int) (body []byte, report Report) {
	steps := make([]step, len(r.judged))
	loop := history{r.request.Outline, r.request.Dialect}.loop()
	// ended: nothing older is on the chain. wanted: the key of its next link, empty before the first.
	done, nextKey := false, ""
	for i := len(r.judged) - 1; i >= 0; i-- {
		j := &r.judged[i]
		if r.refused(j) {
			steps[i] = step{remove, ledger.Refused}
			continue
		}
		if j.Message < moved && last(j.TurnKeys)+last(j.Keys) != "" {
			steps[i] = unchained
			continue
		}
		if r.foreign(j) || j.Edited || !r.canRestore(j) {
			continue
		}
		key := last(j.TurnKeys)
		if older := j.Message < loop; signed && older && key != "" && (done || nextKey != "" && key != nextKey) {
			continue
		}
		steps[i] = restoreStep(j)
		if key != "" {
			nextKey = j.Turn.Predecessor
			done = done || nextKey == ""
		}
	}
	r.steps = steps
	return r.apply(steps)
}

// Register records the answer to this request in the ledger. sent is the outline of the request as
// it was sent, place that of the answer in its conversation, nil without one.
func (r *Replay) Register(ctx context.Context, outline *wire.Outline, a Answer, place *ledger.Place) {
	r.ledger.Record(ctx, ledger.Turn{
		Scope: r.request.Scope, Origin: r.request.Target, Dialect: r.request.Dialect,
		Content: a.Content, Outline: a.Outline, Tools: a.Tools, Cut: a.Cut, Time: r.began,
		Predecessor: lastThinking(outline, r.request.Dialect),
		Context:     ledger.ContextKey(r.request.Outline),
		Place:       place,
		Response:    a.Response,
	})
}

// Refused records that the backend rejected these blocks, because the request passed without them.
// keys are those that Strip or StripStrangers returned. others says whether thinking of other models, or of other
// backends, of the vendor was among them; then what the asked backend and model thought is taken to be sound and is
// not recorded, unless own says that the request had failed with that alone, too.
func (r *Replay) Refused(ctx context.Context, keys []string, own bool) (others Strangers) {
	var sound []string
	for i := range r.judged {
		j := &r.judged[i]
		strangers := r.stranger(j)
		switch {
		case j.Turn == nil || r.foreign(j):
		case strangers == Strangers{}:
			sound = append(sound, j.TurnKeys...)
		case slices.ContainsFunc(j.TurnKeys, func(k string) bool { return k != "" && slices.Contains(keys, k) }):
			others = others.and(strangers)
		}
	}
	if own {
		others = Strangers{}
	}
	if others != (Strangers{}) {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return slices.Contains(sound, k) })
	}
	if len(keys) > 0 {
		r.ledger.Refuse(ctx, r.request.Scope, r.request.Target, keys)
	}
	return others
}

// MixesStrangers reports whether thinking was sent both of other backends or models of the vendor
// and of the asked one, or of an unknown one: then a refusal need not be of all of it.
func (r *Replay) MixesStrangers() bool {
	own, others := false, false
	for i, s := range r.steps {
		if j := &r.judged[i]; s.do == putBack || s.do == leave && last(j.Keys) != "" {
			stranger := r.stranger(j) != Strangers{}
			own, others = own || !stranger, others || stranger
		}
	}
	return own && others
}

// StripStrangers is Strip for the messages alone that another backend or model of the vendor has
// answered. o is the request that Filter or PutBack made.
func (r *Replay) StripStrangers(o *wire.Outline) (body []byte, removed []string) {
	h := history{o, r.request.Dialect}
	var e wire.Edits
	for i := range r.judged {
		if j := &r.judged[i]; r.stranger(j) != (Strangers{}) {
			m := &o.Messages[j.Message]
			removed = append(removed, h.keys(m)...)
			h.drop(&e, m)
		}
	}
	return e.Apply(o.Body), removed
}

// Stripped is the report of a request from which Strip, or only StripStrangers, took what Filter or
// PutBack had left in it.
func (r *Replay) Stripped(report Report, strangers bool) Report {
	h := history{r.request.Outline, r.request.Dialect}
	for i, s := range r.steps {
		j := &r.judged[i]
		if strangers && r.stranger(j) == (Strangers{}) {
			continue
		}
		switch n := 0; s.do {
		case leave:
			n = h.count(&h.Messages[j.Message])
			report.Unchanged, report.Stripped = report.Unchanged-n, report.Stripped+n
		case putBack:
			for _, key := range j.TurnKeys {
				if key != "" {
					n++
				}
			}
			report.Stripped += n
			report.PutBack -= min(n, 1)
		}
	}
	return report
}

// Strangers says which others of a backend's vendor have thought something.
type Strangers struct {
	Models   bool // other models of the same backend
	Backends bool // other backends: another account, another region
}

// and returns what s or other covers.
func (s Strangers) and(other Strangers) Strangers {
	return Strangers{s.Models || other.Models, s.Backends || other.Backends}
}

// action is what is done with a message's thinking.
type action int

const (
	leave    action = iota // stays as the client shows it
	putBack                // the stored turn takes the message's place
	remove                 // all of it goes
	intoText               // it becomes visible text
)

// step is the action for one judged message, and its reason.
type step struct {
	do  action
	why ledger.State // the state that its thinking was found in
}

// unchained is the step for thinking that may be valid but is not on the chain.
var unchained = step{remove, ledger.Proven}

// restoreStep is the step for a message of a known turn.
func restoreStep(j *ledger.Judged) step {
	if j.Same {
		return step{leave, ledger.Proven}
	}
	return step{putBack, ledger.Proven}
}

// canRestore reports whether a message's turn is known and can be put back, which needs the same
// dialect. The stored blocks then count, whatever the client made of them.
func (r *Replay) canRestore(j *ledger.Judged) bool {
	return j.Turn != nil && j.Turn.Dialect == r.request.Dialect
}

// refused reports whether the backend has rejected a message's thinking before.
func (r *Replay) refused(j *ledger.Judged) bool {
	if r.canRestore(j) {
		return slices.Contains(j.TurnStates, ledger.Refused)
	}
	return holds(j, ledger.Refused)
}

// foreign reports whether another vendor produced a message's thinking.
func (r *Replay) foreign(j *ledger.Judged) bool {
	if j.Turn != nil {
		return j.Turn.Origin.Vendor != r.request.Target.Vendor
	}
	return holds(j, ledger.Foreign)
}

// stranger tells whether a message's turn is of the same vendor, but of another model or backend
// than the one that is asked.
func (r *Replay) stranger(j *ledger.Judged) Strangers {
	if j.Turn == nil || r.foreign(j) {
		return Strangers{}
	}
	origin, target := j.Turn.Origin, r.request.Target
	return Strangers{origin.Backend == target.Backend && origin.Model != target.Model, origin.Backend != target.Backend}
}

// holds reports whether a block of the message was judged to be in a state.
func holds(j *ledger.Judged, state ledger.State) bool { return slices.Contains(j.States, state) }

// apply takes the steps, one for each judged message, in one pass of edits over the body. It also
// maps tool ids back to the vendor's, in the calls and in their results.
func (r *Replay) apply(steps []step) (body []byte, report Report) {
	h := history{r.request.Outline, r.request.Dialect}
	var e wire.Edits
	// from the client's name to the vendor's id, for the results behind the last assistant message
	var ids map[string]string
	next := 0
	for i := range h.Messages {
		m := &h.Messages[i]
		if m.Role == wire.RoleAssistant {
			ids = nil
		}
		if next < len(r.judged) && r.judged[next].Message == i {
			j, s := &r.judged[next], steps[next]
			next++
			ids = r.vendorIDs(j)
			r.take(&e, m, j, s)
			report.count(s, h.count(m))
			if s.do != putBack {
				e.Rename(h.Outline, h.CallIDs(h.dialect, m), ids)
			}
		}
		if ids != nil {
			e.Rename(h.Outline, h.ResultIDs(h.dialect, m), ids)
		}
	}
	return e.Apply(h.Body), report
}

// take does what a step says to a message.
func (r *Replay) take(e *wire.Edits, m *wire.MessageOutline, j *ledger.Judged, s step) {
	h := history{r.request.Outline, r.request.Dialect}
	switch s.do {
	case putBack:
		var ids []ledger.ToolID
		if !r.ownIDs(j) {
			ids = j.Tools
		}
		h.restore(e, m, j.Turn, ids)
	case remove:
		h.drop(e, m)
	case intoText:
		h.tell(e, m)
	}
}

// ownIDs reports whether the asked backend produced a turn, so that the turn's tool ids are valid
// there.
func (r *Replay) ownIDs(j *ledger.Judged) bool {
	return j.Turn != nil && j.Turn.Origin.Backend == r.request.Target.Backend
}

// vendorIDs maps a message's tool ids from the client's names to the vendor's; nil if they stay.
func (r *Replay) vendorIDs(j *ledger.Judged) map[string]string {
	if len(j.Tools) == 0 || !r.ownIDs(j) {
		return nil
	}
	ids := make(map[string]string, len(j.Tools))
	for _, t := range j.Tools {
		if t.Vendor != "" {
			ids[t.Client] = t.Vendor
		}
	}
	return ids
}
