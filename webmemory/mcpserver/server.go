// Package mcpserver makes a webmemory a server of the Model Context Protocol (MCP), by the official SDK: other agents
// ask its agents, and search its memory and its documents, by the tools ask, recall and search_documents. It is a
// client of webmemory's public routes, so that a tool is admitted, bounded and refused as the same request over HTTP.
//
// It owns nothing: no session is kept, and any process over the same memory answers any request, by the protocol's
// version of 2026-07-28 and by those with an initialize handshake. It never answers what a run waits for: that takes
// a person.
package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"mneme/access/fair"
	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/memory/event"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// Config says what a server serves.
type Config struct {
	Memory  *webapi.Client // of the webmemory whose tools these are
	Version string         // of the program, as clients are told it
	Log     zerolog.Logger
	// Called, if it is not nil, is told of each call of a tool that is over.
	Called func(tool string, failed bool)
}

const instructions = `mneme keeps conversations ("chats") for good, and has agents that remember what was said in ` +
	`them. Use one chat id for one conversation or project, and the same id each time: ask puts a message to its ` +
	`agents, recall finds what was said in it, however long ago, and search_documents finds passages of loaded documents.`

// new makes the server; its calls end with life.
func (c Config) new(life context.Context) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "mneme", Title: "mneme", Version: c.Version}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // which never change
	})
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (_ mcp.Result, err error) {
			defer c.recovered(method, &err)
			if undeclared(method) {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method)}
			}
			ctx, end := context.WithCancelCause(ctx)
			defer end(nil)
			defer endWith(life, end)()
			if client, ok := ctx.Value(requestKey{}).(context.Context); ok {
				defer endWith(client, end)()
			}
			return next(ctx, method, req)
		}
	})
	c.addTools(s)
	return s
}

// undeclared says whether a method is of a capability that the server does not have. The SDK
// would answer it all the same, with empty lists.
func undeclared(method string) bool {
	family, _, _ := strings.Cut(method, "/")
	return slices.Contains([]string{"prompts", "resources", "completion", "logging"}, family)
}

// endWith has end called with the cause of a context's end, until it is detached.
func endWith(ctx context.Context, end context.CancelCauseFunc) (detach func() bool) {
	return context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
}

// recovered answers for a handler that panicked. The SDK runs it on a goroutine of its own,
// where a panic would end the process.
func (c Config) recovered(method string, err *error) {
	if cause := recover(); cause != nil {
		c.Log.Error().Str("method", method).Str("panic", telemetry.PanicText(cause)).Msg("an MCP request panicked")
		*err = errors.New(api.ErrInternal.Message)
	}
}

// Stdio serves one client that writes to in and reads from out, until in or ctx ends.
func (c Config) Stdio(ctx context.Context, in io.Reader, out io.Writer) error {
	runCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err := c.new(runCtx).Run(ctx, &mcp.IOTransport{
		Reader: io.NopCloser(in), Writer: unclosed{out}, MaxLineLength: maxBody,
	})
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("what came on standard input is no message of the Model Context Protocol: %w", err)
}

// unclosed is a writer that stays open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

const (
	maxBody = 2 << 20 // bytes of a request, as of webmemory's other routes
	// writeTime is how long a client may take to read what it is sent at one time.
	writeTime = 30 * time.Second
)

// Handler serves POST /mcp. Close it.
type Handler struct {
	sdk http.Handler
	end context.CancelCauseFunc

	calls atomic.Int64 // pending requests
}

// HTTP makes the handler.
func (c Config) HTTP() *Handler {
	life, end := context.WithCancelCause(context.Background())
	s := c.new(life)
	return &Handler{end: end, sdk: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{
			Stateless: true,
			// The service's own guard knows the names that the operator allows.
			DisableLocalhostProtection: true,
			MaxRequestBodyBytes:        -1, // ServeHTTP bounds it
		})}
}

// errShutdown ends calls that are not over when the handler is closed.
var errShutdown = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: webapi.CodeShuttingDown, Retryable: true,
	Message: "The service is shutting down. A message that was taken is answered all the same; recall finds it.",
}

// Close ends the calls. Their clients get errShutdown, and the runs continue. Close waits up to lastMoment first, so that
// a call whose run has just ended can read the answer.
func (h *Handler) Close() {
	for until := time.Now().Add(lastMoment); h.calls.Load() > 0 && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
	}
	h.end(errShutdown)
}

const lastMoment = 500 * time.Millisecond

// requestKey is where a handler of the SDK finds the context of its HTTP request, which ends
// when the client leaves. The SDK's own contexts outlive it, for sessions that are resumed.
type requestKey struct{}

// ServeHTTP answers a request. The body is read here, so that one that is too large or too slow
// is refused as elsewhere.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := api.ReadBody(w, r, maxBody, jsonbound.Members)
	if errors.Is(err, fair.ErrFull) {
		err = api.ProblemOf(event.Fail(webapi.CodeTooManyChats, "", 2*time.Second))
	}
	if no := new(api.Problem); errors.As(err, &no) {
		api.WriteProblem(w, no)
		return
	}
	if bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("[")) {
		api.WriteProblem(w, &api.Problem{Status: http.StatusBadRequest, Code: webapi.CodeBadRequest,
			Message: "A request is one message; send those of a batch one by one."})
		return
	}
	h.calls.Add(1)
	defer h.calls.Add(-1)
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, r.Context()))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	h.sdk.ServeHTTP(paced{w}, r)
}

// paced bounds how long each write waits for a client that does not read.
type paced struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController flush.
func (p paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p paced) Write(b []byte) (int, error) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTime))
	return p.ResponseWriter.Write(b)
}

// problemText says an error in a sentence, for a client or its model.
func problemText(err error) string {
	if _, ok := errors.AsType[*api.Problem](err); ok {
		return err.Error()
	}
	return fmt.Sprintf("webmemory gave no answer: %v", err)
}
