package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"mneme/proxy/chatwire"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// Headers between clients and the gateway; vendors never see them.
const (
	requestIDHeader    = "X-Ag-Request-Id"
	conversationHeader = "X-Ag-Conversation-Id"
)

var conversationID = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// stamp puts an id on every answer.
func stamp(c *gin.Context) {
	c.Writer.Header().Set(requestIDHeader, "req_"+rand.Text())
}

// serve takes a request through a pipeline and sees to its end.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, d door, p pipeline, scope, teammate string) {
	began := time.Now()
	x := &Exchange{
		door: d, teammate: teammate, header: r.Header, query: r.URL.RawQuery,
		client: newClientWriter(w, s.limits.Client),
		log:    s.log.With().Str("request_id", w.Header().Get(requestIDHeader)).Logger(),
	}
	defer x.close()
	err := s.receive(r, x)
	if err == nil {
		err = p.run(r.Context(), x)
	}
	outcome := s.conclude(r.Context(), x, err)
	took := time.Since(began)
	s.metrics.observe(x, scope, outcome, took)

	line := x.log.Info()
	if err != nil {
		line = x.log.Warn().Err(err)
	}
	if x.backend != nil {
		line = line.Str("backend", x.backend.name).Str("upstream_model", x.model)
	}
	line.Str("door", d.name).Str("pipeline", scope).Str("teammate", teammate).Str("model", x.head.Model).
		Int("status", x.client.status).Dur("took_ms", took).Str("outcome", outcome).Msg("model call")
}

// close ends the call and takes the deadline off the client's connection.
func (x *Exchange) close() {
	if x.resp != nil {
		_ = x.resp.Body.Close()
	}
	x.client.release()
}

// receive reads and checks what every door needs of a request.
func (s *Server) receive(r *http.Request, x *Exchange) (err error) {
	if id := r.Header.Get(conversationHeader); id != "" {
		if !conversationID.MatchString(id) {
			return wire.Failure{Status: 400, Message: "the header X-AG-Conversation-Id must be 1 to 128 characters of A-Z a-z 0-9 . _ : -"}
		}
		x.client.Header().Set(conversationHeader, id)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return wire.Failure{Status: 415, Message: fmt.Sprintf("a body with content-encoding %s cannot be read: send it uncompressed", e)}
	}
	x.client.receiving()
	if x.body, err = readBody(x.client, r, s.limits.MaxBody); err != nil {
		return err
	}
	x.client.received()
	x.head, err = wire.ReadHead(x.body)
	return err
}

// readBody reads a request into one buffer of the right size: the transport may
// have to send it more than once.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	tooLarge := wire.Failure{Status: 413, Message: fmt.Sprintf("the body is larger than %d bytes", limit)}
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	var b []byte
	var err error
	if r.ContentLength >= 0 {
		b = make([]byte, r.ContentLength)
		_, err = io.ReadFull(body, b)
	} else {
		b, err = io.ReadAll(body)
	}
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return nil, tooLarge
	case err != nil:
		return nil, fmt.Errorf("%w: the body ended early: %w", errClientGone, err)
	}
	return b, nil
}

// conclude turns how the pipeline ended into what the client gets of it, as far
// as it can still be told: a status and a body, or a stream's last event.
func (s *Server) conclude(ctx context.Context, x *Exchange, err error) (outcome string) {
	if err == nil {
		switch {
		case x.client.status >= 500 || x.client.status == http.StatusTooManyRequests:
			return outcomeFailed
		case x.client.status >= 400:
			return outcomeRefused
		}
		return outcomeOK
	}
	if ctx.Err() != nil || errors.Is(err, errClientGone) {
		return outcomeCanceled
	}
	f := x.failure(err)
	switch {
	case !x.client.begun:
		x.client.Header().Set("Content-Type", "application/json")
		_ = x.client.whole(f.Status, f.Body(x.door.dialect)) // a client that is gone needs no answer
		if f.Status < 500 {
			return outcomeRefused
		}
		return outcomeFailed
	case x.client.stream:
		_ = x.client.write(f.Frame(x.door.dialect), true)
	}
	return outcomeCut
}

// failure is the one place where errors get a status and words for the client.
func (x *Exchange) failure(err error) wire.Failure {
	var f wire.Failure
	name := ""
	if x.backend != nil {
		name = x.backend.name
	}
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, wire.ErrBadJSON) && x.resp == nil:
		return wire.Failure{Status: 400, Code: "bad_json", Message: err.Error()}
	case errors.Is(err, wire.ErrBadJSON):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("the answer of backend %q cannot be understood", name)}
	case errors.Is(err, chatwire.ErrCut), errors.Is(err, upstream.ErrBroken):
		return wire.Failure{Status: 502, Code: "answer_cut", Message: fmt.Sprintf("the answer of backend %q was cut off", name)}
	case errors.Is(err, upstream.ErrUnreachable):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("backend %q cannot be reached", name)}
	case errors.Is(err, upstream.ErrTimeout):
		return wire.Failure{Status: 504, Message: fmt.Sprintf("backend %q took too long", name)}
	case errors.Is(err, upstream.ErrEncoding), errors.Is(err, wire.ErrFrameTooLong), errors.Is(err, errTooLong):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("backend %q: %v", name, err)}
	}
	return wire.Failure{Status: 500, Message: "the gateway failed; its log has the cause under this request's id"}
}

// guessDialect finds the dialect of a client that came to no door.
func guessDialect(r *http.Request) wire.Dialect {
	if strings.Contains(r.URL.Path, "/v1/messages") || r.Header.Get("Anthropic-Version") != "" {
		return wire.Messages
	}
	return wire.Chat
}
