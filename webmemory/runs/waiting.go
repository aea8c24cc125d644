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

// GoOn resumes a run at the apiserver after its events were replayed. After an error, the caller suspends the run
// again.
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
		s.Registry.Enlist(r) // its agents may send requests before the apiserver has answered
	}
	asking, cancel := context.WithTimeout(r.Trail.In(ctx), node.StoreTimeout)
	defer cancel()
	accepted, err := s.Runs.PostRun(asking, req)
	if err != nil {
		s.Registry.ForgetRun(r)
		s.Workers.Go(func() { s.Forget(r) })
		if problem.FromError(err).Status == http.StatusRequestEntityTooLarge {
			return err // a retry would fail too
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

// moveTo stores the URL of the run's events at the apiserver if it has changed.
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

// grants returns the tools that answers approve permanently.
func grants(answers []event.WaitAnswer, pending []event.Wait) (tools []string) {
	for _, a := range answers {
		i := slices.IndexFunc(pending, func(w event.Wait) bool { return w.ID == a.ID })
		if a.Decision != event.Deny && i >= 0 && pending[i].Approves != "" && !slices.Contains(tools, pending[i].Approves) {
			tools = append(tools, pending[i].Approves)
		}
	}
	return tools
}

// Limits of a waiting run.
const (
	maxState = 4 << 20 // bytes of the state that it resumes from
	maxWaits = 100
)

// isWaiting reports whether the run waits and its state is stored. The state takes effect when Rest releases the lease.
func (d *Driver) isWaiting() bool { return d.Waiting != nil && d.Run.Log.Waiting() }

// hold stores the state of a run if its last event is run_waiting. It returns the events to store and show, without the
// state. If the state cannot be stored, the returned events end the run.
func (d *Driver) hold(events []event.Event) ([]event.Event, error) {
	last := events[len(events)-1]
	p, ok := last.Payload.(*event.RunWaiting)
	d.Waiting = nil
	if !ok {
		return events, nil
	}
	if p.State == nil { // the run has resumed since, or the apiserver no longer has the state
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

// waitOf returns the record of a run that waits for pending. e is its run_waiting event.
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

// checkWaits returns an *api.Problem if the run cannot wait.
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

// saveState stores the state that the run resumes from. If Redis is unavailable, it retries for Cfg.Patience and then
// returns errNotKept.
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

// restAgain makes an open run wait again after its events have stopped. A process died when the run was about to wait
// or to resume. restAgain returns false if the run is not at the position of its stored state.
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
	// Events after the resumption are lost with their processes. If the run was granted a call since then, its waits must
	// not be answered again.
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

// keepWait writes the state that the run resumes from to this disk, in case Redis loses it. lines are the run's events.
func (d *Driver) keepWait(lines [][]byte) {
	head := d.Run.head()
	head.Turn, head.Waiting = d.Waiting.Turn, d.Waiting
	d.runner.EndStore.Keep(head, lines)
}

// Rest suspends the run and releases the lease. A suspended run has no lease, no connection and nothing in memory. Its
// state is in Redis and, for a loss in Redis, on the disk of the process that suspended it.
func (d *Driver) Rest() error {
	w := d.Waiting
	d.keepWait(d.Run.Log.Lines(0))
	return d.writer.giveBack(func(ctx context.Context, chat memory.Chat, token string) error {
		return d.runner.Store.Suspensions.Suspend(ctx, chat, token, w)
	})
}

// OpenRun returns the entry that marks the run as open in turn.
func (r *Run) OpenRun(turn int64) redisstore.OpenRun {
	open := redisstore.OpenRun{Run: r.ID, Turn: turn, Body: r.Body, Trace: r.Trail.Parent(), First: r.First,
		Unkeyed: !r.Keyed, User: r.User}
	if r.Attempt > 1 {
		open.Attempt = r.Attempt
	}
	return open
}

// Denial is the reason for closing the waits of a run without an answer.
type Denial struct {
	reason string // for the model and for readers, after "denied: "
	code   string // answer to each wait in the run's record
}

// Codes of denials, in addition to people's decisions.
const (
	WaitClosed  = "closed"
	WaitExpired = "expired"
)

// Reasons for closing a waiting run.
var (
	Superseded = &Denial{"the user said something else", WaitClosed}
	TimedOut   = &Denial{"nobody answered in time", WaitExpired}
	StoppedRun = &Denial{"the user stopped the run", WaitClosed}
	Removed    = &Denial{"the chat was erased, or a part of it taken back", WaitClosed}
	StateLost  = &Denial{"what the run goes on from is lost", WaitClosed}
)

// denied stores the end of a waiting run and reports whether Redis has it.
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
	if err != nil || d.Run.Log.Last() == 0 { // its events are lost or damaged, so it needs no end
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

// Identify copies the attributes of the post from open to a run that another process began.
func (r *Run) Identify(open redisstore.OpenRun) {
	r.User = open.User
	r.Body, r.First, r.Keyed, r.Attempt = open.Body, open.First, !open.Unkeyed, max(open.Attempt, 1)
}

// openWaits returns the waits of the run's last run_waiting event.
func (r *Run) openWaits() (last []event.Wait) {
	for _, line := range r.Log.Lines(0) {
		if e, err := event.Decode(line); err == nil && e.Blocking() {
			last = e.Payload.(*event.RunWaiting).Pending
		}
	}
	return last
}

// WaitsOf returns the waits of a suspended run. If its event is unreadable, the error is redisstore.ErrStateLost.
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

// Expired reports whether the first wait of a chat has expired.
func Expired(rest *redisstore.Rest) bool { return time.Now().UnixMilli() >= rest.First }
