package proxy

import (
	"bytes"
	"errors"
	"html"
	"io"
	"net/http"
	"strings"
	"time"

	"mneme/proxy/lazyregexp"
	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// maxAnswer bounds an answer that is not streamed, in bytes.
const maxAnswer = 64 << 20

// maxError bounds an error, in bytes. Of a longer one, the client gets the first maxQuoted bytes.
const (
	maxError  = 1 << 20
	maxQuoted = 1 << 10
)

var errTooLong = errors.New("the backend's answer is longer than 64 MiB")

// answer is what a backend says to an attempt. So much of it has been read that
// the attempt can be judged before anything reaches the client: all of it, or a
// stream's first event. A stream that begins with an error is none, see early.
type answer struct {
	status int
	header http.Header
	fault
	content []byte  // unless it is a stream
	stream  *stream // nil for an answer that came whole
	body    io.Closer
	hide    hider // of what it must not show

	vendor vendorAnswer // makes messages of an answer of a dialect that is held as messages; nil for any other
}

// vendorAnswer translates an answer into the messages dialect: Event or Body take what the vendor sent, and End finishes.
type vendorAnswer interface {
	SetSink(sink func(*wire.Event))
	Event(data []byte) error
	Body(body []byte) error
	Complete() bool
	End() error
}

// fault is what an error says is wrong with a request; zero for an answer that is none.
type fault struct {
	failed    bool // it is an error, whatever the status
	class     thinking.Class
	length    thinking.Length  // of the request
	parameter thinking.Refused // without a name for none
	schema    thinking.RefusedSchema
	role      thinking.RefusedRole
}

// stream is an answer that comes in events.
type stream struct {
	frames   *wire.FrameReader
	first    wire.Frame // until it is taken; valid until the next is read
	err      error      // that came with it
	consumed bool
}

// timed is a body that adds up how long it lets its readers wait.
type timed struct {
	body   io.Reader
	waited *time.Duration
}

func (t timed) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := t.body.Read(p)
	*t.waited += time.Since(began)
	return n, err
}

// readHead reads the beginning of an answer. Waited grows by the time that the
// backend takes, now and later. What hide hides is gone from all of the answer.
func readHead(resp *http.Response, waited *time.Duration, hide hider) (*answer, error) {
	a := &answer{status: resp.StatusCode, header: resp.Header, body: resp.Body, hide: hide}
	hide.header(a.header)
	body := timed{resp.Body, waited}
	if a.status < 300 && wire.IsStream(a.header) {
		a.stream = &stream{frames: wire.NewFrameReader(body)}
		a.stream.first, a.stream.err = a.stream.frames.Next()
		a.stream.first = hide.frame(a.stream.first)
		return a, nil
	}
	limit := maxAnswer
	if a.status >= http.StatusBadRequest {
		limit = maxError
	}
	var err error
	a.content, err = readAll(body, resp.ContentLength, limit)
	if errors.Is(err, errTooLong) && a.status >= http.StatusBadRequest {
		a.content, err = longError(a.content), nil
		a.header.Set("Content-Type", "application/json")
	}
	if err != nil {
		a.close()
		return nil, err
	}
	if a.status >= http.StatusBadRequest && isPage(a.content) {
		a.content = pageError(a.content)
		a.header.Set("Content-Type", "application/json")
	}
	a.content = failedInteraction(a.content)
	if a.failed = a.status >= 400 || thinking.IsError(a.content); !a.failed {
		a.content = hide.answer(a.content)
		return a, nil
	}
	if a.content = hide.error(a.content); a.status < 300 {
		a.status = wire.ReadFailure(0, a.content).Status
	}
	a.class, a.length = thinking.Classify(a.status, a.content), thinking.ReadLength(a.status, a.content)
	a.parameter, _ = thinking.RefusedParameter(a.status, a.content)
	a.schema = thinking.SchemaRefused(a.status, a.content)
	a.role = thinking.RefusedRoles(a.status, a.content)
	return a, nil
}

// refused reports whether the backend refused the attempt.
func (a *answer) refused() bool { return a.status >= 300 || a.failed }

