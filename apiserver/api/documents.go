package api

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Document is a document as a body or a line of ndjson holds it. Its text is text,
// whatever its id looks like.
type Document struct {
	ID       string   `json:"id,omitempty"` // in a line; elsewhere the path says it
	Title    string   `json:"title,omitempty"`
	Text     string   `json:"text"`
	Source   string   `json:"source,omitempty"` // where it came from: a path, an address
	Metadata Metadata `json:"metadata,omitempty"`
	// Origin names what it is kept in step with, "" for nothing. A document with one does
	// not replace one of another.
	Origin string `json:"origin,omitempty"`
}

// LinesEnd is the last line of the results of documents that are put as a stream.
type LinesEnd struct {
	Done      bool     `json:"done"`      // all of the body has its results
	Documents int      `json:"documents"` // results before this line
	Failed    int      `json:"failed"`    // those that were refused
	Error     *Problem `json:"error,omitempty"`
}

// SearchRequest is the body of a search.
type SearchRequest struct {
	Query   string `json:"query"`
	History []struct {
		Role    string `json:"role"` // user or assistant
		Content string `json:"content"`
	} `json:"history,omitempty"` // what was said before the query, oldest first
	K     *int            `json:"k,omitempty"`     // how many passages at most; 10
	Where json.RawMessage `json:"where,omitempty"` // which documents, by their metadata; as rag.ParseWhere reads it
}

// SearchResult is what a client needs of the answer to a search.
type SearchResult struct {
	Status string `json:"status"` // ok, weak or empty
	// Degraded: the store, or a part of the search, could not be asked; this is from what was
	// known before.
	Degraded bool      `json:"degraded"`
	Passages []Passage `json:"passages"` // best first
}

// Passage is a passage of a document. Start and End are its place in the document's text, in
// bytes.
type Passage struct {
	ID      string  `json:"id"` // document#ordinal
	DocID   string  `json:"doc_id"`
	Title   string  `json:"title"`
	Source  string  `json:"source"`
	Section string  `json:"section"`        // the headings above it, outermost first
	Page    int     `json:"page,omitempty"` // it is on, from 1
	Start   int     `json:"start"`
	End     int     `json:"end"`
	Score   float64 `json:"score"` // more is better; only those of one answer compare
	Text    string  `json:"text"`
}

// Forward is Pass to the apiserver.
func (c *Client) Forward(failed func(w http.ResponseWriter, r *http.Request, err error),
	broken func(error)) (http.Handler, error) {
	return Pass(c.base, c.http.Transport, failed, broken)
}

// Pass passes requests on to the service at base and its answers back, both as
// streams. failed answers when it cannot be reached. An answer that breaks off after
// its head was sent is told to broken, and then the handler panics with
// http.ErrAbortHandler, for net/http to break the client's connection.
func Pass(base string, transport http.RoundTripper, failed func(w http.ResponseWriter, r *http.Request, err error),
	broken func(error)) (http.Handler, error) {
	target, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("the address of a service: %w", err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			failed(w, r, fmt.Errorf("%w: %w", ErrUnreachable, err))
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Body = &passedBody{resp.Body, broken}
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // the errors go to failed and broken
	}, nil
}

// FullDuplex lets a handler read the request's body while it answers; the handler calls
// end behind its answer.
//
// Over HTTP/1 net/http can go on with a connection only if the handler has closed this
// request's body (golang/go#68560). One that does not come to its end is cut: what is
// left of it must not pass for another request. No header says that in advance, since
// clients take an answer that breaks off for whole on a connection that is to be closed.
func FullDuplex(w http.ResponseWriter, r *http.Request) (end func()) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // elsewhere than in HTTP/1 that is so anyway
	body := &duplexBody{ReadCloser: r.Body, control: control}
	r.Body = body
	return func() {
		if body.Close() != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// restTime is how long what is left of a body may take, once it is not wanted.
const restTime = 500 * time.Millisecond

// duplexBody is a request's body that is closed once, by whichever goroutine is first.
type duplexBody struct {
	io.ReadCloser
	control   *http.ResponseController
	eof       atomic.Bool
	closeOnce sync.Once
	err       error // of closing; guarded by once
}

func (b *duplexBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.eof.Store(true)
	}
	return n, err
}

// Close has net/http read what is left, within bounds.
func (b *duplexBody) Close() error {
	b.closeOnce.Do(func() {
		if b.eof.Load() {
			return
		}
		_ = b.control.SetReadDeadline(time.Now().Add(restTime)) // what knows no deadlines has no rest to read
		b.err = b.ReadCloser.Close()
		// The server goes on reading to learn when the client leaves.
		_ = b.control.SetReadDeadline(time.Time{})
	})
	return b.err
}

// passedBody is the body of an answer that is passed on; it reports when that breaks off.
type passedBody struct {
	io.ReadCloser
	broken func(error)
}

func (a *passedBody) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		a.broken(fmt.Errorf("the apiserver's answer broke off: %w", err))
	}
	return n, err
}
