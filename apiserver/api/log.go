package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"mneme/memory"
	"mneme/memory/event"
)

// MaxEvent is the largest event that a log takes and a client reads, in bytes of
// its JSON.
const MaxEvent = 16 << 20

// Errors of Log.Append.
var (
	// ErrLogFull: the event does not fit; the producer must end the run.
	ErrLogFull = errors.New("the run's event log is full")
	// ErrOrder: the event is not the next one of this run.
	ErrOrder = errors.New("the event is out of order")
	// ErrOver: the run has ended; nothing can follow.
	ErrOver = errors.New("the run is over")
)

// Limits bound a Log. Zero fields take the defaults: 24,000 events, 64 MiB.
type Limits struct {
	Events int
	Bytes  int // of the events' JSON
}

// Log holds one run's events, from the first on, for any number of readers. There is no
// backpressure: a reader goes at its own pace, by the number of the event that it had last,
// and never delays Append or another reader; the limits bound what waits for it. Safe for
// concurrent use.
type Log struct {
	run    string
	limits Limits

	mu        sync.Mutex // guards the rest
	entries   []entry    // entries[i] is event i+1; nil once dropped
	last      int64
	ts        float64 // of the last event
	bytes     int
	open      []event.Head  // delegations without a completion, in their order
	outcome   string        // of run_finished; empty until then
	suspended bool          // the last event is an event.RunWaiting, and the run waits for an answer
	goesOn    bool          // the event.RunWaiting that is last, or comes next, does not end reading
	aborted   *Problem      // why no event will follow although the run is not over
	dropped   bool          //
	changed   chan struct{} // closed at the next change; nil while no reader waits
}

// entry is an event as it is sent. Readers share the bytes and never change them.
type entry struct {
	role string
	line []byte
}

// entrySize is what an entry takes in memory beside its line, in bytes.
const entrySize = 40

// NewLog is the empty log of a run.
func NewLog(run string, limits Limits) *Log {
	limits.Events, limits.Bytes = cmp.Or(limits.Events, 24_000), cmp.Or(limits.Bytes, 64<<20)
	return &Log{run: run, limits: limits}
}

// GoOn is the log of a run that goes on after it waited: it holds the events until then, the
// lines from the first on, and readers of it wait for those that follow.
func GoOn(run string, limits Limits, lines []json.RawMessage) (*Log, error) {
	l := NewLog(run, limits)
	for _, line := range lines {
		e, err := event.Decode(line)
		if err == nil {
			err = l.Append(e)
		}
		if err != nil {
			return nil, err
		}
	}
	l.GoOn()
	return l, nil
}

// GoOn says that something will follow the event.RunWaiting that is last, or comes next, as in
// the log of a run that has gone on, or is about to.
func (l *Log) GoOn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspended, l.goesOn = false, true
}

// Rest takes GoOn back: readers come to an end if the last event is an event.RunWaiting.
func (l *Log) Rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.suspended, l.goesOn = l.atWait(), false
	l.wake()
}

// AtWait says whether the last event is an event.RunWaiting, whatever may follow.
func (l *Log) AtWait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.atWait()
}

func (l *Log) atWait() bool {
	n := len(l.entries)
	return n > 0 && l.entries[n-1].role == (*event.RunWaiting)(nil).Role()
}

// Append adds the next event: Seq must be Last()+1. It does not wait. An event
// over the limits is refused with ErrLogFull, unless it ends the run.
func (l *Log) Append(e event.Event) error {
	en := entry{e.Role(), e.Line()}
	if strings.ContainsAny(en.role, "\r\n") {
		return fmt.Errorf("an event's role is one line, not %q", en.role)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outcome != "" || l.aborted != nil || l.dropped {
		return fmt.Errorf("event %d of run %s: %w", e.Seq, e.RunID, ErrOver)
	}
	if err := l.fit(l.last, len(l.entries), l.bytes, e); err != nil {
		return err
	}
	l.add(e, en)
	return nil
}

// Fit returns the error that Append would return for the first of some events that it refuses: ErrOrder or ErrLogFull.
func (l *Log) Fit(events ...event.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, count, size := l.last, len(l.entries), l.bytes
	for _, e := range events {
		if err := l.fit(last, count, size, e); err != nil {
			return err
		}
		last, count, size = e.Seq, count+1, size+len(e.Line())
	}
	return nil
}

// fit judges an event after last, in a log with so many events of so many bytes.
func (l *Log) fit(last int64, count, size int, e event.Event) error {
	line := len(e.Line())
	switch {
	case e.RunID != l.run || e.Seq != last+1:
		return fmt.Errorf("event %d of run %s after event %d of run %s: %w", e.Seq, e.RunID, last, l.run, ErrOrder)
	case line > MaxEvent, !closes(e) && (count >= l.limits.Events || size+line > l.limits.Bytes):
		return fmt.Errorf("event %d of run %s, %d bytes: %w", e.Seq, e.RunID, line, ErrLogFull)
	}
	return nil
}

// closes reports whether Closing may return an event. A full log takes such events.
func closes(e event.Event) bool {
	switch p := e.Payload.(type) {
	case *event.Assistant:
		return p.Partial
	case *event.Completion:
		return p.Status != event.Completed
	case *event.Error:
		return true
	}
	return e.Terminal()
}

func (l *Log) add(e event.Event, en entry) {
	l.entries = append(l.entries, en)
	l.bytes += len(en.line)
	l.last, l.ts = e.Seq, e.TS
	l.suspended, l.goesOn = e.Blocking() && !l.goesOn, false
	switch p := e.Payload.(type) {
	case *event.Delegation:
		l.open = append(l.open, e.Head)
	case *event.Completion:
		for i, head := range l.open {
			if head.CallID == e.CallID {
				l.open = append(l.open[:i], l.open[i+1:]...)
				break
			}
		}
	case *event.RunFinished:
		l.outcome = p.Outcome
		if l.outcome == "" {
			l.outcome = event.Failed
		}
	}
	l.wake()
}

func (l *Log) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Closing gives the events that would bring the run to its end now: a completion
// for every delegation that has none, and, unless the answer is there already,
// what was shown of it as a partial one, the cause, and run_finished as failed.
// None if the run is over.
func (l *Log) Closing(cause event.Error, now time.Time) []event.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing(cause, now)
}

