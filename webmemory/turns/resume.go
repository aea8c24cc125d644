package turns

import (
	"cmp"
	"context"
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
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// GetApprovals is GET /v1/approvals.
func (s *Resumer) GetApprovals(c *gin.Context) error {
	limit, err := problem.Number(c, "limit", node.PageSize, 1, node.MaxPage)
	if err != nil {
		return err
	}
	if status := c.DefaultQuery("status", "open"); status != "open" {
		return problem.BadRequest("status is open, not %.40q: what was answered is in the events of its run.", status)
	}
	kind := c.Query("kind")
	if kinds := []string{event.Approval, event.Question, event.ClientResult}; kind != "" && !slices.Contains(kinds, kind) {
		return problem.BadRequest("kind is approval, question or client_result, not %.40q.", kind)
	}
	chats, waiting, next, err := s.Store.Suspensions.List(c.Request.Context(), problem.TenantOf(c), c.Query("cursor"),
		limit)
	if err != nil {
		return err
	}
	out := webapi.ApprovalList{Approvals: []webapi.ApprovalEntry{}, NextCursor: next}
	for i, w := range waiting {
		if s.NotErased(chats[i], &w.Rest) != nil {
			continue
		}
		pending, err := runs.WaitsOf(w)
		if err != nil {
			continue // it cannot go on, and is ended by the next holder of the chat's lease
		}
		for _, wait := range pending {
			if kind == "" || wait.Kind == kind {
				out.Approvals = append(out.Approvals, webapi.ApprovalEntry{ChatID: chats[i], RunID: w.Run, Wait: wait})
			}
		}
	}
	slices.SortStableFunc(out.Approvals, func(a, b webapi.ApprovalEntry) int {
		return int(max(-1, min(1, a.ExpiresAt-b.ExpiresAt)))
	})
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

// This file is about answers to what a run waits for: they are checked, the run is opened again
// under its chat's lease, and the apiserver is asked to go on with it. If that is not known to
// have begun, the run waits as before.

// Resumer takes what people do to a run: answers to what it waits for, and stops. It keeps the answers in Redis before
// the run goes on, so that it goes on once, with the same answers, in whichever process.
type Resumer struct {
	*node.Core
	Registry   *runs.Registry
	StoreWatch *node.StoreWatch
	Streams    *runs.Streams
	Runner     *runs.Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

// Bounds of answers.
const (
	maxResume = 8 << 20 // bytes of a request

	maxReason = 1000
)

// ResumePosted is POST /v1/chats/{chat}/runs/{run}/resume.
func (s *Resumer) ResumePosted(c *gin.Context) (*Admitted, error) {
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
	return &Admitted{r, answer, body.Stream || problem.AcceptsSSE(c.Request)}, nil
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
		case a.Decision == event.Edit && !runs.IsObject(a.Arguments):
			return problem.BadRequest(
				"The edit of %.80q needs arguments, an object: those that take the place of the others.", a.ID)
		case a.Decision != event.Edit && len(a.Arguments) > 0:
			return problem.BadRequest("arguments go with the decision edit, not with %s: leave them out of the answer to %.80q.",
				a.Decision, a.ID)
		case a.Decision != event.Approve && len(a.Result) > 0:
			return problem.BadRequest("result goes with the decision approve, not with %s: leave it out of the answer to %.80q.",
				a.Decision, a.ID)
		case len(a.Result) > runs.MaxResult || len(a.Arguments) > runs.MaxResult:
			return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
				Message: fmt.Sprintf("The result or the arguments of %.80q have more than %d bytes.", a.ID, runs.MaxResult)}
		case len(a.Reason) > maxReason:
			return problem.BadRequest("The reason of %.80q has more than %d bytes.", a.ID, maxReason)
		}
		ids[a.ID] = true
	}
	return nil
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
		what := node.Doing(a, pending)
		_, ok := node.BesideRights[what]
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
		if err := node.CheckRight(ctx, what); err != nil {
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
	r *runs.Run, answer *runs.Final, seq int64, err error) {
	waiting, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	for {
		w, err := s.Store.Suspensions.Waiting(ctx, chat)
		if errors.Is(err, redisstore.ErrStateLost) {
			return nil, nil, 0, errors.Join(errStateLost, s.denyNow(ctx, chat, id, runs.StateLost))
		}
		if err != nil {
			return nil, nil, 0, err
		}
		if w == nil || w.Run != id {
			r, answer, err := s.answeredBefore(ctx, chat, id, answers)
			if errors.Is(err, problem.ErrLostRun) && s.StoreWatch.LostLately(ctx) {
				restored, failed := s.waitBack(ctx, chat, id)
				if restored && node.Pause(waiting, node.Jitter(20*time.Millisecond)) == nil {
					continue
				}
				if err = cmp.Or(failed, err); failed == nil && s.StoreWatch.Losses.Noticed(node.Retelling) {
					err = problem.ErrMayComeBack
				}
			}
			if !errors.Is(err, errNotWaiting) || !s.aboutToWait(ctx, chat, id, answers) {
				return r, answer, 0, err
			}
			if node.Pause(waiting, node.Jitter(20*time.Millisecond)) != nil {
				return nil, nil, 0, runs.WaitError(waiting)
			}
			continue
		}
		pending, err := runs.WaitsOf(w)
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
		if runs.Expired(&w.Rest) {
			return nil, nil, 0, errors.Join(errExpired, s.denyNow(ctx, chat, id, runs.TimedOut))
		}
		r, err := s.tryReopen(ctx, chat, id, answers)
		if r != nil || err != nil && !errors.Is(err, problem.ErrQueueSlow) {
			return r, nil, w.Seq, err
		}
		// Another process has the lease, perhaps with the same answers.
		if node.Pause(waiting, node.Jitter(100*time.Millisecond)) != nil {
			return nil, nil, 0, runs.WaitError(waiting)
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
	pending, err := runs.WaitsOf(state)
	if err != nil {
		return false
	}
	var unknown *api.Problem // what else is wrong is said once it waits
	return !errors.As(fit(ctx, answers, pending, id), &unknown) || unknown.Code != webapi.CodeUnknownWait
}

// answeredBefore gives a run that does not wait, if these are the answers with which it went on.
func (s *Resumer) answeredBefore(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) (
	r *runs.Run, answer *runs.Final, err error) {
	record, err := s.Store.Runs.Record(ctx, chat, id)
	if err != nil {
		return nil, nil, err
	}
	if record == nil || record.Rewound || record.Body == "" { // "": Redis lost it before it was told how the run ended
		return nil, nil, problem.ErrLostRun
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
		case runs.WaitExpired:
			return nil, nil, errExpired
		case runs.WaitClosed:
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
	*runs.Run, error) {
	w, err := s.Leaser.takeTurn(ctx, ctx, chat, "", runs.PlaceIdle)
	switch {
	case err != nil:
		return nil, err
	case w.Open != nil:
		s.Runner.Resume(w)
		return nil, nil
	case w.Waiting == nil || w.Waiting.Run != id || runs.Expired(w.Waiting):
		return nil, w.Release(w.End, &s.Log)
	}
	// What follows must not end with the client, half way.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*node.StoreTimeout)
	defer cancel()
	state, err := s.Store.Suspensions.Waiting(ctx, chat)
	var pending []event.Wait
	if err == nil {
		pending, err = runs.WaitsOf(state)
	}
	if err == nil {
		err = fit(ctx, answers, pending, id)
	}
	if errors.Is(err, redisstore.ErrStateLost) {
		s.Runner.Deny(w, runs.StateLost)
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
		s.Runner.Deny(w, runs.StateLost) // its log is lost, or has a part of its end
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
		s.WriteAudit(ctx, chat.Tenant(), node.BesideEntries[node.Doing(a, pending)], "chats/"+chat.ID()+"/runs/"+id+"/"+a.ID)
	}
	return d.Run, nil
}

// reopened makes the driver of a run that is to go on.
func (s *Resumer) reopened(ctx context.Context, w *runs.Writer, state *redisstore.Waiting) *runs.Driver {
	r := runs.NewRun(state.Run, w.Chat, state.Open.Body)
	r.Identify(state.Open)
	r.Trail = telemetry.FromContext(ctx)
	r.Trail.Run, r.Trail.Chat = r.ID, r.Chat.String()
	runs.BeginSpan(ctx, s.Cfg.Traces, r, "", r.User.ID(), state.Open.Trace)
	close(r.Posted)
	return s.Runner.Driver(r, w, "")
}

// This file is about stopping a run: one that goes on is stopped where it is, one that waits is ended as if its waits
// were denied.

// StopRun is POST …/runs/{run}/stop.
func (s *Resumer) StopRun(c *gin.Context) error {
	chat, r, err := s.Registry.Find(c)
	if err != nil {
		return err
	}
	id := c.Param("run")
	status, err := s.stop(c.Request.Context(), chat, id, r)
	if err != nil {
		return err
	}
	code := http.StatusOK
	if status == webapi.Stopping {
		code = http.StatusAccepted
	}
	return api.Answer(c.Writer, code, webapi.StopStatus{RunID: id, Status: status}, nil)
}

// stop stops a chat's run, which is r if this process has it.
func (s *Resumer) stop(ctx context.Context, chat memory.Chat, id string, r *runs.Run) (status string, err error) {
	if r != nil && r.Expired(0) && !r.Log.Waiting() {
		return webapi.Finished, nil
	}
	open, err := s.Store.Turns.OpenRun(ctx, chat)
	switch {
	case r != nil && !r.Expired(0):
		err = s.stopHere(ctx, r)
	case err == nil && open != nil && open.Run == id:
		err = s.Leaser.stopOpen(ctx, open)
	case err == nil && s.waitsFor(ctx, chat, id):
		return webapi.Finished, s.denyNow(ctx, chat, id, runs.StoppedRun)
	case err == nil:
		record, err := s.Store.Runs.Record(ctx, chat, id)
		if err == nil && record == nil {
			err = problem.ErrUnknownRun
		}
		return webapi.Finished, err
	}
	if errors.Is(err, api.ErrWaits) { // it is about to be suspended
		return webapi.Finished, s.denyNow(ctx, chat, id, runs.StoppedRun)
	}
	if err != nil {
		return "", node.Unreachable(err)
	}
	return webapi.Stopping, nil
}

// stopHere asks the apiserver to end a run; its last events come as ever.
func (s *Resumer) stopHere(ctx context.Context, r *runs.Run) error {
	r.Mu.Lock()
	client := r.Client
	r.Mu.Unlock()
	if client == nil {
		return nil // still waiting for its turn: it is withdrawn when its client leaves
	}
	return client.Stop(ctx, r.ID)
}

// denyNow ends a run that waits, or is about to, and waits until that is done. What does not wait any more is fine.
func (s *Resumer) denyNow(ctx context.Context, chat memory.Chat, id string, why *runs.Denial) error {
	waiting, cancel := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer cancel()
	for retry := true; retry; retry = s.waitsFor(ctx, chat, id) {
		w, err := s.Leaser.takeTurn(ctx, waiting, chat, "", runs.PlaceLast)
		if err != nil {
			return err
		}
		var prev *runs.Run
		switch {
		case w.Open != nil:
			prev = s.Runner.Resume(w)
		case w.Waiting != nil && w.Waiting.Run == id:
			prev = s.Runner.Deny(w, why)
		default:
			return w.Release(w.End, &s.Log)
		}
		select {
		case <-prev.Done:
		case <-waiting.Done():
			return runs.WaitError(waiting)
		}
	}
	return nil
}

// waitsFor says whether a chat's run waits, as far as can be seen.
func (s *Resumer) waitsFor(ctx context.Context, chat memory.Chat, id string) bool {
	rest, err := s.Store.Suspensions.Rest(ctx, chat)
	return err == nil && rest != nil && rest.Run == id
}
