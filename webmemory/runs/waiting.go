package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
)

// MaxResult bounds the result of a client's tool call, in bytes.
const MaxResult = memory.MaxToolResult

// IsObject reports whether raw is a JSON object.
func IsObject(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && members != nil
}

var (
	errNotTaken = &api.Problem{Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
		Message: "The agents could not go on with the run right now, so it waits as before; please answer again."}
)

// GoOn has the apiserver go on with a run after its events were replayed. After an error it is
// to be suspended again.
func (d *Driver) GoOn(ctx context.Context, answers []event.WaitAnswer, pending []event.Wait) error {
	s, r, w := d.runner, d.Run, d.writer
	state := d.Waiting
	d.Waiting = nil
	decided := map[string]string{}
	for _, a := range answers {
		decided[a.ID] = a.Decision
	}
	if err := s.Store.Suspensions.KeepAnswers(ctx, r.Chat, r.ID, state.Until, decided); err != nil {
		return err
	}
	s.ToolCalls.noteCall(r, node.CallLine{Answers: decided, Until: state.Until})
	note := r.OpenRun(w.Number)
	note.Events, note.Process = d.events, s.Spool.Name()
	if err := s.Store.Suspensions.Reopen(ctx, r.Chat, w.Token, s.Cfg.Lease, note); err != nil {
		return err
	}
	w.Opened(note)
	req := api.RunRequest{RunID: r.ID, ChatID: r.Chat, ConversationID: w.Conversation, AgentVersion: webapi.Master,
		Resume: &api.Resume{State: state.State, Answers: answers, Turn: w.Number}}
	for _, line := range r.Log.Lines(0) {
		req.Resume.Events = append(req.Resume.Events, line)
	}
	if first, err := event.Decode(req.Resume.Events[0]); err == nil {
		if started, ok := first.Payload.(*event.RunStarted); ok {
			req.Message, req.AgentVersion = started.Message, started.AgentVersion
			r.StartPayloads = []event.Payload{started}
		}
	}
	granted := grants(answers, pending)
	var err error
	if req.Approved, err = s.Store.Suspensions.Approved(ctx, r.Chat); err != nil {
		return err
	}
	req.Approved = append(req.Approved, granted...)
	if s.Cfg.SelfURL != "" {
		req.Memory = s.Access(r, nil)
		s.Registry.Enlist(r) // its agents may ask before the apiserver has answered
	}
	asking, cancel := context.WithTimeout(r.Trail.In(ctx), node.StoreTimeout)
	defer cancel()
	accepted, err := s.Runs.PostRun(asking, req)
	if err != nil {
		s.Registry.ForgetRun(r)
		s.Workers.Go(func() { s.Forget(r) })
		if problem.FromError(err).Status == http.StatusRequestEntityTooLarge {
			return err // which no repetition changes
		}
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	if err := s.EndStore.RemoveRun(r.Chat, r.ID); err != nil {
		d.Log.Warn().Err(err).Msg("that a run waits stays on disk")
	}
	if len(granted) > 0 {
		if err := s.Store.Suspensions.Approve(ctx, r.Chat, w.Number, granted...); err != nil {
			d.Log.Warn().Err(err).Msg("an approval holds for this run only")
		}
	}
	d.moveTo(ctx, note, accepted.Events)
	s.Metrics.Resumed.Inc()
	return nil
}

// moveTo notes where the apiserver has the run, if that is not where it was looked for.
func (d *Driver) moveTo(ctx context.Context, note redisstore.OpenRun, events string) {
	if events == "" || events == d.events {
		return
	}
	client, err := d.runner.Runs.ForEvents(events)
	if err != nil {
		return
	}
	d.events, d.runs, note.Events = events, client, events
	d.Run.Mu.Lock()
	d.Run.Client = client
	d.Run.Mu.Unlock()
	d.writer.Opened(note)
	if _, err := d.runner.Store.Turns.Open(ctx, d.Run.Chat, d.writer.Token, d.runner.Cfg.Lease, note); err != nil {
		d.Log.Warn().Err(err).Msg("a run's place was not noted")
	}
}

// grants are the tools that answers approve for good.
func grants(answers []event.WaitAnswer, pending []event.Wait) (tools []string) {
	for _, a := range answers {
		i := slices.IndexFunc(pending, func(w event.Wait) bool { return w.ID == a.ID })
		if a.Decision != event.Deny && i >= 0 && pending[i].Approves != "" && !slices.Contains(tools, pending[i].Approves) {
			tools = append(tools, pending[i].Approves)
		}
	}
	return tools
}

// This file is about runs that wait for an answer: how one is suspended, and how one is ended if none comes. A
// suspended run has no lease, no connection and nothing in memory: all that it goes on from is in Redis, and on the
// disk of the process that suspended it, for when Redis loses it. How one goes on is in resume.go.

// Bounds of what a run may wait with.
const (
	maxState = 4 << 20 // bytes of what it goes on from
	maxWaits = 100
)

// isWaiting says whether the run waits: its state is kept, and is in force once the lease is given
// back by rest.
func (d *Driver) isWaiting() bool { return d.Waiting != nil && d.Run.Log.Waiting() }

// hold keeps the state of a run if its last event says that it waits, and gives the events to
// store and show, without the state. A state that cannot be kept ends the run: the events tell so.
func (d *Driver) hold(events []event.Event) ([]event.Event, error) {
	last := events[len(events)-1]
	p, ok := last.Payload.(*event.RunWaiting)
	d.Waiting = nil
	if !ok {
		return events, nil
	}
	if p.State == nil { // of a log that goes on behind it, or the apiserver does not have it any more
		d.Run.Log.GoOn()
		return events, nil
	}
	publicEvent := event.New(last.Head, &event.RunWaiting{Pending: p.Pending, Usage: p.Usage})
	w := d.waitOf(publicEvent, p.Pending)
	w.State = p.State
	err := checkWaits(p)
	if err == nil {
		err = d.saveState(w)
	}
	if err == nil {
		d.Waiting = w
		return append(events[:len(events)-1:len(events)-1], publicEvent), nil
	}
	var cause *api.Problem
	if !errors.As(err, &cause) {
		return nil, err
	}
	d.Log.Error().Err(err).Msg("what a run goes on from was not kept; the run is ended")
	d.runner.Workers.Go(d.stopThere)
	if err := d.take(events[:len(events)-1]); err != nil {
		return nil, err
	}
	return d.Run.Log.Closing(cause.Failure(), time.Now()), nil
}

// waitOf is the record of a run that waits, by the event that says so.
func (d *Driver) waitOf(e event.Event, pending []event.Wait) *redisstore.Waiting {
	w := &redisstore.Waiting{Seq: e.Seq, Event: e.Line(), Open: d.Run.OpenRun(d.writer.Number)}
	w.Open.Events, w.Open.Process = d.events, d.runner.Spool.Name()
	w.Rest = redisstore.Rest{Run: d.Run.ID, Turn: d.writer.Number}
	for i, wait := range pending {
		expiry := int64(wait.ExpiresAt * 1000)
		if i == 0 || expiry < w.First {
			w.First = expiry
		}
		w.Until = max(w.Until, expiry)
	}
	w.Until += redisstore.WaitsKept.Milliseconds()
	return w
}

// checkWaits says what keeps a run from waiting, as a *api.Problem.
func checkWaits(p *event.RunWaiting) error {
	bad := func(format string, args ...any) error {
		return &api.Problem{Code: webapi.CodeBadWait, Message: "The run cannot wait: " + fmt.Sprintf(format, args...)}
	}
	if len(p.State) > maxState {
		return bad("what it would go on from has %d bytes, at most %d are kept.", len(p.State), maxState)
	}
	if n := len(p.Pending); n == 0 || n > maxWaits {
		return bad("it names %d waits, where 1 to %d can be kept.", n, maxWaits)
	}
	ids := map[string]bool{}
	for _, w := range p.Pending {
		if w.ID == "" || len(w.ID) > 128 || ids[w.ID] || w.ExpiresAt <= 0 {
			return bad("its waits need ids of their own, of 1 to 128 bytes, and times at which they expire.")
		}
		ids[w.ID] = true
	}
	return nil
}

var errNotKept = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: webapi.CodeMemoryUnavailable, Retryable: true,
	Message: "The run was to wait for somebody, and the memory could not keep what it goes on from; please send the " +
		"message again.",
}