func (l *Log) closing(cause event.Error, now time.Time) []event.Event {
	if l.outcome != "" {
		return nil
	}
	var events []event.Event
	add := func(head event.Head, p event.Payload) {
		events = append(events, event.New(event.Head{
			RunID: l.run, Seq: l.last + int64(len(events)) + 1, TS: event.Seconds(now), Subagent: head.Subagent,
			CallID: head.CallID,
		}, p))
	}
	for _, head := range l.open {
		add(head, &event.Completion{Response: memory.Failed(cause.Code).Content, Status: event.Failed, Failure: cause.Code})
	}
	far := l.far()
	if far.outcome == "" {
		if far.partial != "" {
			add(event.Head{}, &event.Assistant{Content: far.partial, Partial: true, Failure: cause.Code})
		}
		add(event.Head{}, &cause)
		far.outcome = event.Failed
	}
	add(event.Head{}, &event.RunFinished{Outcome: far.outcome, Usage: far.usage})
	return events
}

// Denying gives the events that would end a run that waits, as if all that it waits for were
// denied: the answers, a result for each call of a tool that has none, a completion for every
// open delegation, all of them with a reason, what was shown of an answer, and run_finished as
// stopped. It goes on where such an end broke off. None if the run is over.
func (l *Log) Denying(reason string, now time.Time) (events []event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outcome != "" {
		return nil
	}
	add := func(head event.Head, p event.Payload) {
		events = append(events, event.New(event.Head{
			RunID: l.run, Seq: l.last + int64(len(events)) + 1, TS: event.Seconds(now), Subagent: head.Subagent,
			CallID: head.CallID,
		}, p))
	}
	pending, calls := l.pending()
	if l.atWait() {
		var answers []event.WaitAnswer
		for _, w := range pending {
			answers = append(answers, event.WaitAnswer{ID: w.ID, Decision: event.Deny, Reason: reason})
		}
		add(event.Head{}, &event.RunResumed{Answers: answers})
		for _, w := range pending {
			if w.Subagent == "" {
				add(event.Head{}, &event.MasterTool{Tool: w.Tool, Status: "failed", Detail: reason})
			}
		}
	}
	denial := "(denied: " + reason + ")"
	for _, head := range l.open {
		for _, c := range calls[head.CallID] {
			add(head, &event.ToolResult{ToolCallID: c.ID, Name: c.Function.Name, Content: denial})
		}
		add(head, &event.Completion{Response: denial, Status: event.Stopped})
	}
	far := l.far()
	if far.outcome == "" {
		if far.partial != "" {
			add(event.Head{}, &event.Assistant{Content: far.partial, Partial: true})
		}
		far.outcome = event.Stopped
	}
	add(event.Head{}, &event.RunFinished{Outcome: far.outcome, Usage: far.usage})
	return events
}

// pending gives what the run waited for last, and by the id of a delegation the calls of tools
// without a result.
func (l *Log) pending() (pending []event.Wait, calls map[string][]memory.ToolCall) {
	calls = map[string][]memory.ToolCall{}
	for _, en := range l.entries {
		if strings.HasSuffix(en.role, "_delta") {
			continue
		}
		e, err := event.Decode(en.line)
		if err != nil {
			continue
		}
		switch p := e.Payload.(type) {
		case *event.RunWaiting:
			pending = p.Pending
		case *event.AssistantWithTools:
			calls[e.CallID] = slices.Clone(p.ToolCalls)
		case *event.ToolResult:
			open := calls[e.CallID]
			if i := slices.IndexFunc(open, func(c memory.ToolCall) bool { return c.ID == p.ToolCallID }); i >= 0 {
				calls[e.CallID] = slices.Delete(open, i, i+1)
			}
		}
	}
	return pending, calls
}

