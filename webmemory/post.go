package webmemory

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
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
)

// maxBody bounds a request's body, in bytes.
const maxBody = 2 << 20

// masterVersion is the agent_version that asks the master.
const masterVersion = "master"

// post is a message as it comes in.
type post struct {
	Message      string       `json:"message"`
	AgentVersion string       `json:"agent_version"`
	Stream       bool         `json:"stream"`
	ChatID       *memory.Chat `json:"chat_id"`
}

// postMessage is POST /v1/chats/{chat}/messages.
func (s *Server) postMessage(c *gin.Context) error {
	chat, err := memory.ParseChat(c.Param("chat"))
	if err != nil {
		return err
	}
	var p post
	if err := api.DecodeBody(c.Writer, c.Request, maxBody, &p); err != nil {
		return err
	}
	if p.ChatID != nil && *p.ChatID != chat {
		return badRequest("bad_request", "chat_id in the body (%s) is not the chat of the path (%s).", *p.ChatID, chat)
	}
	return s.answer(c, chat, p, p.Stream || acceptsSSE(c.Request))
}

// postChat is POST /chat, the shape of the original service; it always streams.
func (s *Server) postChat(c *gin.Context) error {
	var p post
	if err := api.DecodeBody(c.Writer, c.Request, maxBody, &p); err != nil {
		return err
	}
	if p.ChatID == nil {
		return badRequest("bad_request", "chat_id is missing: it is a string or an integer.")
	}
	return s.answer(c, *p.ChatID, p, true)
}

func acceptsSSE(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(v string) bool {
		return strings.Contains(v, "text/event-stream")
	})
}

func (s *Server) answer(c *gin.Context, chat memory.Chat, p post, stream bool) error {
	if err := s.check(&p); err != nil {
		return err
	}
	r, err := s.begin(c.Request.Context(), chat, p, c.GetHeader("Idempotency-Key"))
	if err != nil {
		return err
	}
	c.Header("Mneme-Run-Id", r.id)
	if stream {
		api.ServeEvents(c.Writer, c.Request, r.log, api.Pace{Heartbeat: s.cfg.Heartbeat})
		return nil
	}
	out, err := r.collect(c.Request.Context())
	if err != nil {
		return err
	}
	api.WriteJSON(c.Writer, http.StatusOK, out)
	return nil
}