// saveState keeps what the run goes on from. While Redis is away it is tried for as long as the
// patience; the error is errNotKept then.
func (d *Driver) saveState(w *redisstore.Waiting) error {
	for began := time.Now(); ; {
		err := d.regainIfLost(d.writer.Ctx)
		if err == nil {
			ctx, cancel := context.WithTimeout(d.writer.Ctx, node.StoreTimeout)
			err = d.runner.Store.Suspensions.SaveState(ctx, d.Run.Chat, d.writer.Token, w)
			cancel()
		}
		switch {
		case err == nil:
			return nil
		case d.writer.Ctx.Err() != nil:
			return context.Cause(d.writer.Ctx)
		case d.writer.detached.Load(), time.Since(began) > d.runner.Cfg.Patience:
			return fmt.Errorf("%w: %w", errNotKept, err)
		}
		_ = node.Pause(d.writer.Ctx, node.Jitter(300*time.Millisecond)) // a lease that Redis lost is regained meanwhile
	}
}

// restAgain has a run rest that is open although its events have ceased to come: it was about to
// wait, or to go on, when a process died. False: it does not stand where its state was kept.
func (d *Driver) restAgain(ctx context.Context) (bool, error) {
	w, err := d.runner.Store.Suspensions.State(ctx, d.Run.Chat, d.Run.ID)
	if err != nil || w == nil || len(w.State) == 0 {
		return false, err
	}
	e, err := event.Decode(w.Event)
	if err != nil {
		return false, nil //nolint:nilerr // as if it had not been kept: the run is closed
	}
	p, ok := e.Payload.(*event.RunWaiting)
	if !ok || d.Run.Log.Last() != w.Seq && d.Run.Log.Last() != w.Seq-1 {
		return false, nil
	}
	// Events of its going on are lost with those that had them; a call that it made is not to be answered anew.
	calls, err := d.runner.ToolCalls.CallsOf(ctx, d.Run.Chat, d.Run.FirstRun())
	if err != nil || calls.Runs[d.Run.ID].Called > w.Seq {
		return false, err
	}
	state := w.State
	w = d.waitOf(e, p.Pending)
	if w.State = state; d.Run.Log.Last() < w.Seq {
		d.Run.Log.GoOn()
		d.Waiting = w
		err := d.take([]event.Event{e})
		if d.Waiting = nil; err != nil {
			return false, err
		}
	}
	if !d.Run.Log.AtWait() {
		return false, nil
	}
	d.Log.Warn().Msg("a run that did not go on waits again")
	d.Waiting = w
	d.Run.Log.Rest()
	return true, nil
}

