package webmemory

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/memory"
)

// forwardDocuments passes on what concerns documents: the apiserver keeps them.
func (s *Server) forwardDocuments(r *gin.Engine) {
	forward := s.answered(s.forward)
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
		_ = http.NewResponseController(c.Writer).EnableFullDuplex()
	}
	var failed error
	to, err := s.runs.Forward(func(_ http.ResponseWriter, r *http.Request, err error) {
		if failed = err; r.Context().Err() != nil {
			failed = context.Canceled
		}
	})
	if err != nil {
		return err
	}
	to.ServeHTTP(c.Writer, c.Request)
	if errors.Is(failed, api.ErrUnreachable) {
		return fmt.Errorf("%w (%w)", errNoApiserver, failed)
	}
	return failed
}

var errNoApiserver = &api.Problem{
	Status: http.StatusServiceUnavailable, Code: "apiserver_unavailable", Retryable: true,
	Message: "The documents cannot be reached right now; please try again.",
}
