package webmemory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/problem"
)

// This file is about answers to what a run waits for: they are checked, the run is opened again
// under its chat's lease, and the apiserver is asked to go on with it. If that is not known to
// have begun, the run waits as before.

// Resumer takes what people do to a run: answers to what it waits for, and stops. It keeps the answers in Redis before
// the run goes on, so that it goes on once, with the same answers, in whichever process.
type Resumer struct {
	*Core
	Registry   *Registry
	StoreWatch *StoreWatch
	Streams    *Streams
	Runner     *Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

// Bounds of answers.
const (
	maxResume = 8 << 20 // bytes of a request
	MaxResult = memory.MaxToolResult
	maxReason = 1000
)

// ResumePosted is POST /v1/chats/{chat}/runs/{run}/resume.
func (s *Resumer) ResumePosted(c *gin.Context) (*admitted, error) {
	chat, err := problem.ChatOf(c)
	if err != nil {
		return nil, err
	}
	var body webapi.ResumeRequest
	if err := api.DecodeKnown(c.Writer, c.Request, maxResume, &body); err != nil {
		return nil, err
	}
	if err := checkAnswers(body.Answers); err != nil {
		return nil, err
	}
	c.Request.Header.Del("Last-Event-ID")
	id := c.Param("run")
	telemetry.Concerns(c.Request.Context(), chat.String(), id)
	r, answer, seq, err := s.answered(c.Request.Context(), chat, id, body.Answers)
	if err != nil {
		return nil, err
	}
	// The stream is of what follows: the client that answers has seen the rest.
	c.Request.URL.RawQuery = fmt.Sprintf("last_event_id=%d", seq)
	c.Header(webapi.RunID, id)
	return &admitted{r, answer, body.Stream || problem.AcceptsSSE(c.Request)}, nil
}

// checkAnswers says what is wrong with answers by themselves.
func checkAnswers(answers []event.WaitAnswer) error {
	if len(answers) == 0 {
		return problem.BadRequest("answers is missing or empty: it needs one for each wait of the run.")
	}
	ids := map[string]bool{}
	for _, a := range answers {
		switch {
		case a.ID == "":
			return problem.BadRequest("An answer has no id: that of the wait which it answers.")
		case ids[a.ID]:
			return problem.BadRequest("The wait %.80q is answered twice.", a.ID)
		case a.Decision != event.Approve && a.Decision != event.Deny && a.Decision != event.Edit:
			return problem.BadRequest("decision is approve, deny or edit, not %.40q.", a.Decision)
		case a.Decision == event.Edit && !IsObject(a.Arguments):
			return problem.BadRequest(
				"The edit of %.80q needs arguments, an object: those that take the place of the others.", a.ID)
		case a.Decision != event.Edit && len(a.Arguments) > 0:
			return problem.BadRequest("arguments go with the decision edit, not with %s: leave them out of the answer to %.80q.",
				a.Decision, a.ID)
		case a.Decision != event.Approve && len(a.Result) > 0:
			return problem.BadRequest("result goes with the decision approve, not with %s: leave it out of the answer to %.80q.",
				a.Decision, a.ID)
		case len(a.Result) > MaxResult || len(a.Arguments) > MaxResult:
			return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
				Message: fmt.Sprintf("The result or the arguments of %.80q have more than %d bytes.", a.ID, MaxResult)}
		case len(a.Reason) > maxReason:
			return problem.BadRequest("The reason of %.80q has more than %d bytes.", a.ID, maxReason)
		}
		ids[a.ID] = true
	}
	return nil
}

func IsObject(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && members != nil
}

