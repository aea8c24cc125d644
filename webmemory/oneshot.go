package webmemory

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// This file is about one-shots: runs without a chat. The request has all that is known; the run's events are
// passed on to the one client that is there; its leaving stops the run, and nothing is stored. A run that waits for
// its client's tools is the exception: it is kept for an hour, and goes on in any process.

// oneShotRunner runs what has no chat. Nothing is kept of it but, in Redis, what a run that waits goes on from.
type oneShotRunner struct {
	*core
	registry  *registry
	runner    *runner
	leaser    *leaser
	admission *admission
}

// oneShot is what a one-shot goes on from that waits for its client's tools.
type oneShot struct {
	Chat         memory.StoredChat `json:"chat"` // random
	Conversation string            `json:"conversation"`
	Events       []json.RawMessage `json:"events"`
	State        json.RawMessage   `json:"state"`
}

// oneShotPosted is POST /v1/oneshot.
func (s *oneShotRunner) oneShotPosted(c *gin.Context) (*admitted, error) {
	var p webapi.OneShotRequest
	if err := api.DecodeKnown(c.Writer, c.Request, maxPost, &p); err != nil {
		return nil, err
	}
	if err := s.checkOneShot(&p); err != nil {
		return nil, err
	}
	chat, err := tenantOf(c).Chat(rand.Text())
	if err != nil {
		return nil, err
	}
	r := newRun(rand.Text(), chat, "")
	r.alone = &ownCalls{}
	r.user, _ = chat.Tenant().User(p.User)
	req := api.RunRequest{
		RunID: r.id, Message: p.Message, ChatID: r.chat, AgentVersion: p.AgentVersion, ConversationID: rand.Text(),
		User: p.User, Tools: p.Tools, Wishes: p.Wishes, Instructions: p.Instructions, Waits: len(p.Tools) > 0, Bare: p.Bare,
		Images: p.Images, ImagesBefore: p.ImagesBefore,
	}
	if p.AgentVersion == webapi.Master {
		req.Context = p.Context
	} else {
		req.SubagentContexts = map[memory.Agent][]json.RawMessage{memory.Agent(p.AgentVersion): p.Context}
	}
	return s.oneShot(c, r, req, p.Stream)
}

// checkOneShot validates a one-shot, and fills in defaults.
func (s *oneShotRunner) checkOneShot(p *webapi.OneShotRequest) error {
	masters := p.AgentVersion == "" || p.AgentVersion == webapi.Master
	if p.Bare && (!masters || len(p.Tools) > 0) {
		return badRequest("bare goes with the master, and with no tools.")
	}
	last, size := "", 0
	for i, raw := range p.Context {
		m, err := contextMessage(raw)
		if err != nil {
			return badRequest("context[%d]: %s", i, err)
		}
		last, size = m.Role, size+len(raw)
	}
	if size > maxBody {
		return &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("context has %d bytes, at most %d are taken.", size, maxBody)}
	}
	as := webapi.MessageRequest{Message: p.Message, AgentVersion: p.AgentVersion, User: p.User, Tools: p.Tools,
		Wishes: p.Wishes, Instructions: p.Instructions, Images: p.Images, ImagesBefore: p.ImagesBefore}
	resultsAnswered := p.Message == "" && last == memory.RoleTool && masters && len(p.Images) == 0
	if resultsAnswered {
		as.Message = last
	}
	_, err := s.admission.check(&as)
	if p.AgentVersion = as.AgentVersion; !resultsAnswered {
		p.Message = as.Message
	}
	return err
}

// contextMessage reads a message that a client gives a one-shot, by the letter.
func contextMessage(raw json.RawMessage) (m memory.Message, err error) {
	type plain memory.Message // without what is read into other writers' messages
	if err := api.UnmarshalKnown(raw, (*plain)(&m)); err != nil {
		return m, errors.New(problemOf(err).Message)
	}
	switch {
	case !slices.Contains([]string{memory.RoleUser, memory.RoleAssistant, memory.RoleTool}, m.Role):
		err = fmt.Errorf("role is user, assistant or tool, not %.40q.", m.Role)
	case m.Role == memory.RoleTool && m.ToolCallID == "":
		err = errors.New("the result of a tool needs its tool_call_id.")
	case m.Role != memory.RoleAssistant && len(m.ToolCalls) > 0:
		err = errors.New("only an assistant's message has tool_calls.")
	case slices.ContainsFunc(m.ToolCalls, func(c memory.ToolCall) bool { return c.ID == "" || c.Function.Name == "" }):
		err = errors.New("each of tool_calls needs its id and its function's name.")
	}
	return m, err
}

