package proxy

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"mneme/access"
	"mneme/access/fair"
	"mneme/access/jsonbound"
	"mneme/memory/telemetry"
	"mneme/memory/tracing"
	"mneme/proxy/chatwire"
	"mneme/proxy/encoding"
	"mneme/proxy/upstream"
	"mneme/proxy/wire"
)

// requestIDHeader is on every answer.
const requestIDHeader = "X-Ag-Request-Id"

// stamp puts an id on every answer.
func stamp(w http.ResponseWriter) {
	w.Header()[requestIDHeader] = []string{"req_" + rand.Text()}
}

// serve takes a request through a pipeline and sees to its end.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, d endpoint, p pipeline, scope, teammate string) {
	began := time.Now()
	r = r.WithContext(fair.With(r.Context(), s.work, access.FromContext(r.Context()).Tenant))
	x := &request{
		endpoint: d, pipeline: scope, teammate: teammate,
		in:     received{header: r.Header, query: r.URL.RawQuery, caller: caller(r)},
		client: newClientWriter(w, s.limits.Client), newConversation: rand.Text(),
		prices: s.config.Prices(),
		notes:  notes{id: w.Header().Get(requestIDHeader), logger: s.log, often: s.telemetry.Often},
	}
	x.client.tell = x.tell
	defer x.close()
	var span *tracing.Span
	err := s.receive(r, x)
	if err == nil {
		began = time.Now() // until here it was the client
		span = beginSpan(r.Context(), s, x)
		err = p(r.Context(), x)
	}
	outcome := s.conclude(r.Context(), x, err)
	took := time.Since(began)
	if x.result.listener != nil && (outcome == outcomeCut || outcome == outcomeCanceled) {
		x.result.listener.cut(context.WithoutCancel(r.Context()))
	}
	if outcome == outcomeOK && x.result.listener != nil && x.result.listener.empty {
		s.metrics.answeredNothing(x.result.attempt)
		x.log().Warn().Str("backend", x.result.backend.name).Str("model", x.result.model).
			Msg("the backend's answer is empty")
	}
	s.metrics.observe(x, outcome, took)
	counts := s.meter(r.Context(), x, outcome)
	x.tellCost(counts)
	endSpan(span, x, outcome, counts)

	level := zerolog.InfoLevel
	if err != nil {
		level = zerolog.WarnLevel
	}
	target := x.result.scopedRequest
	line := s.log.WithLevel(level).Str("request_id", x.id).EmbedObject(x.trail)
	if why := x.result.reason; why != "" {
		line = line.Str("reason", string(why)).Int("upstream_status", x.result.attempt.answer.status)
	}
	if err != nil {
		line = line.Str(zerolog.ErrorFieldName, x.shownError(err))
	}
	if target.backend != nil {
		line = line.Str("backend", target.backend.name).Str("upstream_model", target.model).
			Str("conversation", target.scope.Conversation)
	}
	line.Str("door", d.name).Str("pipeline", scope).Str("teammate", teammate).Str("model", x.in.model()).
		Int("status", x.client.status).Dur("took_ms", took).Str("outcome", outcome).Msg("model call")
	if outcome == outcomeOK { // the last, since it may wait
		record(r.Context(), s.agents, x)
	}
}

// answered reports whether a backend has answered.
func (x *request) answered() bool { return x.result.attempt != nil && x.result.attempt.answer != nil }

// close ends the call, gives back its place and takes the deadline off the client's connection.
func (x *request) close() {
	if leave := x.result.leave; leave != nil {
		leave()
	}
	if x.answered() {
		x.result.attempt.answer.close()
	}
	x.client.release()
}

// receive reads and checks what every endpoint needs of a request.
func (s *Server) receive(r *http.Request, x *request) (err error) {
	err = nameRun(r)
	x.trail = telemetry.FromContext(r.Context())
	if err != nil {
		return err
	}
	body, err := readBody(x.client, r, s.limits.MaxBody)
	if err != nil {
		return err
	}
	return fair.Share(r.Context(), func(context.Context) error { return x.understand(body) })
}

// understand checks and reads a body.
func (x *request) understand(body []byte) (err error) {
	if err := jsonbound.Check(body, jsonbound.Depth, jsonbound.Transcript); err != nil {
		if no := new(jsonbound.Refusal); errors.As(err, &no) {
			return wire.Failure{Status: no.Status, Message: "the body " + no.Reason}
		}
	}
	if !utf8.Valid(body) {
		return wire.Failure{Status: 400, Message: "the body is not valid UTF-8"}
	}
	if err := wire.CheckText(body); err != nil {
		return err
	}
	x.in.outline, err = wire.ReadOutline(body)
	return err
}

// readBody reads a request into one buffer of the right size: the transport may
// have to send it more than once. It decodes compressed bodies. limit bounds the bytes before and after that.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) (b []byte, err error) {
	coding := r.Header.Get("Content-Encoding")
	switch {
	case r.ContentLength > limit:
		return nil, tooLarge(limit)
	case !encoding.Identity(coding):
		body := &sentBody{ReadCloser: http.MaxBytesReader(w, r.Body, limit)}
		decoded, err := encoding.NewReader(coding, body)
		if err != nil {
			return nil, wire.Failure{Status: http.StatusUnsupportedMediaType, Message: err.Error() +
				": use gzip, deflate, br, zstd or no compression"}
		}
		defer func() { _ = decoded.Close() }()
		b, err = io.ReadAll(io.LimitReader(decoded, limit+1))
		switch {
		case int64(len(b)) > limit:
			return nil, tooLarge(limit)
		case err == nil:
			return b, nil
		case body.err == nil:
			return nil, wire.Failure{Status: http.StatusBadRequest, Message: fmt.Sprintf(
				"the body cannot be decoded as %s: %v", coding, err)}
		}
		return nil, bodyError(body.err, limit)
	case r.ContentLength >= 0:
		b = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, b)
	default:
		b, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	}
	return b, bodyError(err, limit)
}

