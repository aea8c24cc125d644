package turns

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
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/node"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
)

// OneShotRunner runs one-shots: runs without a chat. Nothing is stored. The request carries all context, one client
// gets the events, and its disconnect stops the run. If the model calls a tool of the client, the run ends there. The
// client sends the result with the transcript in a new request.
type OneShotRunner struct {
	*node.Core
	Registry  *runs.Registry
	Runner    *runs.Runner
	Leaser    *Leaser
	Admission *Admission
}

// OneShotPosted handles POST /v1/oneshot.
func (s *OneShotRunner) OneShotPosted(c *gin.Context) (*Admitted, error) {
	var p webapi.OneShotRequest
	if err := api.DecodeKnown(c.Writer, c.Request, node.MaxPost, &p); err != nil {
		return nil, err
	}
	if err := s.checkOneShot(&p); err != nil {
		return nil, err
	}
	chat, err := problem.TenantOf(c).Chat(rand.Text())
	if err != nil {
		return nil, err
	}
	r := runs.NewRun(rand.Text(), chat, "")
	r.OwnCalls = &runs.OwnCalls{}
	r.User, _ = chat.Tenant().User(p.User)
	req := api.RunRequest{
		RunID: r.ID, Message: p.Message, ChatID: r.Chat, AgentVersion: p.AgentVersion, ConversationID: rand.Text(),
		User: p.User, Tools: p.Tools, Wishes: p.Wishes, Instructions: p.Instructions, CanWait: len(p.Tools) > 0, Bare: p.Bare,
		Images: p.Images, ImagesBefore: p.ImagesBefore, Pasted: p.Pasted,
		TimeZone: node.ZoneOf(c.Request.Context(), s.Core, p.TimeZone, r.User),
	}
	if p.AgentVersion == webapi.Master {
		req.Context = p.Context
	} else {
		req.SubagentContexts = map[memory.Agent][]json.RawMessage{memory.Agent(p.AgentVersion): p.Context}
	}
	return s.oneShot(c, r, req, p.Stream)
}

// checkOneShot validates a one-shot, and fills in defaults.
func (s *OneShotRunner) checkOneShot(p *webapi.OneShotRequest) error {
	masters := p.AgentVersion == "" || p.AgentVersion == webapi.Master
	if p.Bare && (!masters || len(p.Tools) > 0) {
		return problem.BadRequest("bare goes with the master, and with no tools.")
	}
	last, err := checkContext(p.Context)
	if err != nil {
		return err
	}
	as := webapi.MessageRequest{Message: p.Message, AgentVersion: p.AgentVersion, User: p.User, Tools: p.Tools,
		Wishes: p.Wishes, Instructions: p.Instructions, Images: p.Images, ImagesBefore: p.ImagesBefore, Pasted: p.Pasted,
		TimeZone: p.TimeZone}
	resultsAnswered := p.Message == "" && last == memory.RoleTool && masters && len(p.Images) == 0
	if resultsAnswered {
		as.Message = last
	}
	_, err = s.Admission.check(&as)
	if p.AgentVersion = as.AgentVersion; !resultsAnswered {
		p.Message = as.Message
	}
	return err
}

// checkContext validates the messages that a client sends as a run's history, and returns the role of the last one, ""
// for none.
func checkContext(context []json.RawMessage) (last string, err error) {
	size, calls := 0, map[string]bool{}
	for i, raw := range context {
		m, err := contextMessage(raw)
		if err != nil {
			return "", problem.BadRequest("context[%d]: %s", i, err)
		}
		for _, c := range m.ToolCalls {
			calls[c.ID] = true
		}
		if m.Role == memory.RoleTool && !calls[m.ToolCallID] {
			return "", problem.BadRequest("context[%d] is the result of a call %.80q that no message before it makes.", i,
				m.ToolCallID)
		}
		last, size = m.Role, size+len(raw)
	}
	if size > node.MaxBody {
		return "", &api.Problem{Status: http.StatusRequestEntityTooLarge, Code: webapi.CodeTooLarge,
			Message: fmt.Sprintf("context has %d bytes, at most %d are taken.", size, node.MaxBody)}
	}
	return last, nil
}

