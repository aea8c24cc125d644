package webmemory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/access"
	"mneme/access/fair"
	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
	"mneme/webmemory/chats"
	"mneme/webmemory/erase"
	"mneme/webmemory/node"
	"mneme/webmemory/past"
	"mneme/webmemory/problem"
	"mneme/webmemory/runs"
	"mneme/webmemory/turns"
	"mneme/webmemory/web"
)

// routes is the router, with the parts that handle its routes.
type routes struct {
	*node.Core
	rights        access.Rights // scopes by route
	entries       map[string]string
	registry      *runs.Registry
	rewinder      *erase.Rewinder
	tombstones    *erase.Tombstones
	toolCalls     *runs.ToolCalls
	searcher      *past.Searcher
	streams       *runs.Streams
	admission     *turns.Admission
	resumer       *turns.Resumer
	monitor       *monitor
	eraseRoutes   *chats.EraseRoutes
	redactRoutes  *chats.RedactRoutes
	rewindRoutes  *chats.RewindRoutes
	portable      *chats.Portable
	noteRoutes    *chats.NoteRoutes
	keyring       *keyring
	tenancy       *chats.Tenancy
	oneShotRunner *turns.OneShotRunner
	historyRoutes *past.HistoryRoutes
	traceRoutes   *runs.TraceRoutes
	chatList      *chats.Lists
	auditor       *auditor
	heardRoutes   *turns.HeardRoutes
}

// router returns the router for the table of acts.
func (s *routes) router() http.Handler {
	r, acts := s.Telemetry.Edge(s.fail, s.letIn, s.audit), s.acts()
	s.rights, s.entries = byName(acts)
	for _, a := range acts {
		method, path, _ := strings.Cut(a.does, " ")
		a.answer = s.fairly(a)
		if a.answer != nil && s.Cfg.Cold.Store != nil && readsChat(path) {
			a.answer = s.Tier.Awake(a.answer)
		}
		switch {
		case a.answer == nil:
		case method == "ANY":
			r.Any(path, r.Answered(a.answer))
		default:
			r.Handle(method, path, r.Answered(a.answer))
		}
	}
	return r
}

// fairly returns a's handler within its tenant's fair share. A route that changes the memory holds a place for the
// whole request, other routes while they read the body. Internal routes hold none, because processes would wait for
// each other.
func (s *routes) fairly(a act) func(*gin.Context) error {
	if a.answer == nil || a.scope == access.Internal {
		return a.answer
	}
	_, path, _ := strings.Cut(a.does, " ")
	writes := changesMemory(a.scope, path)
	return func(c *gin.Context) error {
		c.Request = c.Request.WithContext(fair.With(c.Request.Context(), s.Work, problem.TenantOf(c)))
		if !writes {
			return a.answer(c)
		}
		return fair.Share(c.Request.Context(), func(ctx context.Context) error {
			c.Request = c.Request.WithContext(ctx)
			return a.answer(c)
		})
	}
}

// changesMemory reports whether a route itself changes the memory. OpenAI-compatible routes call other routes. The
// erasure of a user takes a place per chat.
func changesMemory(scope access.Scope, path string) bool {
	return scope == access.InternalChat ||
		scope == access.MemoryWrite && (strings.HasPrefix(path, "/v1/chats/") || strings.HasPrefix(path, "/v1/users/:user/"))
}

// readsChat reports whether a route needs the path's chat in Redis. OpenAI-compatible and UI routes call other routes,
// the apiserver stores documents, and most internal routes need only local state.
func readsChat(path string) bool {
	return strings.HasPrefix(path, "/v1/chats/:chat") && !strings.Contains(path, "/:chat/documents") &&
		!strings.Contains(path, "/:chat/ui") || strings.HasSuffix(path, "/heard") || strings.HasSuffix(path, "/recalled")
}

// getPage serves a file of the web page.
func getPage(c *gin.Context) error {
	if !web.Serve(c.Writer, c.Request) {
		return telemetry.ErrNoRoute
	}
	return nil
}

// fail writes the problem response for an error.
func (s *routes) fail(c *gin.Context, err error) {
	switch {
	case errors.Is(err, telemetry.ErrNoRoute):
		err = &api.Problem{Status: http.StatusNotFound, Code: "unknown_route",
			Message: fmt.Sprintf("There is no route %s; %s.", c.Request.URL.Path, cure(c.Request.URL.Path))}
	case errors.Is(err, telemetry.ErrNoMethod):
		err = api.NoMethod(c.Request, c.Writer.Header())
	}
	p := *problem.FromError(err)
	p.RunID = cmp.Or(telemetry.FromContext(c.Request.Context()).Run, p.RunID)
	if p.Status == statusGone {
		c.Status(statusGone)
		return
	}
	if p.Retryable {
		p.RetryAfter = max(p.RetryAfter, 2*time.Second)
	}
	api.WriteProblem(c.Writer, &p)
}

