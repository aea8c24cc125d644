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

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/event"
	"mneme/memory/redisstore"
	webapi "mneme/webmemory/api"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 2 << 20

// places are what on_busy may say, with the place in the chat's line that each
// stands for.
var places = map[string]place{"": behind, webapi.Queue: behind, webapi.Reject: now, webapi.Interrupt: before}

// postMessage is POST /v1/chats/{chat}/messages.
func (s *Server) postMessage(c *gin.Context) error {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return err
	}
	var p webapi.MessageRequest
	if err := api.DecodeKnown(c.Writer, c.Request, maxBody, &p); err != nil {
		return err
	}
	if p.ChatID != nil && *p.ChatID != chat {
		return badRequest("chat_id in the body (%s) is not the chat of the path (%s).", *p.ChatID, chat)
	}
	return s.answer(c, chat, p, p.Stream || acceptsSSE(c.Request))
}

// postChat is POST /chat, the shape of the original service; it always streams.
func (s *Server) postChat(c *gin.Context) error {
	var p webapi.MessageRequest
	if err := api.DecodeKnown(c.Writer, c.Request, maxBody, &p); err != nil {
		return err
	}
	if p.ChatID == nil {
		return badRequest("chat_id is missing: it is a string or an integer.")
	}
	return s.answer(c, *p.ChatID, p, true)
}

func acceptsSSE(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(v string) bool {
		return strings.Contains(v, "text/event-stream")
	})
}

func (s *Server) answer(c *gin.Context, chat memory.Chat, p webapi.MessageRequest, stream bool) error {
	if err := s.check(&p); err != nil {
		return err
	}
	ctx := c.Request.Context()
	key, err := idempotencyKey(c.Request)
	if err != nil {
		return err
	}
	r, kept, fresh, err := s.begin(ctx, chat, p, key)
	if err != nil {
		return err
	}
	c.Header(webapi.RunID, r.id)
	if fresh || r.attempt > 1 {
		// The position is one in an earlier attempt, or in a run that is lost.
		c.Request.Header.Del("Last-Event-ID")
		c.Request.URL.RawQuery = ""
	}
	if stream {
		return s.serveEvents(c, r)
	}
	if kept != nil {
		c.Data(kept.Status, "application/json; charset=utf-8", kept.body())
		return nil
	}
	out, err := r.collect(ctx)
	if err != nil {
		return begun(err)
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// idempotencyKey is the request's, empty if it has none.
func idempotencyKey(r *http.Request) (string, error) {
	values := r.Header.Values(webapi.IdempotencyKey)
	if len(values) > 1 {
		return "", badRequest("There are %d Idempotency-Key headers; send one.", len(values))
	}
	key := r.Header.Get(webapi.IdempotencyKey)
	if len(key) > webapi.MaxKey {
		return "", badRequest("An Idempotency-Key has at most %d bytes; this one has %d.", webapi.MaxKey, len(key))
	}
	if strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
		return "", badRequest("An Idempotency-Key is printable ASCII, such as a UUID; %.40q is not.", key)
	}
	return key, nil
}

// begun is what a waiting client is told when its run was left here: it has run,
// and goes on elsewhere, which 409 and 503 would deny.
func begun(err error) error {
	p := *problemOf(err)
	if p.Status == http.StatusConflict || p.Status == http.StatusServiceUnavailable {
		p.Status = http.StatusBadGateway
		p.Message = "The run was left by this process and goes on elsewhere; read the chat's history, or repeat the message with its Idempotency-Key."
		return fmt.Errorf("%w: %w", &p, err)
	}
	return err
}

// show streams a run's events to its reader.
func (s *Server) show(c *gin.Context, r *run) {
	s.metrics.readers.Inc()
	defer s.metrics.readers.Dec()
	api.ServeEvents(c.Writer, c.Request, r.log, api.Pace{Heartbeat: s.cfg.Heartbeat})
}

// check refuses what needs no turn to be refused.
func (s *Server) check(p *webapi.MessageRequest) error {
	if strings.TrimSpace(p.Message) == "" {
		return badRequest("message is missing or empty.")
	}
	if len(p.Message) > memory.MaxMessage {
		return &api.Problem{
			Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("A message may have %d bytes; this one has %d.", memory.MaxMessage, len(p.Message)),
		}
	}
	if _, ok := places[p.OnBusy]; !ok {
		return badRequest("on_busy is queue, reject or interrupt, not %.80q.", p.OnBusy)
	}
	p.AgentVersion = cmp.Or(p.AgentVersion, webapi.Master)
	if p.AgentVersion != webapi.Master && !slices.Contains(s.cfg.Agents, memory.Agent(p.AgentVersion)) {
		return &api.Problem{
			Status: http.StatusBadRequest, Code: webapi.CodeUnknownAgent,
			Message: fmt.Sprintf("There is no agent_version %.80q; there are: master%s.", p.AgentVersion, joined(s.cfg.Agents)),
		}
	}
	return nil
}

func joined(agents []memory.Agent) string {
	var b strings.Builder
	for _, a := range agents {
		b.WriteString(", " + string(a))
	}
	return b.String()
}

// forgetRun takes a run off the list of this process.
func (s *Server) forgetRun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlist(r)
}

