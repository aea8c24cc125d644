package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/access/limit"
	"mneme/access/price"
	"mneme/memory/telemetry"
	"mneme/proxy/ledger"
	"mneme/proxy/redisstore"
	"mneme/proxy/wire"
)

// Names of the pipelines in metrics and the log.
const (
	scopeMain     = "main"
	scopeTeammate = "teammate"
)

// Server is the gateway. Handler serves until Close, which also stops the writer
// of the ledger.
type Server struct {
	config    Config
	limits    Limits
	log       zerolog.Logger
	telemetry *telemetry.Service
	metrics   *metrics

	backends        map[string]*backend
	keyed           map[string]*backend // with another key than theirs, see withKey
	routed          map[string]*route   // by the name of a route or a backend
	active          ActiveBackend
	teammates       map[string]*route
	teammateDefault *route
	embedder        *backend // nil without one

	ledger  *ledger.Ledger
	limiter *limit.Limiter
	agents  *agentMemory // nil: none is kept
	places  *fair.Places // of calls of models at once
	work    *fair.Places // of requests that are read and translated at once

	handler http.Handler
	closed  atomic.Bool
}

// New checks the configuration, every fault of which is in the error, and makes
// the gateway. It connects to nothing.
func New(c Config, log zerolog.Logger) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Prices == nil {
		c.Prices = func() *price.Table { return nil }
	}
	s := &Server{
		config: c, limits: c.Limits.withDefaults(), log: log, telemetry: c.Telemetry,
		backends: map[string]*backend{}, keyed: map[string]*backend{}, routed: map[string]*route{},
		teammates: map[string]*route{}, limiter: c.Shared.Limiter,
		places: fair.New(c.Limits.withDefaults().Calls, callPatience),
		work:   cmp.Or(c.Shared.Work, fair.ForProcessors()),
	}
	if c.Memory.URL != "" {
		s.agents = &agentMemory{AgentMemory: c.Memory, recalled: map[string]map[turnKey]recalled{}}
	}
	if s.telemetry == nil {
		s.telemetry = telemetry.Open("", log)
	}
	s.metrics = newMetrics(s.telemetry)
	hidden := c.secrets()
	for _, name := range slices.Sorted(maps.Keys(c.Backends)) {
		b := c.Backends[name]
		opened, err := s.open(name, b)
		if err != nil {
			s.closeBackends()
			return nil, err
		}
		opened.secrets = hidden
		s.backends[name] = opened
	}
	if err := openRoutes(s); err != nil {
		s.closeBackends()
		return nil, err
	}
	if s.active = c.Shared.Active; s.active == nil {
		s.active = redisstore.NewActive(nil, c.Active, s.knows, s.telemetry.Often)
	}
	s.ledger = ledger.New(ledger.Config{
		Remote: c.Shared.Turns, TTL: c.TurnsTTL, ScopeTurns: c.MaxTurns, Patience: c.TurnsWait, Log: s.telemetry.Often,
	})
	if s.limiter == nil {
		s.limiter = limit.New(nil, limit.Options{})
	}
	s.teammateDefault = s.routed[c.teammateBackend()]
	s.embedder = s.backends[c.EmbeddingsBackend]
	for name, b := range c.Teammates {
		s.teammates[name] = s.routed[b]
	}
	if provider := c.providerBackend(); provider != "" {
		b := *s.backends[provider]
		b.noRetry = true // the CLI retries its model calls itself
		s.teammates[copilotTeammate] = &route{provider, []choice{{&b, 0}}}
	}
	s.metrics.watch(s)
	s.handler = s.routes()
	return s, nil
}

// LogBackends logs each backend's vendor profile, with the reason for it, and the order of each route's choices.
func (s *Server) LogBackends() {
	for _, name := range slices.Sorted(maps.Keys(s.backends)) {
		b := s.backends[name]
		s.log.Debug().Str("backend", name).Str("kind", b.config.Kind).Str("profile", b.vendor).Str("why", b.why).
			Msg("the backend follows the rules of this vendor profile")
	}
	for _, name := range slices.Sorted(maps.Keys(s.config.Routes)) {
		s.log.Info().Str("route", name).Strs("choices", s.routed[name].names()).Msg("a route asks its choices in this order")
	}
}