// reached is how far a run that did not end came.
type reached struct {
	partial string      // of an answer that was not told as such yet
	outcome string      // that which it showed itself; empty before its answer or error
	usage   event.Usage // of its delegations
}

func (l *Log) far() (r reached) {
	var partial strings.Builder
	for _, en := range l.entries {
		e, err := event.Decode(en.line)
		if err != nil {
			continue
		}
		switch p := e.Payload.(type) {
		case *event.AssistantDelta:
			partial.WriteString(p.Text)
		case *event.Completion:
			r.usage = r.usage.Add(p.Usage)
		case *event.Assistant:
			partial.Reset()
			switch {
			case !p.Partial:
				r.outcome = event.Completed
			case p.Failure == "":
				r.outcome = event.Stopped
			}
		case *event.Error:
			if e.Subagent == "" {
				r.outcome = event.Failed
			}
		}
	}
	r.partial = event.Shorten(partial.String(), MaxEvent/2) // it becomes one event
	return r
}

// End appends what Closing gives, whatever the limits, and says whether there was
// anything to append. From then on Append refuses.
func (l *Log) End(cause event.Error, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.aborted != nil || l.dropped {
		return false
	}
	events := l.closing(cause, now)
	for _, e := range events {
		l.add(e, entry{e.Role(), e.Line()})
	}
	return len(events) > 0
}

// Abort ends the log without the run's end: readers get what is there, then p.
// It does nothing to a run that is over.
func (l *Log) Abort(p *Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outcome == "" && l.aborted == nil {
		l.aborted = p
		l.wake()
	}
}

// Aborted says whether Abort ended the log before the run was over.
func (l *Log) Aborted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aborted != nil
}

// Drop lets go of the events; readers that still want some get ErrGone.
func (l *Log) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.bytes, l.dropped = nil, 0, true
	l.wake()
}

// Last is the number of the last event, 0 before the first.
func (l *Log) Last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// LastTime is when the last event was made, zero before the first.
func (l *Log) LastTime() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Round(l.ts * 1000)))
}

// Size is about how many bytes of memory the log takes.
func (l *Log) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes + cap(l.entries)*entrySize
}

// Done says whether run_finished is in the log.
func (l *Log) Done() bool { return l.Outcome() != "" }

// Waiting says whether the run waits for an answer: its last event is an event.RunWaiting,
// and GoOn was not called since. Readers have come to an end then.
func (l *Log) Waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suspended
}

// Outcome is that of run_finished, empty until then.
func (l *Log) Outcome() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outcome
}

// Lines are the events after a number that the log holds now, each as its line of
// JSON; it does not wait for more. None if they were dropped. Callers must not
// change the bytes.
func (l *Log) Lines(cursor int64) [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped || cursor < 0 || cursor >= l.last {
		return nil
	}
	lines := make([][]byte, 0, l.last-cursor)
	for _, en := range l.entries[cursor:] {
		lines = append(lines, en.line)
	}
	return lines
}

// Follow gives the events after a number (0 for all), then those to come, until
// run_finished, a run_waiting that is the last one, or the end of ctx; with roles only those of one of them, the others are
// not decoded. An error is the last thing it yields: ErrGone, ErrPosition, the problem
// of Abort, or the cause of ctx's end.
func (l *Log) Follow(ctx context.Context, cursor int64, roles ...string) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for seq := cursor; ; seq++ {
			en, err := l.wait(ctx, seq)
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && len(roles) > 0 && !slices.Contains(roles, en.role) {
				continue
			}
			var e event.Event
			if err == nil {
				e, err = event.Decode(en.line)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Reach waits until the log holds event n. ErrGone: the run is over, or waits, and never had
// it here; otherwise the problem of Abort, or the cause of ctx's end.
func (l *Log) Reach(ctx context.Context, n int64) error {
	for last := l.Last(); last < n; last = l.Last() {
		if _, err := l.wait(ctx, last); errors.Is(err, io.EOF) {
			return ErrGone
		} else if err != nil {
			return err
		}
	}
	return nil
}

// wait is next, once there is one.
func (l *Log) wait(ctx context.Context, cursor int64) (entry, error) {
	for ctx.Err() == nil {
		en, changed, err := l.next(cursor)
		if changed == nil {
			return en, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return entry{}, context.Cause(ctx)
}

// next gives the entry after a number. If there may be one later, it gives a channel that
// is closed when it is time to look again: a condition variable that can be waited for
// together with a context or a timer. io.EOF: the run is over, or waits, and nothing follows.
func (l *Log) next(cursor int64) (entry, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case cursor < 0 || cursor > l.last:
		return entry{}, nil, ErrPosition
	case cursor == l.last && (l.outcome != "" || l.suspended):
		return entry{}, nil, io.EOF
	case l.dropped:
		return entry{}, nil, ErrGone
	case cursor < l.last:
		return l.entries[cursor], nil, nil
	case l.aborted != nil:
		return entry{}, nil, l.aborted
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return entry{}, l.changed, nil
}