// fit says whether answers are those to the open waits of a run, and whether the caller may give them.
func fit(ctx context.Context, answers []event.WaitAnswer, pending []event.Wait, run string) error {
	refuse := func(status int, code, format string, args ...any) error {
		return &api.Problem{Status: status, Code: code, Message: fmt.Sprintf(format, args...), RunID: run, Pending: pending}
	}
	for _, a := range answers {
		i := slices.IndexFunc(pending, func(w event.Wait) bool { return w.ID == a.ID })
		if i < 0 {
			return refuse(http.StatusNotFound, webapi.CodeUnknownWait, "The run does not wait for %.80q.", a.ID)
		}
		what := Doing(a, pending)
		_, ok := BesideRights[what]
		switch kind := pending[i].Kind; {
		case !ok:
			return problem.BadRequest("%.80q is a %s: only an approval is edited; send approve and a result, or deny.", a.ID,
				kind)
		case kind == event.Approval && len(a.Result) > 0:
			return problem.BadRequest("%.80q is an approval: it takes no result; leave that out, or send edit and arguments.",
				a.ID)
		case kind != event.Approval && a.Decision == event.Approve && len(a.Result) == 0:
			return problem.BadRequest("%.80q is a %s: an answer that approves it needs a result.", a.ID, kind)
		}
		if err := CheckRight(ctx, what); err != nil {
			return err
		}
	}
	var open []string
	for _, w := range pending {
		if !slices.ContainsFunc(answers, func(a event.WaitAnswer) bool { return a.ID == w.ID }) {
			open = append(open, w.ID)
		}
	}
	if len(open) > 0 {
		return refuse(http.StatusConflict, webapi.CodeWaitsOpen,
			"All that the run waits for is answered at once; there is no answer to %.500s.", strings.Join(open, ", "))
	}
	return nil
}

// answered has a run go on with the answers to what it waits for. If it has gone on with them
// already, that run is joined, or its kept answer given. from is the number of the event that the
// answers are to.
func (s *Resumer) answered(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) (
	r *Run, answer *Final, seq int64, err error) {
	waiting, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	for {
		w, err := s.Store.Suspensions.Waiting(ctx, chat)
		if errors.Is(err, redisstore.ErrStateLost) {
			return nil, nil, 0, errors.Join(errStateLost, s.denyNow(ctx, chat, id, StateLost))
		}
		if err != nil {
			return nil, nil, 0, err
		}
		if w == nil || w.Run != id {
			r, answer, err := s.answeredBefore(ctx, chat, id, answers)
			if errors.Is(err, ErrLostRun) && s.StoreWatch.LostLately(ctx) {
				restored, failed := s.waitBack(ctx, chat, id)
				if restored && Pause(waiting, Jitter(20*time.Millisecond)) == nil {
					continue
				}
				if err = cmp.Or(failed, err); failed == nil && s.StoreWatch.Losses.Noticed(Retelling) {
					err = ErrMayComeBack
				}
			}
			if !errors.Is(err, errNotWaiting) || !s.aboutToWait(ctx, chat, id, answers) {
				return r, answer, 0, err
			}
			if Pause(waiting, Jitter(20*time.Millisecond)) != nil {
				return nil, nil, 0, WaitError(waiting)
			}
			continue
		}
		pending, err := WaitsOf(w)
		if err == nil {
			err = s.NotErased(chat, &w.Rest)
		}
		if err == nil {
			err = fit(ctx, answers, pending, id)
		}
		if unknown := new(api.Problem); errors.As(err, &unknown) && unknown.Code == webapi.CodeUnknownWait {
			// They may be those with which it went on before, to where it waits once more.
			if r, answer, prevErr := s.answeredBefore(ctx, chat, id, answers); !errors.Is(prevErr, errNotWaiting) {
				return r, answer, 0, prevErr
			}
		}
		if err != nil {
			return nil, nil, 0, err
		}
		if Expired(&w.Rest) {
			return nil, nil, 0, errors.Join(errExpired, s.denyNow(ctx, chat, id, NobodyInTime))
		}
		r, err := s.tryReopen(ctx, chat, id, answers)
		if r != nil || err != nil && !errors.Is(err, problem.ErrQueueSlow) {
			return r, nil, w.Seq, err
		}
		// Another process has the lease, perhaps with the same answers.
		if Pause(waiting, Jitter(100*time.Millisecond)) != nil {
			return nil, nil, 0, WaitError(waiting)
		}
	}
}