// knows says whether there is a route or a backend of the name.
func (s *Server) knows(name string) bool { return s.routed[name] != nil }

// Handler serves the endpoints, the admin group and the health routes.
func (s *Server) Handler() http.Handler { return s.handler }

// closing bounds how long Close waits for the shared store.
const closing = 3 * time.Second

// Drain makes the gateway report that it drains. Requests that are being answered
// go on; the HTTP server waits for them.
func (s *Server) Drain() { s.closed.Store(true) }

// Close writes what the ledger still holds and drops idle connections. No request
// may be served any more.
func (s *Server) Close() error {
	s.Drain()
	s.closeBackends()
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	return s.ledger.Close(ctx)
}

func (s *Server) closeBackends() {
	for _, backends := range []map[string]*backend{s.backends, s.keyed} {
		for _, b := range backends {
			b.close()
		}
	}
}

func (s *Server) routes() http.Handler {
	e := s.telemetry.Edge(refuse, func(c *gin.Context) { stamp(c.Writer) }, s.letIn)
	e.IDHeader = requestIDHeader
	e.UseRawPath = false // no name in a path holds a slash
	s.endpoints(e.Group(""), scopeMain, s.main)
	s.endpoints(e.Group("/teammate"), scopeTeammate, s.teammate)
	s.endpoints(e.Group("/teammate/:name", s.checkTeammate), scopeTeammate, s.teammate)

	e.DELETE("/v1/conversations", s.eraseTenant)
	e.DELETE("/v1/conversations/:id", needConversationID, s.eraseConversation)
	e.PUT("/v1/conversations/:id/keep", needConversationID, s.keepConversation)
	admin := e.Group("/admin", operatorsOnly)
	admin.GET("/backend", s.showBackend)
	admin.PUT("/backend", s.switchBackend)
	e.GET("/admin/usage", func(c *gin.Context) {
		refuseRoute(c, http.StatusGone, "this route was removed in 0.3: use GET /v1/usage of webmemory or mneme usage")
	})
	e.HEAD("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	for _, path := range []string{"/health", "/healthz"} {
		e.GET(path, func(c *gin.Context) { c.JSON(http.StatusOK, telemetry.Readiness{Status: "ok"}) })
	}
	e.GET("/readyz", s.ready)
	return e
}

// ready says whether requests should be sent here, and why not. A gateway that goes on
// without its store, or without one of its backends, is degraded.
func (s *Server) ready(c *gin.Context) {
	out, status := telemetry.Readiness{Status: "ready"}, http.StatusOK
	because := func(state, reason string) { out.Status, out.Reasons = state, append(out.Reasons, reason) }
	if s.ledger.Degraded() {
		because("degraded", "Redis does not answer, or refuses commands, as the log says: conversations are kept in this "+
			"process until it takes them.")
	}
	if reason := s.config.Gate.LossMessage(); reason != "" {
		because("degraded", reason)
	}
	for _, name := range slices.Sorted(maps.Keys(s.backends)) {
		if cli := s.backends[name].cli; cli != nil && cli.supervisor.Err() != nil {
			because("degraded", fmt.Sprintf("The Copilot CLI of the backend %s does not answer.", name))
		}
		if s.backends[name].circuitOpen() {
			because("degraded", fmt.Sprintf("The backend %s failed too often and is left alone for a moment.", name))
		}
	}
	if s.closed.Load() {
		because("draining", "The gateway is stopping.")
		status = http.StatusServiceUnavailable
	}
	c.JSON(status, out)
}