// subject returns the metrics label of the cause of a refusal.
func (a *answer) subject() string {
	switch {
	case a.role != thinking.RoleNone:
		return role
	case a.schema.Matched:
		return toolSchema
	}
	if a.parameter.Name != "" {
		return "parameter"
	}
	return a.class.String()
}

// next is the next event of a stream, as wire.FrameReader gives it.
func (a *answer) next() (wire.Frame, error) {
	if s := a.stream; !s.consumed {
		s.consumed = true
		return s.first, s.err
	}
	f, err := a.stream.frames.Next()
	return a.hide.frame(f), err
}

// hasMore reports whether the next event of a stream has arrived already.
func (a *answer) hasMore() bool { return a.stream.frames.HasMore() }

// close ends the answer, with all that was not kept of it. It may be called twice.
func (a *answer) close() {
	_ = a.body.Close()
	if s := a.stream; s != nil && s.frames != nil {
		s.frames.Release()
		*s = stream{err: io.EOF}
	}
}

// early reads the data of an event at the beginning of a stream: an error's status,
// or 0, and whether the model's answer has not begun with it.
func early(d wire.Dialect, data []byte) (status int, pending bool) {
	if d == wire.Responses || d == wire.Interactions {
		if beginsResponse(data) {
			return 0, true
		}
		data = failedResponse(data)
	}
	switch {
	case len(data) == 0: // a comment
		return 0, true
	case thinking.IsError(data):
		status = wire.ReadFailure(0, data).Status
		if status >= 500 && ofRequest(status, data) {
			status = http.StatusBadRequest
		}
		return status, false
	case d == wire.Responses, d == wire.Interactions:
		return 0, false
	case d == wire.Messages:
		kind := wire.EventType(data)
		return 0, kind == wire.MessageStart || kind == "ping"
	}
	c, err := wire.ReadChunk(data)
	return 0, err == nil && c.IsPreamble()
}

// ofRequest reports whether an error says what is wrong with the request, so that it
// is worth no repetition and no failure of the backend, whatever its status.
func ofRequest(status int, body []byte) bool {
	_, parameter := thinking.RefusedParameter(status, body)
	return parameter || thinking.SchemaRefused(status, body).Matched ||
		thinking.RefusedRoles(status, body) != thinking.RoleNone || refusesContent(body) ||
		thinking.Classify(status, body) != thinking.ClassOther ||
		thinking.ReadLength(status, body).Excess != thinking.NotLong
}

// longError returns a short error body that replaces a longer one. text is the beginning of the longer one.
func longError(text []byte) []byte {
	return wire.Failure{Type: "api_error", Message: "the backend's error is longer than 1 MiB and begins with " +
		clip(string(text), maxQuoted)}.Body(wire.Messages)
}

// isPage reports whether an error is an HTML page, as proxies before a vendor send it.
func isPage(body []byte) bool {
	begin := bytes.ToLower(bytes.TrimSpace(body[:min(len(body), maxQuoted)]))
	return bytes.HasPrefix(begin, []byte("<!doctype")) || bytes.HasPrefix(begin, []byte("<html"))
}

var title = lazyregexp.New(`(?is)<(?:title|h1)[^>]*>(.*?)</`)

// pageError returns a JSON body that replaces an HTML page. Clients show the text of an error as it comes.
func pageError(page []byte) []byte {
	message := "the backend answered with an HTML page"
	if matches := title().FindStringSubmatch(string(page)); matches != nil {
		message += ": " + clip(strings.TrimSpace(html.UnescapeString(matches[1])), maxQuoted)
	}
	return wire.Failure{Type: "api_error", Message: message}.Body(wire.Messages)
}

// readAll reads a body of n bytes, or of unknown length if n is not positive. If the body exceeds limit, readAll returns
// its beginning and errTooLong.
func readAll(r io.Reader, n int64, limit int) ([]byte, error) {
	switch {
	case n > int64(limit):
		b := make([]byte, maxQuoted)
		read, _ := io.ReadFull(r, b)
		return b[:read], errTooLong
	case n > 0:
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	var b bytes.Buffer
	b.Grow(4 << 10) // most answers fit; growing to it would take as much again
	_, err := b.ReadFrom(io.LimitReader(r, int64(limit)+1))
	if err == nil && b.Len() > limit {
		err = errTooLong
	}
	return b.Bytes(), err
}