// sentBody records the error of the connection.
type sentBody struct {
	io.ReadCloser
	err error
}

func (s *sentBody) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// bodyError returns the failure that the client gets for an error of reading its body, or nil.
func bodyError(err error, limit int64) error {
	if err == nil {
		return nil
	}
	if sizeErr := new(http.MaxBytesError); errors.As(err, &sizeErr) {
		return tooLarge(limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errBodyTimeout
	}
	return fmt.Errorf("%w: the body ended early: %w", errClientGone, err)
}

// errBodyTimeout: the server around this gateway bounds how slowly a body may come.
var errBodyTimeout = wire.Failure{
	Status: http.StatusRequestTimeout, Code: "body_timeout",
	Message: "the body did not come in time; send the request again",
}

func tooLarge(limit int64) error {
	return wire.Failure{Status: 413, Message: fmt.Sprintf("the body is larger than %d bytes", limit)}
}

// conclude turns how the pipeline ended into what the client gets of it, as far
// as it can still be told: a status and a body, or a stream's last event.
func (s *Server) conclude(ctx context.Context, x *request, err error) (outcome string) {
	if err == nil {
		switch {
		case x.client.status >= 500 || x.client.status == http.StatusTooManyRequests:
			return outcomeFailed
		case x.client.status >= 400:
			return outcomeRefused
		}
		return outcomeOK
	}
	if errors.Is(err, fair.ErrFull) {
		err = x.busy()
	}
	// A body that came too late has ended the request's context too.
	late := errors.Is(err, errBodyTimeout)
	refusal := new(access.Refusal) // of the key that the request came with, since then
	switch {
	case errors.As(context.Cause(ctx), &refusal):
		err = wire.Failure{Status: refusal.Status, Code: refusal.Code, Message: refusal.Message}
		defer func() { outcome = outcomeCanceled }()
	case ctx.Err() != nil && !late || errors.Is(err, errClientGone):
		return outcomeCanceled
	}
	f := x.failure(err)
	f.Run = x.trail.Run
	if errors.Is(err, upstream.ErrUnreachable) || errors.Is(err, upstream.ErrOpen) || errors.Is(err, upstream.ErrTimeout) {
		x.client.Header()[reasonHeader] = []string{string(reasonDown)}
	}
	if f.Code == string(reasonImages) {
		x.client.Header()[reasonHeader] = []string{f.Code}
	}
	if open := new(upstream.OpenError); errors.As(err, &open) {
		x.client.Header().Set("Retry-After", strconv.Itoa(int(open.RetryAfter/time.Second)+1))
	}
	switch {
	case !x.client.started:
		x.client.Header().Set("Content-Type", "application/json")
		_ = x.client.writeBody(f.Status, f.Body(x.endpoint.dialect)) // a disconnected client needs no answer
		if f.Status < 500 {
			return outcomeRefused
		}
		return outcomeFailed
	case x.client.stream:
		last := f.Frame
		if x.result.fail != nil {
			last = func(wire.Dialect) []byte { return x.result.fail(f) }
		}
		_ = x.client.write(last(x.endpoint.dialect), true)
	}
	return outcomeCut
}

// failure is the one place where errors get a status and words for the client.
func (x *request) failure(err error) wire.Failure {
	var f wire.Failure
	var untrusted *tls.CertificateVerificationError
	name := ""
	if b := x.result.backend; b != nil {
		name = b.name
	}
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, wire.ErrBadJSON) && !x.answered():
		return wire.Failure{Status: 400, Code: "bad_json", Message: err.Error()}
	case errors.Is(err, wire.ErrBadJSON):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("the answer of backend %q cannot be understood", name)}
	case errors.Is(err, chatwire.ErrCut), errors.Is(err, upstream.ErrBroken):
		return wire.Failure{Status: 502, Code: "answer_cut", Message: fmt.Sprintf("the answer of backend %q was cut off",
			name)}
	case errors.As(err, &untrusted):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("the TLS certificate of backend %q is not trusted (%v). "+
			"Put the certificate of its authority into the file that SSL_CERT_FILE names", name, untrusted.Err)}
	case errors.Is(err, upstream.ErrUnreachable):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("backend %q cannot be reached", name)}
	case errors.Is(err, upstream.ErrOpen):
		return wire.Failure{
			Status: 503, Message: fmt.Sprintf("backend %q failed too often and is left alone for a moment", name),
		}
	case errors.Is(err, upstream.ErrTimeout):
		return wire.Failure{Status: 504, Message: fmt.Sprintf("backend %q took too long", name)}
	case errors.Is(err, upstream.ErrEncoding), errors.Is(err, wire.ErrFrameTooLong), errors.Is(err, errTooLong):
		return wire.Failure{Status: 502, Message: fmt.Sprintf("backend %q: %v", name, err)}
	}
	return wire.Failure{Status: 500, Message: "the gateway failed; its log has the cause under this request's id"}
}

// guessDialect finds the dialect of a client that came to no endpoint.
func guessDialect(r *http.Request) wire.Dialect {
	if strings.Contains(r.URL.Path, "/v1/messages") || r.Header.Get("Anthropic-Version") != "" {
		return wire.Messages
	}
	return wire.Chat
}
