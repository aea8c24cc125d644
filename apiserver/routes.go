package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/apiserver/api"
	"mneme/master"
	"mneme/memory"
	"mneme/memory/telemetry"
	"mneme/subagent"
	"mneme/subagent/external"
	"mneme/subagent/loop"
	"mneme/subagent/note"
)

func (s *Server) routes() http.Handler {
	e := s.svc.Edge(fail, s.letIn)
	e.POST("/v1/runs", e.Answered(s.postRun))
	e.GET("/v1/runs/:run/events", e.Answered(s.ofRun(s.getEvents)))
	e.POST("/v1/runs/:run/stop", e.Answered(s.ofRun(s.stopRun)))
	e.DELETE("/v1/runs/:run", e.Answered(s.ofRun(s.deleteRun)))
	e.DELETE("/v1/chats/:chat", e.Answered(s.deleteChat))
	e.DELETE("/v1/chats/:chat/runs", e.Answered(s.deleteRuns))
	e.DELETE("/v1/conversations/:id", e.Answered(s.deleteConversation))
	e.DELETE("/v1/tenant", e.Answered(s.deleteTenant))
	e.GET("/v1/tenant/export", e.Answered(s.documents.exportTenant))
	s.documents.routes(e)
	e.POST("/v1/embeddings", e.Answered(s.postEmbeddings))
	e.GET("/v1/subagents", e.Answered(s.getSubagents))
	s.toolRoutes(e)
	e.GET("/healthz", e.Answered(s.getHealth))
	e.GET("/readyz", e.Answered(s.getReady))
	return e
}

// rights say which callers may ask: webmemory alone, where the internal secret is asked for.
var rights = access.Rights{
	"ANY *":        access.Internal,
	"GET /healthz": access.Open,
	"GET /readyz":  access.Open,
	"GET /metrics": access.Open,
}

// letIn lets a request in before its body is read, or answers it.
func (s *Server) letIn(c *gin.Context) {
	r, err := s.cfg.Gate.Admit(c.Request, rights, c.FullPath())
	if err == nil {
		c.Request = r
		return
	}
	c.Abort()
	if no, ok := errors.AsType[*access.Refusal](err); ok {
		no.SetHeader(c.Writer.Header())
		err = &api.Problem{Status: no.Status, Code: no.Code, Message: no.Message}
	}
	_ = c.Error(err) // for the request's line in the log
	fail(c, err)
}

// fail is the one place where an error becomes an HTTP answer.
func fail(c *gin.Context, err error) {
	cause := api.ErrInternal
	switch {
	case errors.Is(err, telemetry.ErrNoRoute):
		cause = &api.Problem{Status: http.StatusNotFound, Code: "not_found", Message: fmt.Sprintf("There is nothing at %s.",
			c.Request.URL.Path)}
	case errors.Is(err, telemetry.ErrNoMethod):
		cause = api.NoMethod(c.Request, c.Writer.Header())
	default:
		errors.As(err, &cause)
	}
	p := *cause
	p.RunID = telemetry.FromContext(c.Request.Context()).Run
	api.WriteProblem(c.Writer, &p)
}

func (s *Server) postRun(c *gin.Context) error {
	body, err := api.DecodeRun(c.Writer, c.Request, s.cfg.MaxBody)
	if err != nil {
		return err
	}
	if body.AgentVersion == "" && body.Resume == nil {
		body.AgentVersion = master.Version
	}
	if err := body.Validate(); err != nil {
		return err
	}
	body.ChatID, _ = tenantOf(c).Chat(body.ChatID.ID()) // which is an id
	telemetry.Concerns(c.Request.Context(), body.ChatID.String(), body.RunID)
	req, events, err := s.admit(c.Request.Context(), body)
	if err != nil {
		return err
	}
	r, err := s.start(c.Request.Context(), req, digest(body), events)
	if err != nil {
		return err
	}
	return api.Answer(c.Writer, http.StatusAccepted,
		api.RunAccepted{RunID: r.id, Events: s.base(c.Request) + "/v1/runs/" + r.id + "/events"}, nil)
}

// admit makes of a valid body what is to run, with the log of its events.
func (s *Server) admit(ctx context.Context, body api.RunRequest) (master.Request, *api.Log, error) {
	if body.Resume != nil {
		return s.resumed(ctx, body)
	}
	if !s.hasAgent(body.AgentVersion) {
		return master.Request{}, nil, &api.Problem{Status: http.StatusBadRequest, Code: "unknown_agent",
			Message: fmt.Sprintf("There is no agent %.80q; agent_version is %q or the name of a subagent.", body.AgentVersion,
				master.Version)}
	}
	if err := s.checkTools(body); err != nil {
		return master.Request{}, nil, err
	}
	req, err := s.request(body)
	return req, api.NewLog(body.RunID, s.cfg.Log), err
}

func (s *Server) hasAgent(version string) bool {
	matches := func(info api.SubagentInfo) bool { return string(info.Name) == version }
	return version == master.Version || slices.ContainsFunc(s.subagents(), matches)
}