var (
	errExpired = &api.Problem{Status: http.StatusGone, Code: webapi.CodeWaitExpired,
		Message: "Nobody answered in time, which counts as a no: the run is over; please send the message again."}
	errClosed = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeNotWaiting,
		Message: "The run does not wait any more: it was ended without an answer, since a new message came, or it was " +
			"stopped, or the chat's memory was changed."}
	errNotWaiting = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeNotWaiting,
		Message: "The run waits for nothing."}
	errStateLost = &api.Problem{Status: http.StatusConflict, Code: webapi.CodeNotWaiting,
		Message: "What the run would go on from is lost, so it was ended; please send the message again."}
	ErrLostRun = &api.Problem{Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
		Message: "This chat has no such run, or the memory lost what it would go on from; please send the message again."}
	ErrMayComeBack = &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeMemoryUnavailable, Retryable: true,
		Message: "The memory has just lost data, and what other processes know of this run may not be written back yet; " +
			"please answer again in a moment.",
	}
	errNotTaken = &api.Problem{Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
		Message: "The agents could not go on with the run right now, so it waits as before; please answer again."}
)

// aboutToWait says whether a run that waits for nothing yet is about to: it is being suspended, or put back after a
// loss.
func (s *Resumer) aboutToWait(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) bool {
	if s.suspending(ctx, chat, id, answers) {
		return true
	}
	if !s.StoreWatch.LostLately(ctx) {
		return false
	}
	head, events, err := s.Restorer.longestKnown(ctx, chat, id)
	n := len(events)
	return err == nil && n > 0 && head.Waiting != nil && !events[n-1].Terminal()
}

// suspending says whether a run is open that has shown what these answers are to: it is being
// suspended, or its process died before it was.
func (s *Resumer) suspending(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) bool {
	open, err := s.Store.Turns.OpenRun(ctx, chat)
	if err != nil || open == nil || open.Run != id {
		w, err := s.Store.Suspensions.Rest(ctx, chat) // suspended just now
		return err == nil && w != nil && w.Run == id
	}
	state, err := s.Store.Suspensions.State(ctx, chat, id)
	if err != nil || state == nil {
		return false
	}
	pending, err := WaitsOf(state)
	if err != nil {
		return false
	}
	var unknown *api.Problem // what else is wrong is said once it waits
	return !errors.As(fit(ctx, answers, pending, id), &unknown) || unknown.Code != webapi.CodeUnknownWait
}

// answeredBefore gives a run that does not wait, if these are the answers with which it went on.
func (s *Resumer) answeredBefore(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) (
	r *Run, answer *Final, err error) {
	record, err := s.Store.Runs.Record(ctx, chat, id)
	if err != nil {
		return nil, nil, err
	}
	if record == nil || record.Rewound || record.Body == "" { // "": Redis lost it before it was told how the run ended
		return nil, nil, ErrLostRun
	}
	decisions, err := s.Store.Suspensions.Answers(ctx, chat, id)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range answers {
		switch decided := decisions[a.ID]; decided {
		case a.Decision:
		case "":
			return nil, nil, errNotWaiting
		case WaitExpired:
			return nil, nil, errExpired
		case WaitClosed:
			return nil, nil, errClosed
		default:
			return nil, nil, &api.Problem{Status: http.StatusConflict, Code: webapi.CodeAnswered, RunID: id,
				Message: fmt.Sprintf("%.80q was answered before, with %s.", a.ID, decided)}
		}
	}
	answer = storedAnswer(record)
	s.Registry.Mu.Lock()
	r = s.Registry.Live[id]
	s.Registry.Mu.Unlock()
	if r == nil || r.Chat != chat || s.Registry.Outdated(ctx, r) {
		r = s.Streams.Mirror(ctx, chat, id, answer != nil)
	}
	if string(record.Result) == "{}" { // of a run that no post repeats: its events say it
		answer = nil
	}
	return r, answer, nil
}