// register enters a run, unless one with its id is there already.
func (s *Server) register(r *run) (other *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, &api.Problem{
			Status: http.StatusServiceUnavailable, Code: webapi.CodeShuttingDown, Retryable: true,
			Message: "The service is shutting down; please send the message again.",
		}
	}
	if other := s.live[r.id]; other != nil {
		return other, nil
	}
	s.live[r.id] = r
	return nil, nil
}

// start takes the chat's turn, posts the run to the apiserver and leaves it to a
// driver. A record instead: another process has run it meanwhile.
func (s *Server) start(ctx context.Context, r *run, p webapi.MessageRequest) (*redisstore.Record, error) {
	t, err := s.turnOf(ctx, r, places[p.OnBusy])
	if err != nil {
		return nil, err
	}
	found, err := s.note(ctx, r, t)
	if err == nil && found == nil && t.Open == nil {
		err = s.open(ctx, r, p, t)
	}
	switch {
	case err == nil && t.Open != nil:
		s.resume(t) // it goes on, only Redis had forgotten it
		return &redisstore.Record{Body: r.body}, nil
	case err == nil && found == nil:
		d := s.driver(r, t, t.noted.Load().Events)
		s.workers.Go(func() { s.work(d) })
		return nil, nil
	}
	if ending := t.end(); ending != nil {
		s.log.Warn().Err(ending).EmbedObject(r.trail).Msg("a turn was not given back; it runs out by itself")
		if errors.Is(err, errAsked) {
			err = fmt.Errorf("%w: %w", errMayRun, err)
		}
	}
	t.next()
	return found, err
}

var (
	// errAsked: the apiserver was asked to run, and may do so though it did not say.
	errAsked = errors.New("asking the apiserver")
	// errMayRun: that could not be taken back, since Redis went away: whoever looks
	// after the chat may find the run and bring it to its end.
	errMayRun = &api.Problem{
		Status: http.StatusBadGateway, Code: webapi.CodeOutcomeUnknown, Retryable: true,
		Message: "The message may be answered or not; repeat it with its Idempotency-Key, or read the chat's history.",
	}
)

// note keeps a record of a run under its chat's turn: found is one that is there already,
// since another process has run it, or since Redis is told of it again. If the run goes
// on, and only Redis had forgotten it, it is the turn's open run then.
func (s *Server) note(ctx context.Context, r *run, t *turn) (found *redisstore.Record, err error) {
	if found, err = s.noteRun(ctx, r); err != nil || found != nil {
		return found, err
	}
	found, err = s.forgotten(ctx, r, t)
	return found, s.orWithdraw(ctx, r, err)
}

// orWithdraw takes back what was noted of a run, if err says that it was not begun.
func (s *Server) orWithdraw(ctx context.Context, r *run, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return errors.Join(err, s.store.Withdraw(ctx, r.chat, r.id))
}

// noteRun keeps a record of a run; found is one that is there already.
func (s *Server) noteRun(ctx context.Context, r *run) (found *redisstore.Record, err error) {
	begin := s.store.Begin
	if !r.keyed {
		begin = s.store.BeginUnkeyed
	}
	found, err = begin(ctx, r.chat, r.id, r.body)
	if err != nil || found != nil || r.attempt <= 1 {
		return found, err
	}
	return nil, s.store.Retried(ctx, r.chat, r.first, r.body, r.attempt)
}

// open notes the run beside the chat's lease, so that it is finished whatever happens to
// this process, and asks the apiserver for it. One that the apiserver has already is the
// lease's open run then.
func (s *Server) open(ctx context.Context, r *run, p webapi.MessageRequest, t *turn) error {
	// Where its events will be as far as is known here: who answers may name another process.
	note := redisstore.OpenRun{
		Run: r.id, Turn: t.Number, Events: s.runs.EventsURL(r.id), Body: r.body, By: s.spool.Name(), Trace: r.trail.Parent(),
	}
	loss, err := s.store.Open(ctx, r.chat, t.token, s.cfg.Lease, note)
	t.opened(note)
	if err != nil {
		return s.orWithdraw(ctx, r, err)
	}
	r.epoch, r.tells = s.lossOf(ctx, r.chat, loss)
	accepted, err := s.ask(ctx, r, p, t)
	if r.keyed && hasRun(err) {
		t.Open = &note
		return nil
	}
	if err != nil {
		return s.orWithdraw(ctx, r, fmt.Errorf("%w: %w", errAsked, err))
	}
	if note.Events == accepted.Events {
		return nil
	}
	note.Events = accepted.Events
	t.opened(note)
	if _, err := s.store.Open(context.WithoutCancel(ctx), r.chat, t.token, s.cfg.Lease, note); err != nil {
		// It is noted without its URL: whoever comes after us asks the configured apiserver.
		s.log.Warn().Err(err).EmbedObject(r.trail).Msg("a run's place was not noted")
	}
	return nil
}