// request decodes the histories of a valid body, and checks its images, which costs too much to do twice.
func (s *Server) request(body api.RunRequest) (master.Request, error) {
	req := master.Request{
		RunID: body.RunID, Chat: body.ChatID, Message: body.Message, AgentVersion: body.AgentVersion,
		Conversation: body.ConversationID, RetryOf: body.RetryOf, MemoryReset: body.MemoryReset,
		Subagents: map[memory.Agent][]memory.Message{}, User: body.User, Approved: body.Approved,
		Instructions: body.Instructions, Pasted: body.Pasted, Metadata: body.Metadata, CanWait: body.CanWait, Bare: body.Bare,
		Format: body.ResponseFormat,
	}
	req.Images = loop.Images{Own: body.Images, Previous: body.ImagesBefore}
	req.Zone, _ = api.ReadZone(body.TimeZone) // no message is lost because of it
	var err error
	if req.ImageRefs, err = api.CheckImages(body.Images, body.ImagesBefore); err != nil {
		return req, err
	}
	req.Notes = note.Notes{User: body.UserNotes, Chat: body.Notes, Subagents: body.SubagentNotes}
	_, noUser := body.ChatID.Tenant().User(body.User)
	req.Notes.OfUser = noUser == nil
	if body.Memory != nil {
		mem := *body.Memory
		mem.Client = s.cfg.Memory
		if req.Calls = mem; !mem.CallsOnly {
			req.Memory, req.Notes.Remember, req.Notes.Forget = mem, mem.Remember, mem.Forget
		}
	}
	if req.Context, err = history("context", body.Context); err != nil {
		return req, err
	}
	for name, raw := range body.SubagentContexts {
		if req.Subagents[name], err = history("subagent_contexts."+string(name), raw); err != nil {
			return req, err
		}
	}
	for _, t := range body.Tools {
		req.Tools = append(req.Tools, external.Definition{Name: t.Name, Description: t.Description, Parameters: t.Parameters})
		if body.ToolChoice == t.Name || body.ToolChoice == api.AnyTool {
			req.First = append(req.First, t.Name)
		}
	}
	if req.Memory != nil || body.CanWait { // else it cannot wait
		req.Posted = posted(body, req)
	}
	return req, nil
}

func history(field string, raw []json.RawMessage) ([]memory.Message, error) {
	messages, err := memory.Decode(raw)
	if err != nil {
		return nil, api.BadRequest(fmt.Errorf("bad %s: %w", field, err))
	}
	return messages, nil
}

// digest tells requests apart, however their JSON is laid out.
func digest(body api.RunRequest) [32]byte {
	raw, err := body.MarshalJSON()
	if err != nil {
		panic(fmt.Sprintf("apiserver: a decoded request does not encode: %v", err))
	}
	return sha256.Sum256(raw)
}

// base is the URL under which the caller reaches this very process. Where nothing is
// configured that is the address at which the connection arrived: the caller may have
// asked for a name that stands for several processes. A connection over loopback came
// from this machine, perhaps through a tunnel, and its name is kept.
func (s *Server) base(r *http.Request) string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || local.IP.IsLoopback() {
		return scheme + r.Host
	}
	return scheme + local.String()
}

// ofRun returns the handler of a route with the run of its path.
func (s *Server) ofRun(h func(*gin.Context, *run) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		r, err := s.find(c.Param("run"))
		if err != nil {
			return err
		}
		telemetry.Concerns(c.Request.Context(), r.chat.String(), r.id)
		return h(c, r)
	}
}

func (s *Server) getEvents(c *gin.Context, r *run) error {
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	api.ServeEvents(c.Writer, c.Request, r.log, api.Pace{})
	return nil
}

// stopTime is how long the answer to a stop waits for the run to end, or to wait for an answer all the same.
const stopTime = time.Second

func (s *Server) stopRun(c *gin.Context, r *run) error {
	r.cancel(subagent.ErrStopped)
	select {
	case <-r.done:
	case <-time.After(stopTime):
	case <-c.Request.Context().Done():
	}
	if r.log.Waiting() {
		return api.ErrWaits
	}
	return api.Answer(c.Writer, http.StatusNoContent, nil, nil)
}

// deleteRun is webmemory saying that it has stored everything of a run.
func (s *Server) deleteRun(c *gin.Context, r *run) error {
	if !r.log.Done() && !r.log.Waiting() {
		return errNotOver
	}
	last, err := strconv.ParseInt(c.Query("last"), 10, 64)
	if err == nil && r.log.Last() > last { // it was resumed since
		return api.Answer(c.Writer, http.StatusNoContent, nil, nil)
	}
	// Its last event can be read a moment before the agent returns.
	if err := s.await(c.Request.Context(), r); err != nil {
		return err
	}
	s.mu.Lock()
	s.drop(r)
	s.mu.Unlock()
	return api.Answer(c.Writer, http.StatusNoContent, nil, nil)
}

