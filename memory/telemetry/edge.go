package telemetry

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"

	"github.com/gin-gonic/gin"
	"github.com/rs/zerolog"
)

// What an Edge refuses by itself.
var (
	ErrNoRoute  = errors.New("there is no such route")
	ErrNoMethod = errors.New("the route does not take this method") // the header Allow says which it takes
	ErrPanicked = errors.New("a request panicked")
)

// Edge is the router of a service.
type Edge struct {
	*gin.Engine
	// IDHeader is the header of an answer by which a client may name its request; "" for
	// none. A panic is logged with it. Set it before the first request.
	IDHeader string

	refuse func(*gin.Context, error)
}

// Edge makes the router as every service has it: each request begins its trail, is
// counted and logged, and goes through first; a handler that panics is answered for; and
// GET /metrics is there. refuse answers, in the service's own shape, what no handler
// answers: ErrNoRoute, ErrNoMethod, ErrPanicked, and the errors of Answered.
func (s *Service) Edge(refuse func(*gin.Context, error), first ...gin.HandlerFunc) *Edge {
	gin.SetMode(gin.ReleaseMode)
	e := &Edge{Engine: gin.New(), refuse: func(c *gin.Context, err error) {
		_ = c.Error(err) // for the request's line in the log
		refuse(c, err)
	}}
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false // a redirect would be followed without the body
	e.UseRawPath, e.UnescapePathValues = true, true
	e.Use(s.middleware)
	e.Use(first...)
	e.Use(func(c *gin.Context) { e.recovered(c, &s.Log) })
	e.NoRoute(e.Answered(func(*gin.Context) error { return ErrNoRoute }))
	e.NoMethod(e.Answered(func(*gin.Context) error { return ErrNoMethod }))
	e.GET("/metrics", gin.WrapH(s.Metrics()))
	return e
}

// Answered is a handler with an error that becomes the answer, and a cause in the
// request's line in the log.
func (e *Edge) Answered(h func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := h(c); err != nil {
			e.refuse(c, err)
		}
	}
}

// recovered goes on with a request, and logs and answers for a handler that panicked. If
// its answer had begun, or if it panicked with http.ErrAbortHandler, the panic goes on to
// net/http, which breaks the connection: the client must not take the part for the whole.
// gin's own recovery ends such an answer as a complete one.
func (e *Edge) recovered(c *gin.Context, log *zerolog.Logger) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		failure, _ := cause.(error)
		written, aborted := c.Writer.Written(), errors.Is(failure, http.ErrAbortHandler)
		if !aborted {
			line := log.Error().EmbedObject(FromContext(c.Request.Context())).Str("route", c.FullPath()).Str("path",
				c.Request.URL.Path)
			if e.IDHeader != "" {
				line.Str("request_id", c.Writer.Header().Get(e.IDHeader))
			}
			line.Str("panic", PanicText(cause)).Bytes("stack", debug.Stack()).Msg(ErrPanicked.Error())
			c.Abort()
			if !written {
				e.refuse(c, ErrPanicked)
			}
		}
		if written || aborted {
			panic(http.ErrAbortHandler)
		}
	}()
	c.Next()
}

// PanicText says for the log the value of a panic. What is no error of Go's runtime may
// hold what a user said, and is named by its type alone.
func PanicText(cause any) string {
	if err, ok := cause.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("a %T", cause)
}
