package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"mneme/proxy/thinking"
	"mneme/proxy/wire"
)

// maxAnswer bounds an answer that is not streamed, in bytes.
const maxAnswer = 64 << 20

var errTooLong = errors.New("the backend's answer is longer than 64 MiB")

// backendAnswer is what a backend says to an attempt. So much of it has been read that
// the attempt can be judged before anything reaches the client: all of it, or a
// stream's first event.
type backendAnswer struct {
	status int
	header http.Header
	failed bool            // it is an error, whatever the status
	class  thinking.Class  // of the error
	length thinking.Length // what the error says about the request's length
	whole  []byte          // unless it is a stream

	parameter thinking.Refused // that the error names; without a name for none

	frames *wire.FrameReader // of a stream
	first  wire.Frame        // until it is taken; valid until the next is read
	err    error             // that came with it
	taken  bool

	body io.Closer
	hide hider // of what it must not show
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

// listen reads the beginning of an answer in a dialect. Waited grows by the time
// that the backend takes, now and later. What hide hides is gone from all of the
// answer.
func listen(resp *http.Response, waited *time.Duration, hide hider) (*backendAnswer, error) {
	a := &backendAnswer{status: resp.StatusCode, header: resp.Header, body: resp.Body, hide: hide}
	hide.header(a.header)
	body := timed{resp.Body, waited}
	if a.status < 300 && isStream(a.header) {
		a.frames = wire.NewFrameReader(body)
		a.first, a.err = a.frames.Next()
		a.first = hide.frame(a.first)
		if a.failed = thinking.IsError(a.first.Data); a.failed {
			a.class, a.length = thinking.ClassifyEvent(a.first.Data), thinking.ReadLengthEvent(a.first.Data)
			a.parameter, _ = thinking.RefusedInEvent(a.first.Data)
		}
		return a, nil
	}
	var err error
	if a.whole, err = readAll(body, resp.ContentLength); err != nil {
		a.close()
		return nil, err
	}
	switch {
	case a.status >= 400:
		a.failed, a.whole = true, hide.error(a.whole)
		a.class, a.length = thinking.Classify(a.status, a.whole), thinking.ReadLength(a.status, a.whole)
		a.parameter, _ = thinking.RefusedParameter(a.status, a.whole)
	case thinking.IsError(a.whole):
		a.failed, a.whole = true, hide.error(a.whole)
		a.class, a.length = thinking.ClassifyEvent(a.whole), thinking.ReadLengthEvent(a.whole)
		a.parameter, _ = thinking.RefusedInEvent(a.whole)
	default:
		a.whole = hide.answer(a.whole)
	}
	return a, nil
}

// refused reports whether the backend refused the attempt.
func (a *backendAnswer) refused() bool { return a.status >= 300 || a.failed }

// about is what the refusal says is at fault, as metrics call it.
func (a *backendAnswer) about() string {
	if a.parameter.Name != "" {
		return "parameter"
	}
	return a.class.String()
}

// error is the body or the event that says why.
func (a *backendAnswer) error() []byte {
	if a.frames != nil {
		return a.first.Data
	}
	return a.whole
}

// next is the next event of a stream, as wire.FrameReader gives it.
func (a *backendAnswer) next() (wire.Frame, error) {
	if !a.taken {
		a.taken = true
		return a.first, a.err
	}
	f, err := a.frames.Next()
	return a.hide.frame(f), err
}

// close ends the answer, with all that was not kept of it. It may be called twice.
func (a *backendAnswer) close() {
	_ = a.body.Close()
	if a.frames != nil {
		a.first, a.taken, a.err = wire.Frame{}, true, io.EOF
		a.frames.Release()
		a.frames = nil
	}
}

func isStream(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}

// readAll reads a body, of n bytes or, if n is not positive, of a length that
// nobody has told.
func readAll(r io.Reader, n int64) ([]byte, error) {
	switch {
	case n > maxAnswer:
		return nil, errTooLong
	case n > 0:
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = errTooLong
	}
	return b, err
}