// oneShotResumed is POST /v1/oneshot/{run}/resume.
func (s *oneShotRunner) oneShotResumed(c *gin.Context) (*admitted, error) {
	var body webapi.ResumeRequest
	if err := api.DecodeKnown(c.Writer, c.Request, maxResume, &body); err != nil {
		return nil, err
	}
	if err := checkAnswers(body.Answers); err != nil {
		return nil, err
	}
	id := c.Param("run")
	if !isRunID(id) { // with a slash in it, it could name another tenant's
		return nil, errNoOneShot
	}
	raw, err := s.store.OneShots.State(c.Request.Context(), tenantOf(c), id)
	if err != nil {
		return nil, err
	}
	var kept oneShot
	if raw == nil || json.Unmarshal(raw, &kept) != nil {
		return nil, errNoOneShot
	}
	r := newRun(id, kept.Chat.Chat, "")
	r.alone = &ownCalls{kept: true}
	if r.log, err = api.GoOn(id, api.Limits{}, kept.Events); err != nil {
		return nil, errors.Join(errNoOneShot, err)
	}
	if err := fit(c.Request.Context(), body.Answers, r.openWaits(), id); err != nil {
		return nil, err
	}
	return s.oneShot(c, r, api.RunRequest{
		RunID: id, ChatID: r.chat, ConversationID: kept.Conversation, AgentVersion: webapi.Master,
		Resume: &api.Resume{Events: kept.Events, State: kept.State, Answers: body.Answers, Turn: time.Now().UnixMilli()},
	}, body.Stream)
}

var errNoOneShot = &api.Problem{
	Status: http.StatusNotFound, Code: api.ErrUnknownRun.Code,
	Message: "No such run waits; without a chat one is kept for an hour.",
}

// oneShot has the apiserver run a request, for as long as its client is there.
func (s *oneShotRunner) oneShot(c *gin.Context, r *run, req api.RunRequest, stream bool) (*admitted, error) {
	ctx := c.Request.Context()
	telemetry.Concerns(ctx, r.chat.String(), r.id)
	r.trail = telemetry.From(ctx)
	ctx = beginSpan(ctx, s.cfg.Traces, r, req.Message, req.User, "")
	c.Header(webapi.RunID, r.id)
	stream = stream || acceptsSSE(c.Request)
	c.Request.Header.Del("Prefer") // a client that does not wait gets nothing
	c.Request.Header.Del("Last-Event-ID")
	c.Request.URL.RawQuery = fmt.Sprintf("last_event_id=%d", r.log.Last())
	waiting, stop := context.WithTimeout(ctx, s.cfg.QueueWait)
	defer stop()
	next, err := s.leaser.queue.enter(waiting, r.chat, behind, false) // one that goes on may be about to rest here
	if err != nil {
		return nil, err
	}
	end := func() {
		s.registry.mu.Lock()
		delete(s.registry.oneShots, r.id)
		s.registry.mu.Unlock()
		r.end()
		next()
	}
	s.registry.mu.Lock()
	draining := s.registry.draining
	if !draining {
		s.registry.oneShots[r.id] = r
	}
	s.registry.mu.Unlock()
	if draining {
		next()
		return nil, errShutdown
	}
	if err := s.runner.count(ctx, r); err != nil {
		close(r.posted)
		end()
		return nil, err
	}
	if s.cfg.SelfURL != "" {
		req.Memory = s.runner.access(r, nil)
		req.Memory.CallsOnly = true
	}
	posting, cancel := context.WithTimeout(ctx, postTimeout(req))
	defer cancel()
	accepted, err := s.runs.PostRun(posting, req)
	close(r.posted)
	if err != nil {
		s.workers.Go(func() { s.runner.forget(r) })
		end()
		return nil, asking(err)
	}
	life, leave := context.WithTimeout(r.trail.In(s.life), s.cfg.RunTimeout)
	gone := context.AfterFunc(ctx, leave)
	s.workers.Go(func() {
		defer end()
		defer leave()
		defer gone()
		s.relay(life, r, req.ConversationID, accepted.Events)
	})
	return &admitted{run: r, stream: stream}, nil
}

