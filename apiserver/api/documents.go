package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"unicode/utf8"
)

// Document is a document as a body or a line of ndjson holds it.
type Document struct {
	ID       string   `json:"id,omitempty"` // in a line; elsewhere the path says it
	Title    string   `json:"title,omitempty"`
	Text     string   `json:"text"`
	Source   string   `json:"source,omitempty"` // where it came from: a path, an address
	Metadata Metadata `json:"metadata,omitempty"`
	// Origin names the directory that it is kept in step with, and Raw is the
	// SHA-256 of its file.
	Origin string `json:"origin,omitempty"`
	Raw    string `json:"raw,omitempty"`
	// Sections and Whole are what a reader knows of the text's structure; with
	// neither it is plain text.
	Sections []Section `json:"sections,omitempty"`
	Whole    []Span    `json:"whole,omitempty"`
}

// LinesEnd is the last line of the results of documents that are put as a stream.
type LinesEnd struct {
	Done      bool     `json:"done"`      // all lines of the body have their result
	Documents int      `json:"documents"` // results before this line
	Failed    int      `json:"failed"`    // those that were refused
	Error     *Problem `json:"error,omitempty"`
}

// Span is a piece of a document's text: the bytes from Start up to, without, End.
type Span struct {
	Start int `json:"start"`
	End   int `json:"end"`
}

// Section is the text under a heading. Body is where it begins behind the
// heading's own line.
type Section struct {
	Span
	Path []string `json:"path"`
	Body int      `json:"body"`
}

// CheckSpans says what is wrong with the document's structure.
func (d Document) CheckSpans() error {
	last := 0
	for i, s := range d.Sections {
		if !d.holds(s.Span, last) || s.Body < s.Start || s.Body > s.End || !d.boundary(s.Body) {
			return fmt.Errorf("sections[%d] is no piece of the text behind the one before", i)
		}
		last = s.End
	}
	last = 0
	for i, s := range d.Whole {
		if !d.holds(s, last) {
			return fmt.Errorf("whole[%d] is no piece of the text behind the one before", i)
		}
		last = s.End
	}
	return nil
}

func (d Document) holds(s Span, from int) bool {
	return from <= s.Start && s.Start <= s.End && s.End <= len(d.Text) && d.boundary(s.Start) && d.boundary(s.End)
}

// boundary says whether no character of the text is cut at a place.
func (d Document) boundary(at int) bool {
	return at == len(d.Text) || utf8.RuneStart(d.Text[at])
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
// streams. failed answers when it cannot be reached.
func (c *Client) Forward(failed func(w http.ResponseWriter, r *http.Request, err error)) (http.Handler, error) {
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
	}, nil
}
