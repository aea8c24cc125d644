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

// GetApprovals handles GET /v1/approvals.
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
			continue // the run cannot resume; the next holder of the chat's lease ends it
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

// Resumer handles answers to runs that wait, and stops runs. It checks the answers, opens the run again under its
// chat's lease, and asks the apiserver to resume it. If the apiserver does not confirm, the run waits as before.
//
// The answers are stored in Redis before the run resumes. It therefore resumes once, with the same answers, in any
// process.
type Resumer struct {
	*node.Core
	Registry   *runs.Registry
	StoreWatch *node.StoreWatch
	Streams    *runs.Streams
	Runner     *runs.Runner
	Restorer   *Restorer
	Leaser     *Leaser
}

// Limits of answers.
const (
	maxResume = 8 << 20 // bytes of a request

	maxReason = 1000
)

// ResumePosted handles POST /v1/chats/{chat}/runs/{run}/resume.
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
	// Stream only the events after seq: the answering client has seen the others.
	c.Request.URL.RawQuery = fmt.Sprintf("last_event_id=%d", seq)
	c.Header(webapi.RunID, id)
	return &Admitted{r, answer, body.Stream || problem.AcceptsSSE(c.Request)}, nil
}

// checkAnswers validates answers without looking at the run.
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

// fit returns an error if answers do not match the pending waits of a run, or if the caller may not give them.
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

// answered resumes a run with the answers to its waits. If the run has resumed with them before, answered returns that
// run, or its stored answer. The answers refer to the event with the number seq.
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
			// The run may have resumed with these answers before, and wait again.
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

// aboutToWait reports whether a run without waits is about to wait: it is being suspended, or restored after a loss.
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

// suspending reports whether an open run has shown the waits that answers refer to. The run is being suspended, or its
// process died before that.
func (s *Resumer) suspending(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) bool {
	open, err := s.Store.Turns.OpenRun(ctx, chat)
	if err != nil || open == nil || open.Run != id {
		w, err := s.Store.Suspensions.Rest(ctx, chat) // the run was just suspended
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
	var unknown *api.Problem // other errors are reported once the run waits
	return !errors.As(fit(ctx, answers, pending, id), &unknown) || unknown.Code != webapi.CodeUnknownWait
}

// answeredBefore returns a run that does not wait, if it resumed with these answers.
func (s *Resumer) answeredBefore(ctx context.Context, chat memory.Chat, id string, answers []event.WaitAnswer) (
	r *runs.Run, answer *runs.Final, err error) {
	record, err := s.Store.Runs.Record(ctx, chat, id)
	if err != nil {
		return nil, nil, err
	}
	if record == nil || record.Rewound || record.Body == "" { // "": Redis lost the record before the answer was stored
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
	if string(record.Result) == "{}" { // no post can repeat the run; its events have the answer
		answer = nil
	}
	return r, answer, nil
}

// tryReopen resumes a run if its chat's lease is free. If it returns neither run nor error, or problem.ErrQueueSlow,
// the caller must look at the run again.
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
	// A disconnect must not stop the following steps halfway.
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
		s.Runner.Deny(w, runs.StateLost) // the log is lost, or has a part of the run's end
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

// reopened returns the driver of a run that is about to resume.
func (s *Resumer) reopened(ctx context.Context, w *runs.Writer, state *redisstore.Waiting) *runs.Driver {
	r := runs.NewRun(state.Run, w.Chat, state.Open.Body)
	r.Identify(state.Open)
	r.Trail = telemetry.FromContext(ctx)
	r.Trail.Run, r.Trail.Chat = r.ID, r.Chat.String()
	runs.BeginSpan(ctx, s.Cfg.Traces, r, "", r.User.ID(), state.Open.Trace)
	close(r.Posted)
	return s.Runner.Driver(r, w, "")
}

// StopRun handles POST …/runs/{run}/stop. An active run is stopped in its process. A run that waits ends as if its
// waits were denied.
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

// stop stops a chat's run. r is the run if this process has it.
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
	if errors.Is(err, api.ErrWaits) { // the run is about to be suspended
		return webapi.Finished, s.denyNow(ctx, chat, id, runs.StoppedRun)
	}
	if err != nil {
		return "", node.Unreachable(err)
	}
	return webapi.Stopping, nil
}

// stopHere asks the apiserver to end a run. The run's last events arrive as usual.
func (s *Resumer) stopHere(ctx context.Context, r *runs.Run) error {
	r.Mu.Lock()
	client := r.Client
	r.Mu.Unlock()
	if client == nil {
		return nil // the run has no turn yet; it is withdrawn when its client disconnects
	}
	return client.Stop(ctx, r.ID)
}

// denyNow ends a run that waits or is about to wait, and returns after it has ended. It is not an error if the run does
// not wait any more.
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

// waitsFor reports whether a chat's run waits. It returns false if Redis does not respond.
func (s *Resumer) waitsFor(ctx context.Context, chat memory.Chat, id string) bool {
	rest, err := s.Store.Suspensions.Rest(ctx, chat)
	return err == nil && rest != nil && rest.Run == id
}