// relay passes a one-shot's events on until it ends, waits, or is left.
func (s *oneShotRunner) relay(ctx context.Context, r *run, conversation, events string) {
	at, err := s.runs.At(events)
	if err != nil {
		at = s.runs
	}
	s.metrics.running.Inc()
	defer s.metrics.running.Dec()
	err = s.hear(ctx, r, at, conversation, events)
	outcome := r.log.Outcome()
	if r.log.Waiting() {
		outcome = webapi.OutcomeWaiting
	}
	done, cancel := context.WithTimeout(r.trail.In(context.Background()), storeTimeout)
	defer cancel()
	log := r.trail.Logger(s.log)
	switch {
	case errors.Is(err, context.Canceled):
		outcome = event.Stopped // by its client's leaving
		_ = at.Stop(done, r.id)
	case err != nil:
		log.Error().Err(err).Msg("a one-shot is closed")
		for _, e := range r.log.Closing(problemOf(err).Failure(), time.Now()) {
			_ = r.log.Append(e) // the next ones of its log
		}
		outcome = event.Failed
		_ = at.Stop(done, r.id)
	default: // what fails is forgotten there after a while
		_ = at.Done(done, r.id)
		if r.log.Done() {
			_ = s.runs.EraseConversation(done, r.chat.Tenant(), conversation)
		}
	}
	s.metrics.runs.WithLabelValues(outcome).Inc()
	s.metrics.runSeconds.WithLabelValues(outcome).Observe(time.Since(r.began).Seconds())
	log.Info().Str("outcome", outcome).Int64("events", r.log.Last()).Bool("one_shot", true).Msg("run finished")
}

// hear takes a one-shot's events, over as many connections as it takes. The error is why none will come.
func (s *oneShotRunner) hear(ctx context.Context, r *run, at *api.Client, conversation, events string) error {
	var failing time.Time // since when no connection could be made; zero while they can
	for {
		before := r.log.Last()
		err := s.hearOnce(ctx, r, at, conversation, events)
		var failed failedError
		if errors.As(err, &failed) {
			return failed.error
		}
		if r.log.Done() || r.log.Waiting() {
			return nil
		}
		if err := s.runner.reconnect(ctx, r.log, err, before, &failing); err != nil {
			if gone := new(goneError); errors.As(err, &gone) {
				err = errors.Join(errOneShotLost, err)
			}
			return err
		}
	}
}

var errOneShotLost = api.ProblemOf(event.Fail(event.RunLost, "", 0))

// hearOnce takes events from one connection. What cannot be taken is a failedError.
func (s *oneShotRunner) hearOnce(ctx context.Context, r *run, at *api.Client, conversation, events string) error {
	for some, err := range at.Batches(ctx, events, r.log.Last(), batch) {
		if err != nil {
			return err
		}
		for _, e := range some {
			p, waits := e.Payload.(*event.RunWaiting)
			if waits || e.Terminal() {
				r.counted.Leave() // before anybody sees it
			}
			if waits {
				err = s.keepOneShot(ctx, r, at, conversation, e, p)
			} else {
				err = r.log.Append(e)
			}
			if err != nil {
				return failedError{err}
			}
		}
	}
	return nil
}

// keepOneShot keeps a run that waits for its client's tools. One that waits for another answer is ended as if that
// was denied.
func (s *oneShotRunner) keepOneShot(ctx context.Context, r *run, at *api.Client, conversation string, e event.Event,
	p *event.RunWaiting) error {
	waits, latest := slices.Clone(p.Waits), event.Seconds(time.Now().Add(redisstore.OneShotLife))
	for i, w := range waits {
		if w.Kind != event.ClientResult {
			_ = at.Stop(ctx, r.id) // it has ended there
			for _, e := range r.log.Denying("nobody is asked in a run without a chat", time.Now()) {
				if err := r.log.Append(e); err != nil {
					return err
				}
			}
			return nil
		}
		waits[i].ExpiresAt = min(w.ExpiresAt, latest)
	}
	if err := checkWaits(p); err != nil {
		return err
	}
	shown := event.New(e.Head, &event.RunWaiting{Waits: waits, Usage: p.Usage})
	kept := oneShot{Chat: memory.StoredChat{Chat: r.chat}, Conversation: conversation, State: p.State}
	for _, line := range r.log.Lines(0) {
		kept.Events = append(kept.Events, line)
	}
	kept.Events = append(kept.Events, shown.Line())
	raw, err := json.Marshal(kept)
	if err == nil {
		err = s.store.OneShots.Save(ctx, r.chat.Tenant(), r.id, raw)
	}
	if err != nil {
		return errors.Join(errNotKept, err)
	}
	return r.log.Append(shown)
}