// keepWait writes the state that the run resumes from to this disk, in case Redis loses it. lines are its events.
func (d *Driver) keepWait(lines [][]byte) {
	head := d.Run.head()
	head.Turn, head.Waiting = d.Waiting.Turn, d.Waiting
	d.runner.EndStore.Keep(head, lines)
}

// Rest gives the lease back with the run suspended.
func (d *Driver) Rest() error {
	w := d.Waiting
	d.keepWait(d.Run.Log.Lines(0))
	return d.writer.giveBack(func(ctx context.Context, chat memory.Chat, token string) error {
		return d.runner.Store.Suspensions.Suspend(ctx, chat, token, w)
	})
}

// OpenRun is how the run is noted as open in a turn.
func (r *Run) OpenRun(turn int64) redisstore.OpenRun {
	open := redisstore.OpenRun{Run: r.ID, Turn: turn, Body: r.Body, Trace: r.Trail.Parent(), First: r.First,
		Unkeyed: !r.Keyed, User: r.User}
	if r.Attempt > 1 {
		open.Attempt = r.Attempt
	}
	return open
}

// Denial is why the waits of a run are closed without an answer.
type Denial struct {
	reason string // for the model and for readers, behind "denied: "
	code   string // what the run's record says of each wait
}

// Codes of denials, beside the decisions of people.
const (
	WaitClosed  = "closed"
	WaitExpired = "expired"
)