// cure returns advice for an unknown path. Some clients add /v1 to their base URL, others do not, and some routes are
// the gateway's.
func cure(path string) string {
	rest := path
	for strings.HasPrefix(rest, "/v1/") {
		rest = rest[len("/v1"):]
	}
	served := []string{"/chat/completions", "/models", "/responses", "/embeddings", "/conversations"}
	messages := slices.Contains([]string{"/messages", "/messages/count_tokens"}, rest)
	switch {
	case strings.Contains(path, "/v1/v1/") && !messages:
		return "the path has /v1 twice: the client adds /v1 by itself, so leave it out of its base URL"
	case !strings.Contains(path, "/v1/") &&
		slices.ContainsFunc(served, func(end string) bool { return strings.HasSuffix(path, end) }):
		return "the client does not add /v1 by itself, so end its base URL in /v1"
	case messages, rest == "/responses":
		return "the gateway serves it, at an address of its own (proxy.listen, port 8082 where nothing else is " +
			"configured); here are POST /v1/chat/completions and /v1/responses"
	case strings.HasPrefix(path, webapi.OneShotPath+"/"): // removed in 0.3
		return "send the transcript with the tool's result as context to POST " + webapi.OneShotPath
	}
	return "docs/api.md lists them"
}

// statusGone is the logged status if the client disconnected first.
const statusGone = 499

// forward streams a request about documents to the apiserver, which stores them, and the response back.
func (s *routes) forward(c *gin.Context) error {
	if _, ok := c.Params.Get("chat"); ok {
		if _, err := problem.ChatOf(c); err != nil {
			return err
		}
	}
	s.registry.Mu.Lock()
	draining := s.registry.Draining
	s.registry.Mu.Unlock()
	if draining {
		return problem.ErrShutdown
	}
	if c.Query("stream") == "true" { // the client reads results while it sends the body
		defer api.FullDuplex(c.Writer, c.Request)()
	}
	body := &forwarded{ReadCloser: c.Request.Body, reading: make(chan struct{}, 1)}
	c.Request.Body = body
	var failed error
	handler, err := s.Runs.Forward(func(_ http.ResponseWriter, r *http.Request, err error) {
		if failed = err; r.Context().Err() != nil {
			failed = context.Canceled
		}
	}, func(err error) { _ = c.Error(err) })
	if err != nil {
		return err
	}
	handler.ServeHTTP(c.Writer, c.Request)
	if failed != nil && body.wasLate() {
		return api.ErrBodyTimeout
	}
	if errors.Is(failed, api.ErrUnreachable) {
		return fmt.Errorf("%w (%w)", errNoApiserver, failed)
	}
	return failed
}

// forwarded is a request body on its way to the apiserver. It records a timeout, which the transport reports as a
// cancellation, like a disconnect.
//
// After io.EOF, Read always returns io.EOF. http.Transport reads once more, possibly after the response has started and
// net/http has closed the body. It would treat the read error as a failure and close the connection that carries the
// rest of the response (golang/go#40747).
type forwarded struct {
	io.ReadCloser
	reading chan struct{} // full during a read
	late    atomic.Bool
	eof     bool // used only by the transport's goroutine
}

// wasLate reports whether the body timed out. net/http cancels a request with an unreadable body before Read returns
// the error, so wasLate waits for Read.
func (f *forwarded) wasLate() bool {
	select {
	case f.reading <- struct{}{}:
		<-f.reading
	case <-time.After(time.Second): // canceled for another reason; Read is still blocked
	}
	return f.late.Load()
}

func (f *forwarded) Read(p []byte) (int, error) {
	f.reading <- struct{}{}
	defer func() { <-f.reading }()
	if f.eof {
		return 0, io.EOF
	}
	n, err := f.ReadCloser.Read(p)
	f.eof = err == io.EOF
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.late.Store(true)
	}
	return n, err
}

var errNoApiserver = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
	Message: "The documents cannot be reached right now; please try again.",
}

func newStorage(c *node.Core) *node.Storage {
	return &node.Storage{Core: c, Changed: map[memory.Chat]bool{}, Wake: make(chan struct{}, 1)}
}

// growing returns the handler of a route that adds stored bytes. The request fails with ErrStorageFull if the tenant
// has reached its limit, or if the body exceeds the remaining bytes. Messages, imports and forks are checked later,
// when they are certainly new.
func (s *routes) growing(answer func(*gin.Context) error) func(*gin.Context) error {
	return func(c *gin.Context) error {
		tenant := problem.TenantOf(c)
		remaining, err := s.Room(c.Request.Context(), tenant)
		if err != nil {
			return err
		}
		body := &boundedBody{ReadCloser: c.Request.Body, remaining: remaining}
		c.Request.Body = body
		if err = answer(c); err != nil && body.full.Load() {
			err = s.ErrStorageFull(tenant)
		}
		return err
	}
}

// documents forwards requests about documents.
func (s *routes) documents(c *gin.Context) error {
	search := strings.HasSuffix(c.Param("rest"), "/search") // below /v1/collections
	if m := c.Request.Method; m == http.MethodPut || m == http.MethodPost && !search {
		return s.growing(s.forward)(c)
	}
	return s.forward(c)
}

// boundedBody fails and sets full when more than remaining bytes are read.
type boundedBody struct {
	io.ReadCloser
	remaining int64
	full      atomic.Bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= int64(n); b.remaining < 0 {
		b.full.Store(true)
		return 0, errors.New("the body exceeds the tenant's storage limit")
	}
	return n, err
}
