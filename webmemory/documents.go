package webmemory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/memory/telemetry"
	webapi "mneme/webmemory/api"
)

// forwardDocuments passes on what concerns documents: the apiserver keeps them.
func (s *Server) forwardDocuments(r *telemetry.Edge) {
	forward := r.Answered(s.forward)
	for _, path := range []string{
		"/v1/collections", "/v1/collections/*rest", "/v1/chats/:chat/documents", "/v1/chats/:chat/documents/*id",
	} {
		r.Any(path, forward)
	}
}

// forward streams the body there and the answer back.
func (s *Server) forward(c *gin.Context) error {
	if id, ok := c.Params.Get("chat"); ok {
		if _, err := memory.ParseChat(id); err != nil {
			return err
		}
	}
	s.mu.Lock()
	draining := s.draining
	s.mu.Unlock()
	if draining {
		return errShutdown
	}
	if c.Query("stream") == "true" { // results are read while the body is on its way
		api.FullDuplex(c.Writer)
	}
	body := &forwarded{ReadCloser: c.Request.Body}
	c.Request.Body = body
	var failed error
	to, err := s.runs.Forward(func(_ http.ResponseWriter, r *http.Request, err error) {
		if failed = err; r.Context().Err() != nil {
			failed = context.Canceled
		}
	}, func(err error) { _ = c.Error(err) })
	if err != nil {
		return err
	}
	to.ServeHTTP(c.Writer, c.Request)
	if failed != nil && body.late.Load() {
		return api.ErrBodyTimeout
	}
	if errors.Is(failed, api.ErrUnreachable) {
		return fmt.Errorf("%w (%w)", errNoApiserver, failed)
	}
	return failed
}

// forwarded is a body on its way to the apiserver, which notes why it ended: the
// transport's error is a cancellation then, as when the client leaves.
//
// Read to its end it stays at its end. http.Transport asks once more behind it, which
// may be when the answer has begun; net/http has closed the body by then, and the
// transport takes that for a failure and closes the connection on which the rest of
// the answer comes (golang/go#40747).
type forwarded struct {
	io.ReadCloser
	late  atomic.Bool
	ended bool // used by the transport's goroutine only
}

func (f *forwarded) Read(p []byte) (int, error) {
	if f.ended {
		return 0, io.EOF
	}
	n, err := f.ReadCloser.Read(p)
	f.ended = err == io.EOF
	if errors.Is(err, os.ErrDeadlineExceeded) {
		f.late.Store(true)
	}
	return n, err
}

var errNoApiserver = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: webapi.CodeAgentsUnavailable, Retryable: true,
	Message: "The documents cannot be reached right now; please try again.",
}
