package webclient

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// putTimeout is how long a file may take to be read, cut and stored, or to be taken any
// further.
const putTimeout = 5 * time.Minute

func collectionPath(name string) string { return "/v1/collections/" + url.PathEscape(name) }

// Collection is what is said of one.
type Collection struct {
	ReadBy   []memory.Agent `json:"read_by"`  // the subagents that search it; nil if an older apiserver does not say
	Searched []string       `json:"searched"` // the collections that subagents search
	Reads    []string       `json:"reads"`    // extensions of the files that can be put
}

// CreateCollection makes a collection unless there is one.
func (c *Client) CreateCollection(ctx context.Context, name string) (made Collection, err error) {
	err = c.call(ctx, http.MethodPut, collectionPath(name), &made)
	return made, err
}

// Documents gives the heads of at most limit documents of a collection, from
// behind cursor on ("" is the start); the next cursor is "" at the end.
func (c *Client) Documents(ctx context.Context, collection, cursor string, limit int) ([]docstore.Head, string, error) {
	var page struct {
		Documents []docstore.Head `json:"documents"`
		Next      string          `json:"next_cursor"`
	}
	query := url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(limit)}}
	err := c.call(ctx, http.MethodGet, collectionPath(collection)+"/documents?"+query.Encode(), &page)
	return page.Documents, page.Next, err
}

// Upload is a file to be put.
type Upload struct {
	ID, Origin string
	Metadata   map[string]string
}

// PutFile sends a file's bytes and tells what became of each of its documents as soon as
// it is known. An error of bytes comes back as it is, and the server then takes the file
// for cut off.
func (c *Client) PutFile(ctx context.Context, collection string, u Upload, bytes io.Reader, tell func(rag.Outcome)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(putTimeout, func() { cancel(fmt.Errorf("%s was silent for %s", c.base, putTimeout)) })
	defer silence.Stop()
	body := &upload{bytes: bytes, moved: func() { silence.Reset(putTimeout) }}
	query := url.Values{"stream": {"true"}}
	if u.Origin != "" {
		query.Set("origin", u.Origin)
	}
	for name, value := range u.Metadata {
		query.Set("metadata."+name, value)
	}
	path := collectionPath(collection) + "/documents/" + url.PathEscape(u.ID) + "?" + query.Encode()
	resp, err := c.send(ctx, http.MethodPut, path, http.Header{"Content-Type": {"application/octet-stream"}}, body)
	if err == nil {
		defer resp.Body.Close()
		err = c.readOutcomes(ctx, resp.Body, func(o rag.Outcome) { body.moved(); tell(o) })
	}
	if failed := body.failed.Load(); failed != nil && err != nil {
		return *failed // whatever else it led to
	}
	return err
}

// readOutcomes reads the results of documents that are put as a stream.
func (c *Client) readOutcomes(ctx context.Context, r io.Reader, tell func(rag.Outcome)) error {
	for d := json.NewDecoder(r); ; {
		var line struct {
			rag.Outcome
			api.LinesEnd
		}
		switch err := d.Decode(&line); {
		case err != nil:
			return &lost{fmt.Errorf("%s did not say what became of all documents: %w", c.base, cmp.Or(context.Cause(ctx), err))}
		case line.Outcome.Status != "":
			tell(line.Outcome)
		case line.Error != nil:
			return line.Error
		case !line.Done:
			return &lost{fmt.Errorf("%s did not say what became of all documents", c.base)}
		default:
			_, _ = io.Copy(io.Discard, r) // to its end, or the server sees a client that left
			return nil
		}
	}
}

// upload is a request's body, which notes why it could not be read. The transport reads
// it in a goroutine of its own.
type upload struct {
	bytes  io.Reader
	moved  func() // some of it was taken
	failed atomic.Pointer[error]
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.bytes.Read(p)
	u.moved()
	if err != nil && err != io.EOF {
		u.failed.Store(&err)
	}
	return n, err
}

// DeleteDocument deletes one document; false if there was none.
func (c *Client) DeleteDocument(ctx context.Context, collection, id string) (bool, error) {
	err := c.call(ctx, http.MethodDelete, collectionPath(collection)+"/documents/"+url.PathEscape(id), nil)
	if IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