// driver makes what follows a run under a turn.
func (s *Server) driver(r *run, t *turn, events string) *driver {
	if events == "" {
		events = s.runs.EventsURL(r.id)
	}
	at, err := s.runs.At(events)
	if err != nil {
		at = s.runs
	}
	r.mu.Lock()
	r.at, r.conversation = at, t.Conversation
	r.mu.Unlock()
	r.turn.Store(t.Number)
	t.run, t.logged = r.id, r.logged
	return &driver{
		server: s, run: r, turn: t, runs: at, events: events, fold: event.NewHistories(r.chat, t),
		log: r.trail.Logger(s.log),
	}
}

// ask posts the run with what the memory holds.
func (s *Server) ask(ctx context.Context, r *run, p webapi.MessageRequest, t *turn) (api.RunAccepted, error) {
	for key, h := range t.histories {
		if h.Size() > s.cfg.FullAt {
			return api.RunAccepted{}, fmt.Errorf("%s: %w", key, memory.ErrFull)
		}
	}
	chat := t.history(memory.ChatKey(r.chat))
	said := []string{"request: " + p.Message}
	req := api.RunRequest{
		RunID: r.id, Message: p.Message, ChatID: r.chat, AgentVersion: p.AgentVersion,
		ConversationID:   t.Conversation,
		Context:          chat.Window(s.cfg.ContextWindow),
		SubagentContexts: map[memory.Agent][]json.RawMessage{},
	}
	if r.retryOf != "" && owes(chat, p.Message) {
		req.RetryOf = r.retryOf
	}
	for _, a := range s.cfg.Agents {
		h := t.history(memory.SubagentKey(a, r.chat))
		req.SubagentContexts[a] = h.Window(s.cfg.SubagentContextWindow)
		said = append(said, fmt.Sprintf("history of %s loaded: %d messages", a, h.Len()))
	}
	s.sessions.write(r.chat, said...)
	r.asked = []event.Payload{&event.RunStarted{
		ChatID: r.chat, AgentVersion: p.AgentVersion, Subagents: s.cfg.Agents, Message: p.Message, RetryOf: req.RetryOf,
	}}
	if req.MemoryReset = r.tells; r.tells {
		r.asked = append(r.asked, &event.MemoryReset{})
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	accepted, err := s.runs.PostRun(ctx, req)
	if err != nil {
		// It may have arrived all the same; without a reader it must not go on.
		if !hasRun(err) {
			s.workers.Go(func() { s.forget(r) })
		}
		return accepted, asking(err)
	}
	return accepted, nil
}

// hasRun says whether the apiserver refused a run since it has one with this id: the
// post is a repetition of one whose record Redis does not have any more.
func hasRun(err error) bool {
	var problem *api.Problem
	return errors.As(err, &problem) && problem.Code == api.RunConflict
}

// asking says a failure to reach the apiserver in a client's words.
func asking(err error) error {
	var problem *api.Problem
	if errors.As(err, &problem) && (problem.Status == http.StatusServiceUnavailable || problem.Status == http.StatusBadRequest || hasRun(err)) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", &api.Problem{
		Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
		Message: "The agents cannot be reached right now; please send the message again.",
	}, err)
}

// forget stops a run that nobody follows.
func (s *Server) forget(r *run) {
	ctx, cancel := context.WithTimeout(r.trail.In(context.Background()), storeTimeout)
	defer cancel()
	_ = s.runs.Stop(ctx, r.id) // not there in most cases, and bounded by run_timeout in the others
}

// work drives a run to its end and gives the turn on.
func (s *Server) work(d *driver) {
	ctx, cancel := context.WithTimeout(d.run.trail.In(s.life), s.cfg.RunTimeout)
	defer cancel()
	s.metrics.running.Inc()
	finished := d.drive(ctx)
	s.metrics.running.Dec()
	giveBack := d.turn.leave
	if finished {
		giveBack = d.turn.end
	}
	if err := giveBack(); err != nil {
		d.log.Warn().Err(err).Msg("a turn was not given back; it runs out by itself")
	}
	d.turn.next()
	d.run.end()
	s.retire(d.run)
	if !finished {
		return // the apiserver keeps the run for whoever finishes it
	}
	done, stop := context.WithTimeout(d.run.trail.In(context.Background()), storeTimeout)
	defer stop()
	if err := d.runs.Done(done, d.run.id); err != nil {
		d.log.Debug().Err(err).Msg("the apiserver was not told that a run is stored")
	}
	s.pack(d.run)
}

// pack lets the log of a run that is over shrink to what it needs.
func (s *Server) pack(r *run) {
	ctx, cancel := context.WithTimeout(s.life, storeTimeout)
	defer cancel()
	if err := s.store.Pack(ctx, r.chat, r.id, r.logged()...); err != nil && s.life.Err() == nil {
		s.log.Debug().Err(err).Str("run", r.id).Msg("a run's log was not packed; it goes as it is when its time is over")
	}
}
