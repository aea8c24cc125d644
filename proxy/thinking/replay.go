package thinking

import (
	"context"
	"slices"
	"time"

	"mneme/proxy/ledger"
	"mneme/proxy/wire"
)

// Ledger is where answered turns are kept; a *ledger.Ledger.
type Ledger interface {
	Judge(ctx context.Context, r ledger.Request) []ledger.Judged
	Record(ctx context.Context, t ledger.Turn)
	Refuse(ctx context.Context, s ledger.Scope, by ledger.Origin, keys []string)
}

// Replay is a request and what the ledger knew of the turns in it when the request
// was begun. It belongs to one request and is not safe for concurrent use.
type Replay struct {
	ledger  Ledger
	request ledger.Request
	judged  []ledger.Judged
	began   time.Time
	steps   []step // that were taken, one for each judged message
}

// Look captures, at once, whose request this is, who is to be asked, and what is
// known of the turns that it replays.
func Look(ctx context.Context, l Ledger, r ledger.Request) *Replay {
	began := time.Now() // an erasure from now on erases the answer too
	judged := l.Judge(ctx, r)
	return &Replay{ledger: l, request: r, judged: judged, began: began, steps: make([]step, len(judged))}
}

// PutBack puts whole stored turns back where the client shows them otherwise than
// they were, with the vendor's tool ids, and removes what the backend refused
// before. Everything else stays as it is. Of thinking that is older than the current
// turn a vendor that verifies signatures gets what the chain leads to, see the
// package's documentation, and nothing if it has moved, see Policy.
func (r *Replay) PutBack(signed, moved bool) (body []byte, report Report) {
	steps := make([]step, len(r.judged))
	loop := history{r.request.Outline, r.request.Dialect}.loop()
	ended, wanted := moved, "" // the chain; wanted is its next link, empty before the first
	for i := len(r.judged) - 1; i >= 0; i-- {
		j := &r.judged[i]
		if r.refused(j) {
			steps[i] = step{remove, ledger.Refused}
			continue
		}
		if r.foreign(j) || j.Edited || !r.known(j) {
			continue
		}
		key := last(j.TurnKeys)
		if older := j.Message < loop; signed && older && key != "" && (ended || wanted != "" && key != wanted) {
			continue
		}
		steps[i] = back(j)
		if key != "" {
			wanted = j.Turn.Predecessor
			ended = ended || wanted == ""
		}
	}
	r.steps = steps
	return r.apply(steps)
}

// Register records the answer to this request. The outline is that of the request
// as it was sent, the place that of the answer in its conversation, nil for none.
func (r *Replay) Register(ctx context.Context, sent *wire.Outline, a Answer, place *ledger.Place) {
	r.ledger.Record(ctx, ledger.Turn{
		Scope: r.request.Scope, Origin: r.request.Target, Dialect: r.request.Dialect,
		Content: a.Content, Outline: a.Outline, Tools: a.Tools, Cut: a.Cut, At: r.began,
		Predecessor: LastThinking(sent, r.request.Dialect),
		Context:     ledger.ContextKey(r.request.Outline),
		Asked:       ledger.AskedKey(r.request.Outline),
		Place:       place,
	})
}

// Refused remembers that the backend rejected these blocks: the request passed
// without them. The keys are Strip's. Others: blocks of another model of the same
// vendor were among them. Then what the asked model gave itself is not what was
// wrong, and is not remembered.
func (r *Replay) Refused(ctx context.Context, keys []string) (others bool) {
	var own []string
	for i := range r.judged {
		j := &r.judged[i]
		switch {
		case j.Turn == nil || r.foreign(j):
		case r.otherModel(j):
			others = others || slices.ContainsFunc(j.TurnKeys, func(k string) bool { return k != "" && slices.Contains(keys, k) })
		default:
			own = append(own, j.TurnKeys...)
		}
	}
	if others {
		keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return slices.Contains(own, k) })
	}
	if len(keys) > 0 {
		r.ledger.Refuse(ctx, r.request.Scope, r.request.Target, keys)
	}
	return others
}

// action is what becomes of a message's thinking.
type action int

const (
	leave    action = iota // as the client shows it
	putBack                // the whole stored turn
	remove                 // none of it
	intoText               // it becomes visible text
)

// step is what becomes of one judged message, and why.
type step struct {
	do  action
	why ledger.State // what its thinking was found to be
}

// unchained is the step for thinking that may be sound, but that the chain does not
// lead to.
var unchained = step{remove, ledger.Proven}

// back is the step for a message whose turn is known.
func back(j *ledger.Judged) step {
	if j.Same {
		return step{leave, ledger.Proven}
	}
	return step{putBack, ledger.Proven}
}

// known reports whether a message's turn is known and can go back. Its blocks are
// then what counts, whatever the client made of them.
func (r *Replay) known(j *ledger.Judged) bool {
	return j.Turn != nil && j.Turn.Dialect == r.request.Dialect
}

func (r *Replay) refused(j *ledger.Judged) bool {
	if r.known(j) {
		return slices.Contains(j.TurnStates, ledger.Refused)
	}
	return holds(j, ledger.Refused)
}

func (r *Replay) foreign(j *ledger.Judged) bool {
	if j.Turn != nil {
		return j.Turn.Origin.Vendor != r.request.Target.Vendor
	}
	return holds(j, ledger.Foreign)
}

// otherModel reports whether another model than the one that is asked gave a
// message's turn.
func (r *Replay) otherModel(j *ledger.Judged) bool {
	return j.Turn != nil && j.Turn.Origin.Model != r.request.Target.Model
}

func holds(j *ledger.Judged, state ledger.State) bool { return slices.Contains(j.States, state) }

// apply takes the steps, one for each judged message, in one edit of the body.
func (r *Replay) apply(steps []step) (body []byte, report Report) {
	h := history{r.request.Outline, r.request.Dialect}
	var e wire.Edits
	var ids map[string]string // from the client's to the vendor's, since the last assistant message
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
				e.Rename(h.Outline, h.toolIDs(m), ids)
			}
		}
		if ids != nil {
			e.Rename(h.Outline, h.ResultIDs(h.dialect, m), ids)
		}
	}
	return e.Apply(h.Body), report
}

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

// ownIDs reports whether the backend that is asked made a turn itself, so that its
// tool ids mean something to it.
func (r *Replay) ownIDs(j *ledger.Judged) bool {
	return j.Turn != nil && j.Turn.Origin.Backend == r.request.Target.Backend
}

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