// tryReopen has a run go on, if its chat's lease can be had at once. Neither run nor error, or
// problem.ErrQueueSlow: it is to be looked at again.
func (s *Resumer) tryReopen(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) (
	*Run, error) {
	w, err := s.Leaser.takeTurn(ctx, ctx, chat, "", PlaceIdle)
	switch {
	case err != nil:
		return nil, err
	case w.Open != nil:
		s.Runner.Resume(w)
		return nil, nil
	case w.Waiting == nil || w.Waiting.Run != id || Expired(w.Waiting):
		return nil, w.Release(w.End, &s.Log)
	}
	// What follows must not end with the client, half way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*StoreTimeout)
	defer cancel()
	state, err := s.Store.Suspensions.Waiting(ctx, chat)
	var pending []event.Wait
	if err == nil {
		pending, err = WaitsOf(state)
	}
	if err == nil {
		err = fit(ctx, answers, pending, id)
	}
	if errors.Is(err, redisstore.ErrStateLost) {
		s.Runner.Deny(w, StateLost)
		return nil, nil
	}
	if err != nil {
		return nil, errors.Join(err, w.Release(w.End, &s.Log))
	}
	d := s.reopened(ctx, w, state)
	d.Waiting = state
	err = d.Replay(ctx)
	if errors.Is(err, memory.ErrUnavailable) || errors.Is(err, memory.ErrMoved) {
		return nil, errors.Join(err, w.Release(w.End, &s.Log))
	}
	if err != nil || d.Run.Log.Last() != state.Seq || !d.Run.Log.AtWait() {
		s.Runner.Deny(w, StateLost) // its log is lost, or has a part of its end
		return nil, nil
	}
	if err = s.Runner.Count(ctx, d.Run); err == nil {
		err = d.GoOn(ctx, answers, pending)
	}
	if err != nil {
		d.Waiting = state
		d.Run.Log.Rest()
		d.Run.Close()
		releaseErr := w.Release(d.Rest, &d.Log)
		d.Run.End()
		return nil, errors.Join(err, releaseErr)
	}
	s.Registry.Enlist(d.Run)
	s.Workers.Go(func() { s.Runner.Work(d) })
	for _, a := range answers {
		s.WriteAudit(ctx, chat.Tenant(), BesideEntries[Doing(a, pending)], "chats/"+chat.ID()+"/runs/"+id+"/"+a.ID)
	}
	return d.Run, nil
}

// reopened makes the driver of a run that is to go on.
func (s *Resumer) reopened(ctx context.Context, w *Writer, state *redisstore.Waiting) *Driver {
	r := NewRun(state.Run, w.Chat, state.Open.Body)
	r.Identify(state.Open)
	r.Trail = telemetry.FromContext(ctx)
	r.Trail.Run, r.Trail.Chat = r.Id, r.Chat.String()
	BeginSpan(ctx, s.Cfg.Traces, r, "", r.User.ID(), state.Open.Trace)
	close(r.Posted)
	return s.Runner.Driver(r, w, "")
}

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
	if err := s.Store.Suspensions.KeepAnswers(ctx, r.Chat, r.Id, state.Until, decided); err != nil {
		return err
	}
	s.ToolCalls.noteCall(r, CallLine{Answers: decided, Until: state.Until})
	note := r.OpenRun(w.Number)
	note.Events, note.Process = d.events, s.Spool.Name()
	if err := s.Store.Suspensions.Reopen(ctx, r.Chat, w.Token, s.Cfg.Lease, note); err != nil {
		return err
	}
	w.Opened(note)
	req := api.RunRequest{RunID: r.Id, ChatID: r.Chat, ConversationID: w.Conversation, AgentVersion: webapi.Master,
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
	asking, cancel := context.WithTimeout(r.Trail.In(ctx), StoreTimeout)
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
	if err := s.EndStore.RemoveRun(r.Chat, r.Id); err != nil {
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