func (s *Server) deleteChat(c *gin.Context) error {
	chat, err := s.endRuns(c)
	if err != nil {
		return err
	}
	dropped, err := s.documents.dropChat(c.Request.Context(), chat)
	return api.Answer(c.Writer, http.StatusOK, api.ChatErased{Documents: dropped}, err)
}

// deleteRuns is webmemory saying that nothing of a chat's runs may be kept; its documents stay.
func (s *Server) deleteRuns(c *gin.Context) error {
	_, err := s.endRuns(c)
	return api.Answer(c.Writer, http.StatusNoContent, nil, err)
}

// tenantOf is the tenant of a request's data: webmemory says it.
func tenantOf(c *gin.Context) memory.Tenant { return access.FromContext(c.Request.Context()).Tenant }

// endRuns stops the runs of the chat in the path, and forgets them.
func (s *Server) endRuns(c *gin.Context) (memory.Chat, error) {
	chat, err := tenantOf(c).Chat(c.Param("chat"))
	if err != nil {
		return chat, api.BadRequest(err)
	}
	runs := s.ofChat(chat)
	for _, r := range runs {
		r.cancel(subagent.ErrStopped)
	}
	if err := s.await(c.Request.Context(), runs...); err != nil {
		return chat, err
	}
	s.erase(runs...)
	return chat, nil
}

var errGatewayAway = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: "gateway_unavailable", Retryable: true, RetryAfter: 2 * time.Second,
	Message: "The gateway cannot be reached right now, so nothing was erased; please try again.",
}

// deleteConversation passes the end of a conversation on to the gateway.
func (s *Server) deleteConversation(c *gin.Context) error {
	id := c.Param("id")
	if err := api.ValidConversation(id); err != nil {
		return err
	}
	if erase := s.cfg.EraseConversation; erase != nil {
		if err := erase(c.Request.Context(), id); err != nil {
			return fmt.Errorf("%w: %w", errGatewayAway, err)
		}
	}
	return api.Answer(c.Writer, http.StatusNoContent, nil, nil)
}

func (s *Server) getSubagents(c *gin.Context) error {
	out := api.SubagentList{Subagents: append([]api.SubagentInfo{}, s.subagents()...)}
	return api.Answer(c.Writer, http.StatusOK, out, nil)
}

func (s *Server) getHealth(c *gin.Context) error {
	return api.Answer(c.Writer, http.StatusOK, telemetry.Readiness{Status: "ok"}, nil)
}

// getReady says whether runs should be sent here, and why not.
func (s *Server) getReady(c *gin.Context) error {
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	out, status := readiness{Readiness: telemetry.Readiness{Status: "ready"}, Documents: s.documents.lag(),
		ToolServersAway: s.toolServersAway(c.Request.Context())}, http.StatusOK
	switch {
	case draining:
		out.Readiness, status = telemetry.Readiness{Status: "draining", Reasons: []string{errDraining.Message}},
			errDraining.Status
	case !s.documents.ready():
		out.Readiness, status = telemetry.Readiness{Status: "starting", Reasons: []string{errStarting.Message}},
			errStarting.Status
	}
	return api.Answer(c.Writer, status, out, nil)
}

// readiness answers GET /readyz.
type readiness struct {
	telemetry.Readiness
	Documents *documentsLag `json:"documents,omitempty"` // while changes of documents are not applied here
	// ToolServersAway are servers with tools that cannot be called at the moment. Runs go on without them.
	ToolServersAway []toolServerAway `json:"tool_servers_away,omitempty"`
}

// documentsLag is how far what searches find here is behind the store.
type documentsLag struct {
	Changes int64   `json:"behind"`  // changes, of the collection with the most
	Seconds float64 `json:"seconds"` // for how long something has been missing
}

// maxEmbed bounds the body of a request for vectors, in bytes.
const maxEmbed = 2 << 20

// postEmbeddings places texts for searches of what was said.
func (s *Server) postEmbeddings(c *gin.Context) error {
	if s.cfg.Embed == nil {
		return &api.Problem{Status: http.StatusNotFound, Code: "no_embeddings",
			Message: "No embedding model is configured here: set retrieval.embeddings.model."}
	}
	var body api.EmbedRequest
	if err := api.DecodeBody(c.Writer, c.Request, maxEmbed, &body); err != nil {
		return err
	}
	if n := len(body.Texts); n == 0 || n > api.MaxEmbedTexts || slices.Contains(body.Texts, "") {
		return api.BadRequest(fmt.Errorf("texts has %d entries; send 1 to %d, none of them empty", n, api.MaxEmbedTexts))
	}
	vectors, err := s.cfg.Embed(c.Request.Context(), body.Texts)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoVectors, err)
	}
	return api.Answer(c.Writer, http.StatusOK, api.Embedded{Vectors: vectors}, nil)
}

var errNoVectors = &api.Problem{Status: http.StatusBadGateway, Code: "no_vectors", Retryable: true,
	Message: "The embedding model did not answer."}