// endpoints registers the endpoints under a prefix; its requests take the pipeline p,
// with the name scope.
func (s *Server) endpoints(g *gin.RouterGroup, scope string, p pipeline) {
	handle := func(d endpoint, p pipeline) gin.HandlerFunc {
		return func(c *gin.Context) {
			telemetry.MarkLogged(c.Request.Context())
			s.serve(c.Writer, c.Request, d, p, scope, c.Param("name"))
		}
	}
	g.POST("/v1/messages", handle(messagesEndpoint, p))
	g.POST("/v1/messages/count_tokens", handle(countEndpoint, p))
	g.POST("/v1/chat/completions", handle(chatEndpoint, p))
	g.POST("/v1/responses", handle(responsesEndpoint, p))
	g.GET("/v1/responses", refuseSocket)
	g.GET("/v1/responses/:id", func(c *gin.Context) { s.showResponse(c, scope) })
	g.DELETE("/v1/responses/:id", func(c *gin.Context) { s.deleteResponse(c, scope) })
	g.GET("/v1/responses/:id/input_items", func(c *gin.Context) { s.listInput(c, scope) })
	for _, path := range []string{"/v1/responses/compact", "/v1/responses/input_tokens", "/v1/responses/:id/cancel",
		"/v1/conversations"} {
		g.POST(path, refuseUnserved)
	}
	g.POST("/v1/embeddings", handle(embeddingsEndpoint, s.embeddings))
	g.GET("/v1/models", func(c *gin.Context) { s.listModels(c, scope) })
	g.GET("/v1/models/*id", func(c *gin.Context) { s.showModel(c, scope) })
}

// refuseSocket answers clients of Responses that try a WebSocket first. Of all refusals 426 is the one at which they
// send the request by POST at once.
func refuseSocket(c *gin.Context) {
	if c.GetHeader("Upgrade") == "" {
		c.Header("Allow", http.MethodPost)
		refuse(c, telemetry.ErrNoMethod)
		return
	}
	c.Header("Upgrade", "HTTP/1.1")
	c.Header("Connection", "Upgrade")
	refuseRoute(c, http.StatusUpgradeRequired, "there are no WebSockets here: send the request by POST")
}

func (s *Server) checkTeammate(c *gin.Context) {
	name := c.Param("name")
	_, exists := s.config.Teammates[name]
	switch {
	case name == "v1" && !exists: // /teammate/v1/v1/messages
		refuse(c, telemetry.ErrNoRoute)
	case !teammateName.MatchString(name):
		refuseRoute(c, http.StatusNotFound, fmt.Sprintf("%q is no subagent's name (1 to 64 characters of a-z 0-9 _ -)", name))
	default:
		return
	}
	c.Abort()
}

// slip says what is wrong with the base URL of a client that asks for a path; empty if nothing is seen.
// Some clients add /v1 to it and some do not.
func slip(path string) string {
	if strings.HasSuffix(path, ":generateContent") || strings.HasSuffix(path, ":streamGenerateContent") {
		return "Google's own API is not, so use a client of OpenAI's chat completions; "
	}
	if strings.Contains(path, "/v1/v1/") {
		return "the client adds /v1 by itself, so leave it out of its base URL; "
	}
	if strings.Contains(path, "/v1/") {
		return ""
	}
	for _, end := range []string{"/messages", "/messages/count_tokens", "/chat/completions", "/responses", "/embeddings",
		"/models"} {
		if strings.HasSuffix(path, end) {
			return "the client does not add /v1 by itself, so end its base URL in /v1; "
		}
	}
	return ""
}

// refuse answers where there is no route, and for a handler that panicked.
func refuse(c *gin.Context, err error) {
	switch {
	case errors.Is(err, telemetry.ErrNoRoute):
		refuseRoute(c, http.StatusNotFound, fmt.Sprintf("%s is not served: %sPOST /v1/messages, "+
			"/v1/messages/count_tokens, /v1/chat/completions, /v1/responses and /v1/embeddings are, also under /teammate and "+
			"/teammate/<name>",
			c.Request.URL.Path, slip(c.Request.URL.Path)))
	case errors.Is(err, telemetry.ErrNoMethod):
		refuseRoute(c, http.StatusMethodNotAllowed, fmt.Sprintf("%s takes %s, not %s", c.Request.URL.Path,
			c.Writer.Header().Get("Allow"), c.Request.Method))
	default:
		refuseRoute(c, http.StatusInternalServerError, "the gateway failed; its log has the cause under this request's id")
	}
}

// refuseRoute answers where there is no endpoint.
func refuseRoute(c *gin.Context, status int, message string) {
	c.Data(status, "application/json", wire.Failure{Status: status, Message: message}.Body(guessDialect(c.Request)))
}

// Refuse answers a request that is turned away before it comes to the Handler, in
// the dialect of its client.
func Refuse(w http.ResponseWriter, r *http.Request, f wire.Failure) {
	stamp(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_, _ = w.Write(f.Body(guessDialect(r))) // a client that is gone needs no answer
}