// The reasons for which a run that waits is closed.
var (
	Superseded = &Denial{"the user said something else", WaitClosed}
	TimedOut   = &Denial{"nobody answered in time", WaitExpired}
	StoppedRun = &Denial{"the user stopped the run", WaitClosed}
	Removed    = &Denial{"the chat was erased, or a part of it taken back", WaitClosed}
	StateLost  = &Denial{"what the run goes on from is lost", WaitClosed}
)

// denied stores the end of a run that waits, and says whether Redis has it.
func (d *Driver) denied(ctx context.Context, why *Denial) (finished bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*node.StoreTimeout)
	defer cancel()
	d.writer.driven.Store(d)
	state, err := d.runner.Store.Suspensions.State(ctx, d.Run.Chat, d.Run.ID)
	if err != nil {
		return false, err
	}
	if state != nil {
		d.Run.Identify(state.Open)
	} else if record, err := d.runner.Store.Runs.Record(ctx, d.Run.Chat, d.Run.ID); err != nil {
		return false, err
	} else if record != nil {
		d.Run.Body = record.Body
	}
	err = d.Replay(ctx)
	if errors.Is(err, memory.ErrUnavailable) || errors.Is(err, memory.ErrMoved) {
		return false, err
	}
	if err != nil || d.Run.Log.Last() == 0 { // its events are lost or damaged: there is nothing to end
		d.writer.FinishedRun = d.Run
		return d.withdraw(problem.ErrUnknownRun), nil
	}
	d.Log.Info().Str("reason", why.reason).Msg("a run that waits is ended")
	answers := map[string]string{}
	for _, w := range d.Run.openWaits() {
		answers[w.ID] = why.code
	}
	until := time.Now().Add(redisstore.WaitsKept).UnixMilli()
	if err := d.runner.Store.Suspensions.KeepAnswers(ctx, d.Run.Chat, d.Run.ID, until, answers); err != nil {
		return false, err
	}
	if err := d.take(d.Run.Log.Denying(why.reason, time.Now())); err != nil {
		return false, err
	}
	d.tell()
	d.busy.Lock()
	d.concluding = true
	d.busy.Unlock()
	if err := d.conclude(); err != nil {
		return false, err
	}
	return true, nil
}

// Identify notes on a run that this process did not begin what is known of its post.
func (r *Run) Identify(open redisstore.OpenRun) {
	r.User = open.User
	r.Body, r.First, r.Keyed, r.Attempt = open.Body, open.First, !open.Unkeyed, max(open.Attempt, 1)
}

// openWaits are those that the run's last event of the kind names.
func (r *Run) openWaits() (last []event.Wait) {
	for _, line := range r.Log.Lines(0) {
		if e, err := event.Decode(line); err == nil && e.Blocking() {
			last = e.Payload.(*event.RunWaiting).Pending
		}
	}
	return last
}

// WaitsOf are those of a run that is suspended.
func WaitsOf(w *redisstore.Waiting) ([]event.Wait, error) {
	e, err := event.Decode(w.Event)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", redisstore.ErrStateLost, err)
	}
	p, ok := e.Payload.(*event.RunWaiting)
	if !ok {
		return nil, redisstore.ErrStateLost
	}
	return p.Pending, nil
}

// Expired says whether the first wait of a chat has.
func Expired(rest *redisstore.Rest) bool { return time.Now().UnixMilli() >= rest.First }