// check refuses what needs no turn to be refused.
func (s *Server) check(p *post) error {
	if strings.TrimSpace(p.Message) == "" {
		return badRequest("bad_request", "message is missing or empty.")
	}
	if len(p.Message) > memory.MaxMessage {
		return &api.Problem{
			Status: http.StatusRequestEntityTooLarge, Code: "too_large",
			Message: fmt.Sprintf("A message may have %d bytes; this one has %d.", memory.MaxMessage, len(p.Message)),
		}
	}
	p.AgentVersion = cmp.Or(p.AgentVersion, masterVersion)
	if p.AgentVersion != masterVersion && !slices.Contains(s.cfg.Agents, memory.Agent(p.AgentVersion)) {
		return badRequest("unknown_agent", "There is no agent_version %.80q; there are: master%s.", p.AgentVersion, joined(s.cfg.Agents))
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

// begin gives the run of a post: a new one, or the one that an earlier post with
// the same key began. It returns once the apiserver has accepted the run; a
// post refused before that has left nothing behind.
func (s *Server) begin(ctx context.Context, chat memory.Chat, p post, key string) (*run, error) {
	sum := sha256.Sum256([]byte(p.AgentVersion + "\x00" + p.Message))
	id := runID(chat, key)
	r := &run{
		id: id, chat: chat, body: hex.EncodeToString(sum[:]),
		log: api.NewLog(id, api.Limits{}), posted: make(chan struct{}), done: make(chan struct{}),
	}
	for {
		other, err := s.register(r)
		if err != nil {
			return nil, err
		}
		if other == nil {
			break
		}
		if joined, err := other.join(ctx, r); joined != nil || err != nil {
			return joined, err
		}
		// The earlier post was refused; this one may still run.
	}
	err := s.start(ctx, r, p)
	if err != nil {
		s.mu.Lock()
		delete(s.live, r.id)
		s.mu.Unlock()
		close(r.done)
	}
	close(r.posted)
	return r, err
}

// runID is random, or follows from the chat and the client's key, so that a
// repeated post finds its run.
func runID(chat memory.Chat, key string) string {
	if key == "" {
		return rand.Text()
	}
	sum := sha256.Sum256([]byte(string(chat) + "\x00" + key))
	return base32.StdEncoding.EncodeToString(sum[:])[:26]
}

// register enters a run, unless one with its id is there already.
func (s *Server) register(r *run) (other *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil, &api.Problem{
			Status: http.StatusServiceUnavailable, Code: "shutting_down", Retryable: true,
			Message: "The service is shutting down; please send the message again.",
		}
	}
	if other := s.live[r.id]; other != nil {
		return other, nil
	}
	s.live[r.id] = r
	return nil, nil
}

// join waits until the first post with this key is accepted. Neither run nor
// error means that it was refused.
func (r *run) join(ctx context.Context, again *run) (*run, error) {
	if r.body != again.body {
		return nil, &api.Problem{
			Status: http.StatusUnprocessableEntity, Code: "idempotency_key_reused",
			Message: "This Idempotency-Key was used with another message.",
		}
	}
	select {
	case <-r.posted:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-r.done:
		if r.log.Last() == 0 {
			return nil, nil
		}
	default:
	}
	return r, nil
}

// start takes the chat's turn, posts the run to the apiserver and leaves it to a
// driver.
func (s *Server) start(ctx context.Context, r *run, p post) error {
	waiting, cancel := context.WithTimeout(ctx, s.cfg.QueueWait)
	defer cancel()
	leave, err := s.queue.enter(ctx, r.chat)
	if err != nil {
		return err
	}
	t, err := takeTurn(waiting, s.store, s.cache, r.chat, s.cfg.Agents)
	if err != nil {
		leave()
		return err
	}
	accepted, err := s.ask(ctx, r, p, t)
	if err != nil {
		if ending := t.end(); ending != nil {
			s.log.Warn().Err(ending).Msg("a turn was not given back; it runs out by itself")
		}
		leave()
		return err
	}
	at, err := s.runs.At(accepted.Events)
	if err != nil {
		at = s.runs
	}
	r.mu.Lock()
	r.at = at
	r.mu.Unlock()
	t.run = r.id
	d := &driver{
		server: s, run: r, turn: t, runs: at, events: accepted.Events, fold: event.NewHistories(r.chat, t),
		log: s.log.With().Str("run", r.id).Str("chat", string(r.chat)).Logger(),
	}
	s.workers.Go(func() { s.work(d, leave) })
	return nil
}

// ask posts the run with what the memory holds.
func (s *Server) ask(ctx context.Context, r *run, p post, t *turn) (api.RunAccepted, error) {
	chat := t.history(memory.ChatKey(r.chat))
	if chat.Size()+len(p.Message) > memory.MaxHistory {
		return api.RunAccepted{}, fmt.Errorf("%w: delete a part of it", memory.ErrFull)
	}
	s.sessions.write(r.chat, "request: %s", p.Message)
	req := api.RunRequest{
		RunID: r.id, Message: p.Message, ChatID: r.chat, AgentVersion: p.AgentVersion,
		ConversationID:   t.Conversation,
		Context:          chat.Window(s.cfg.ContextWindow),
		SubagentContexts: map[memory.Agent][]json.RawMessage{},
	}
	for _, a := range s.cfg.Agents {
		h := t.history(memory.SubagentKey(a, r.chat))
		req.SubagentContexts[a] = h.Window(s.cfg.SubagentContextWindow)
		s.sessions.write(r.chat, "history of %s loaded: %d messages", a, h.Len())
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	accepted, err := s.runs.PostRun(ctx, req)
	if err != nil {
		// It may have arrived all the same; without a reader it must not go on.
		go s.forget(r.id)
		return accepted, asking(err)
	}
	return accepted, nil
}

// asking says a failure to reach the apiserver in a client's words.
func asking(err error) error {
	var problem *api.Problem
	if errors.As(err, &problem) && (problem.Status == http.StatusServiceUnavailable || problem.Status == http.StatusBadRequest) {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: %w", &api.Problem{
		Status: http.StatusServiceUnavailable, Code: "apiserver_unavailable", Retryable: true,
		Message: "The agents cannot be reached right now; please send the message again.",
	}, err)
}

// forget stops a run that nobody follows.
func (s *Server) forget(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	_ = s.runs.Stop(ctx, id) // not there in most cases, and bounded by run_timeout in the others
}

// work drives a run to its end and gives the turn on.
func (s *Server) work(d *driver, leave func()) {
	ctx, cancel := context.WithTimeout(s.life, s.cfg.RunTimeout)
	defer cancel()
	d.drive(ctx)
	if err := d.turn.end(); err != nil {
		d.log.Warn().Err(err).Msg("a turn was not given back; it runs out by itself")
	}
	leave()
	d.run.mu.Lock()
	d.run.ended = time.Now()
	d.run.mu.Unlock()
	close(d.run.done)
	done, stop := context.WithTimeout(context.Background(), storeTimeout)
	defer stop()
	if err := d.runs.Done(done, d.run.id); err != nil {
		d.log.Debug().Err(err).Msg("the apiserver was not told that a run is stored")
	}
}
