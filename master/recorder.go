package master

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/event"
	"mneme/subagent"
)

// Bounds of one run's events. Past the soft ones pieces of text are told in
// larger pieces; past the hard ones the run fails, since no event that changes a
// history may be dropped.
const (
	softEvents, softBytes = 5_000, 8 << 20
	hardEvents, hardBytes = 20_000, 48 << 20
	largePiece            = 8 << 10
)

// errTooLong ends a run that passed the hard bounds.
var errTooLong = subagent.Failure{
	Code: "run_too_long", Message: "The run produced more than can be recorded and was ended.",
}

// recorder is the only source of a run's events, for the master and for all subagents that
// work at the same time: under one lock it numbers an event, publishes it and folds it into
// the run's copies of the histories, so that all three have one order. An event that cannot
// be published is not folded, and ends the run.
type recorder struct {
	publish func(event.Event) error
	abort   context.CancelCauseFunc // ends the run when an event cannot be recorded
	now     func() time.Time

	mu          sync.Mutex
	run         string            // the rest is guarded by mu
	seq         int64             // of the last event
	bytes       int               // of all events
	copies      event.Copies      // what the fold writes to
	fold        *event.Histories  //
	answer      strings.Builder   // the answer's text that was published
	recalledIDs []string          // ids of messages that were recalled
	pending     map[stream]string // text held back past the soft bounds
	open        []stream          // delegations without a completion, in their order
}

// stream is one text that is told in pieces: the answer's, or a delegation's.
type stream struct {
	agent memory.Agent
	call  string
}

func newRecorder(r Request, now func() time.Time, publish func(event.Event) error,
	abort context.CancelCauseFunc) *recorder {
	copies := event.Copies{memory.ChatKey(r.Chat): r.Context}
	for name, history := range r.Subagents {
		copies[memory.SubagentKey(name, r.Chat)] = history
	}
	return &recorder{
		publish: publish, abort: abort, now: now, run: r.RunID, copies: copies,
		fold: event.NewHistories(r.Chat, copies), pending: map[stream]string{},
	}
}

// emit records what the master does.
func (r *recorder) emit(p event.Payload) error { return r.record(stream{}, p) }

// emitter records what one delegation does.
func (r *recorder) emitter(agent memory.Agent, call string) func(event.Payload) error {
	return func(p event.Payload) error { return r.record(stream{agent, call}, p) }
}

// history is the current copy; the fold only ever appends to it.
func (r *recorder) history(key memory.Key) []memory.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.copies[key]
	return h[:len(h):len(h)]
}

// last is the number of the last event.
func (r *recorder) last() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq
}

// text is what was published of the answer.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answer.String()
}

// recalled are ids of the messages that the agents were given of what was said before.
func (r *recorder) recalled() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recalledIDs
}

func (r *recorder) record(s stream, p event.Payload) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text, ok := piece(p); ok && (r.seq >= softEvents || r.bytes >= softBytes) {
		r.pending[s] += text
		if len(r.pending[s]) < largePiece {
			return nil
		}
		p = nil
	}
	if text := r.pending[s]; text != "" {
		delete(r.pending, s)
		var merged event.Payload = &event.AssistantDelta{Text: text}
		if s.agent != "" {
			merged = &event.SubagentDelta{Text: text}
		}
		if err := r.write(s, merged); err != nil {
			return err
		}
	}
	if p == nil {
		return nil
	}
	return r.write(s, p)
}

func (r *recorder) write(s stream, p event.Payload) error {
	e := event.New(event.Head{RunID: r.run, Seq: r.seq + 1, TS: event.Seconds(r.now()), Subagent: s.agent, CallID: s.call},
		p)
	size := len(e.Line())
	err := error(errTooLong)
	if isTerminal(p) || e.Seq <= hardEvents && r.bytes+size <= hardBytes {
		err = r.publish(e)
	}
	if err != nil {
		r.abort(err)
		return err
	}
	return r.take(e, size)
}

// take counts an event that was published, and folds it.
func (r *recorder) take(e event.Event, size int) error {
	r.seq, r.bytes = e.Seq, r.bytes+size
	key := stream{e.Subagent, e.CallID}
	switch p := e.Payload.(type) {
	case *event.AssistantDelta:
		r.answer.WriteString(p.Text)
	case *event.Recalled:
		for _, m := range p.Messages {
			if !slices.Contains(r.recalledIDs, m.ID) {
				r.recalledIDs = append(r.recalledIDs, m.ID)
			}
		}
	case *event.Delegation:
		r.open = append(r.open, key)
	case *event.Completion:
		r.open = slices.DeleteFunc(r.open, func(s stream) bool { return s == key })
	}
	return r.fold.Apply(e) // Copies never refuse
}

// replay takes the events of a run that goes on.
func (r *recorder) replay(events []event.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if err := r.take(e, len(e.Line())); err != nil {
			return err
		}
	}
	return nil
}

// unfinished are the delegations without a completion.
func (r *recorder) unfinished() []stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.open)
}

// isTerminal says whether an event closes what others opened; such events pass the
// hard bounds, so that every delegation has its completion and every run its end.
func isTerminal(p event.Payload) bool {
	switch p.(type) {
	case *event.Completion, *event.Error, *event.Assistant, *event.RunFinished:
		return true
	}
	return false
}

func piece(p event.Payload) (string, bool) {
	switch p := p.(type) {
	case *event.AssistantDelta:
		return p.Text, true
	case *event.SubagentDelta:
		return p.Text, true
	}
	return "", false
}