// contextMessage reads a message of a client's context. Unknown members are an error.
func contextMessage(raw json.RawMessage) (m memory.Message, err error) {
	type plain memory.Message // without UnmarshalJSON, which accepts the messages of other programs
	if err := api.UnmarshalKnown(raw, (*plain)(&m)); err != nil {
		return m, errors.New(problem.FromError(err).Message)
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

// oneShot runs a request until it ends or the client disconnects.
func (s *OneShotRunner) oneShot(c *gin.Context, r *runs.Run, req api.RunRequest, stream bool) (*Admitted, error) {
	ctx := c.Request.Context()
	telemetry.Concerns(ctx, r.Chat.String(), r.ID)
	r.Trail = telemetry.FromContext(ctx)
	ctx = runs.BeginSpan(ctx, s.Cfg.Traces, r, req.Message, req.User, "")
	c.Header(webapi.RunID, r.ID)
	stream = stream || problem.AcceptsSSE(c.Request)
	c.Request.Header.Del("Prefer") // an asynchronous client could not get the answer
	c.Request.Header.Del("Last-Event-ID")
	c.Request.URL.RawQuery = ""
	waiting, stop := context.WithTimeout(ctx, s.Cfg.QueueWait)
	defer stop()
	next, err := s.Leaser.Queue.Enter(waiting, r.Chat, runs.PlaceLast, false) // a one-shot counts toward Queue.Chats
	if err != nil {
		return nil, err
	}
	end := func() {
		s.Registry.Mu.Lock()
		delete(s.Registry.OneShots, r.ID)
		s.Registry.Mu.Unlock()
		r.End()
		next()
	}
	s.Registry.Mu.Lock()
	draining := s.Registry.Draining
	if !draining {
		s.Registry.OneShots[r.ID] = r
	}
	s.Registry.Mu.Unlock()
	if draining {
		next()
		return nil, problem.ErrShutdown
	}
	if err := s.Runner.Count(ctx, r); err != nil {
		close(r.Posted)
		end()
		return nil, err
	}
	if s.Cfg.SelfURL != "" {
		req.Memory = s.Runner.Access(r, nil)
		req.Memory.CallsOnly = true
	}
	posting, cancel := context.WithTimeout(ctx, postTimeout(req))
	defer cancel()
	accepted, err := s.Runs.PostRun(posting, req)
	close(r.Posted)
	if err != nil {
		s.Workers.Go(func() { s.Runner.Forget(r) })
		end()
		return nil, node.Unreachable(err)
	}
	life, leave := context.WithTimeout(r.Trail.In(s.Life), s.Cfg.RunTimeout)
	detach := context.AfterFunc(ctx, leave)
	s.Workers.Go(func() {
		defer end()
		defer leave()
		defer detach()
		s.relay(life, r, req.ConversationID, accepted.Events)
	})
	return &Admitted{run: r, stream: stream}, nil
}

// relay forwards the events of a one-shot until it ends or the client disconnects.
func (s *OneShotRunner) relay(ctx context.Context, r *runs.Run, conversation, events string) {
	client, err := s.Runs.ForEvents(events)
	if err != nil {
		client = s.Runs
	}
	s.Metrics.Running.Inc()
	defer s.Metrics.Running.Dec()
	err = s.hear(ctx, r, client, events)
	outcome := r.Log.Outcome()
	if r.Log.Waiting() {
		outcome = webapi.OutcomeWaiting
	}
	done, cancel := context.WithTimeout(r.Trail.In(context.Background()), node.StoreTimeout)
	defer cancel()
	log := r.Trail.Logger(s.Log)
	switch {
	case errors.Is(err, context.Canceled):
		outcome = event.Stopped // the client disconnected
		_ = client.Stop(done, r.ID)
	case err != nil:
		log.Error().Err(err).Msg("a one-shot is closed")
		for _, e := range r.Log.Closing(problem.FromError(err).Failure(), time.Now()) {
			_ = r.Log.Append(e) // the events continue the log's numbers
		}
		outcome = event.Failed
		_ = client.Stop(done, r.ID)
	default: // if this fails, the apiserver forgets the run after a while
		_ = client.Done(done, r.ID, r.Log.Last())
		_ = s.Runs.EraseConversation(done, r.Chat.Tenant(), conversation)
	}
	s.Metrics.Runs.WithLabelValues(outcome).Inc()
	s.Metrics.RunSeconds.WithLabelValues(outcome).Observe(time.Since(r.Began).Seconds())
	log.Info().Str("outcome", outcome).Int64("events", r.Log.Last()).Bool("one_shot", true).Msg("run finished")
}

// hear reads the events of a one-shot. It reconnects until the run ends, or returns an error.
func (s *OneShotRunner) hear(ctx context.Context, r *runs.Run, client *api.Client, events string) error {
	var failing time.Time // start of the current connection failures; zero if there are none
	for {
		last := r.Log.Last()
		err := s.hearOnce(ctx, r, client, events)
		if failed, ok := errors.AsType[runs.FailedError](err); ok {
			return failed.Err
		}
		if r.Log.Done() || r.Log.Waiting() {
			return nil
		}
		if err := s.Runner.Reconnect(ctx, r.Log, err, last, &failing); err != nil {
			if goneErr := new(runs.GoneError); errors.As(err, &goneErr) {
				err = errors.Join(errOneShotLost, err)
			}
			return err
		}
	}
}

var errOneShotLost = api.ProblemOf(event.Fail(event.RunLost, "", 0))

// hearOnce reads events from one connection. An event that cannot be handled is a FailedError.
func (s *OneShotRunner) hearOnce(ctx context.Context, r *runs.Run, client *api.Client, events string) error {
	for chunk, err := range client.Batches(ctx, events, r.Log.Last(), runs.Batch) {
		if err != nil {
			return err
		}
		for _, e := range chunk {
			p, waiting := e.Payload.(*event.RunWaiting)
			if waiting || e.Terminal() {
				r.Counted.Leave() // before the client sees the event
			}
			if waiting {
				err = finishPending(ctx, r, client, e, p)
			} else {
				err = r.Log.Append(e)
			}
			if err != nil {
				return runs.FailedError{Err: err}
			}
		}
	}
	return nil
}

// finishPending ends a one-shot that waits. If it waits only for tools of the client, the client gets the calls. Any
// other wait is denied, because a run without a chat cannot ask a person.
func finishPending(ctx context.Context, r *runs.Run, client *api.Client, e event.Event, p *event.RunWaiting) error {
	if !slices.ContainsFunc(p.Pending, func(w event.Wait) bool { return w.Kind != event.ClientResult }) {
		return r.Log.Append(event.New(e.Head, &event.RunWaiting{Pending: p.Pending, Usage: p.Usage}))
	}
	_ = client.Stop(ctx, r.ID)
	for _, e := range r.Log.Denying("a run without a chat cannot ask a person", time.Now()) {
		if err := r.Log.Append(e); err != nil {
			return err
		}
	}
	return nil
}
