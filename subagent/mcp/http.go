package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"mneme/memory/telemetry"
)

// Times for the head of an answer that no tool makes, and for the end of a session.
const (
	headTime  = 10 * time.Second
	leaveHTTP = 2 * time.Second
)

// Bounds of the pause before a server's stream of notifications is opened again.
const (
	minListenPause = time.Second
	maxListenPause = 30 * time.Second
)

var (
	errRedirected = errors.New("it answered with a redirect, which is not followed")
	errGone       = errors.New("it has forgotten the session")
	errNotReached = errors.New("it cannot be reached")
	errCut        = errors.New("its connection broke")
)

// statusError is an answer by a status of HTTP alone.
type statusError int

func (e statusError) Error() string {
	switch {
	case e == http.StatusUnauthorized || e == http.StatusForbidden:
		return fmt.Sprintf("it refuses the credentials it was given (HTTP %d)", int(e))
	case e == http.StatusTooManyRequests:
		return "it was asked too often (HTTP 429)"
	}
	return fmt.Sprintf("it answered with HTTP %d", int(e))
}

// untouched says whether a call that ended so was surely not made.
func (e statusError) untouched() bool { return e < http.StatusInternalServerError }

// toolCall marks the context of a call of a tool, which may take its time to answer, and
// toolList that of a list of tools.
type (
	toolCall struct{}
	toolList struct{}
)

// link makes the requests of one session over HTTP. They end with the session, go to the
// configured address only, and bring bounded answers.
type link struct {
	session *session
	config  ServerConfig
	next    *http.Transport
}

func newLink(s *session, c ServerConfig) *link {
	next := http.DefaultTransport.(*http.Transport).Clone()
	next.Proxy = nil // calls go where the configuration says
	return &link{s, c, next}
}

// client is an http.Client that makes its requests by the link.
func (l *link) client() *http.Client {
	return &http.Client{Transport: l, CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirected }}
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.String() != l.config.URL {
		return nil, errRedirected
	}
	switch {
	case r.Method == http.MethodGet && r.Header.Get("Last-Event-ID") == "":
		return l.listen(r), nil
	case r.Method == http.MethodDelete:
		return l.leave(r)
	}
	resp, err := l.send(l.session.ctx, r)
	if err != nil {
		if r.Context().Err() == nil {
			why := errCut
			if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
				why = errNotReached
			}
			if err = fmt.Errorf("%w: %w", why, err); errors.Is(why, errNotReached) {
				l.session.fail(err)
			}
		}
		return nil, err
	}
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound && r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") != "":
		err = errGone
		l.session.fail(err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusTooManyRequests ||
		code >= http.StatusInternalServerError:
		err = statusError(code)
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// send makes one request. Its answer's body ends with the context of the request and with until.
func (l *link) send(until context.Context, r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(until, cancel)
	if r.Context().Value(toolCall{}) == nil {
		timer := time.AfterFunc(headTime, cancel)
		defer timer.Stop()
	}
	out := r.Clone(ctx)
	for name, value := range l.config.Headers {
		if out.Header.Get(name) == "" {
			out.Header.Set(name, value)
		}
	}
	if trail := telemetry.FromContext(ctx); trail.Trace != "" {
		out.Header.Set(telemetry.Header, trail.Parent())
	}
	resp, err := l.next.RoundTrip(out)
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	var body io.Reader = newLines(ctx, resp.Body, isAny, l.session.fail)
	if !isStream(resp) {
		body = &limited{resp.Body, maxMessage, l.session.fail}
		if r.Context().Value(toolList{}) != nil {
			body = &limited{resp.Body, maxList, l.session.fail}
		}
	}
	resp.Body = &answer{body, resp.Body, func() { stop(); cancel() }}
	return resp, nil
}

func isStream(r *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return kind == "text/event-stream"
}

// answer is a body with what ends it.
type answer struct {
	io.Reader
	body io.Closer
	end  func()
}

func (a *answer) Close() error {
	a.end()
	return a.body.Close()
}

// leave tells the server that its session ends, also when all else of it has ended.
func (l *link) leave(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), leaveHTTP)
	defer cancel()
	resp, err := l.send(ctx, r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	resp.Body = http.NoBody
	return resp, nil
}

// listen answers at once with a stream that has the server's notifications for as long as the
// session lives, through any number of connections: a server that has none, or ends them after
// a while as proxies do, breaks no session.
func (l *link) listen(r *http.Request) *http.Response {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(l.session.ctx, cancel)
	in, out := io.Pipe()
	l.session.running.Go(func() {
		defer stop()
		for pause := minListenPause; ctx.Err() == nil && l.hear(r.WithContext(ctx), out); {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				pause = min(2*pause, maxListenPause)
			}
		}
		<-ctx.Done()
		_ = out.CloseWithError(ctx.Err())
	})
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: &answer{in, in, cancel},
	}
}

// hear passes whole events on from one connection. It says whether another one may have more.
func (l *link) hear(r *http.Request, w io.Writer) (retry bool) {
	resp, err := l.send(l.session.ctx, r)
	if err != nil {
		return true
	}
	defer func() { _ = resp.Body.Close() }()
	if !isStream(resp) || resp.StatusCode != http.StatusOK {
		return resp.StatusCode >= http.StatusInternalServerError
	}
	var event []byte
	reader := newLines(r.Context(), resp.Body, isAny, l.session.fail)
	for {
		line, err := reader.next()
		if err != nil {
			return true
		}
		if event = append(event, line...); len(event) > maxMessage {
			return true
		}
		if len(bytes.TrimSpace(line)) > 0 {
			continue
		}
		if _, err := w.Write(event); err != nil {
			return false
		}
		event = event[:0]
	}
}
