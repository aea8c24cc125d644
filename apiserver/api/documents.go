package api

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
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
	} `json:"history"` // what was said before the query, oldest first
	K     *int            `json:"k"`     // how many passages at most; 10
	Where json.RawMessage `json:"where"` // which documents, by their metadata; as rag.ParseWhere reads it
}

// Forward passes requests on to the apiserver and its answers back, both as
// streams. failed answers when it cannot be reached. An answer that breaks off after
// its head was sent is told to broken, and then the handler panics with
// http.ErrAbortHandler, for net/http to break the client's connection.
func (c *Client) Forward(failed func(w http.ResponseWriter, r *http.Request, err error),
	broken func(error)) (http.Handler, error) {
	to, err := url.Parse(c.base)
	if err != nil {
		return nil, fmt.Errorf("the apiserver's address: %w", err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     c.http.Transport,
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

// FullDuplex lets a handler read the request's body while it answers. Over HTTP/1
// that is the connection's last request: net/http cannot read the next one if this
// one's body was not read to its end (golang/go#68560).
func FullDuplex(w http.ResponseWriter) {
	_ = http.NewResponseController(w).EnableFullDuplex() // elsewhere than in HTTP/1 that is so anyway
	w.Header().Set("Connection", "close")
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
