package webclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
)

// putTimeout is how long documents may take to be read, cut and stored.
const putTimeout = 5 * time.Minute

func collectionPath(name string) string { return "/v1/collections/" + url.PathEscape(name) }

// CreateCollection makes a collection unless there is one. unread is that no subagent
// searches it; an older apiserver does not say.
func (c *Client) CreateCollection(ctx context.Context, name string) (unread bool, err error) {
	var made struct {
		ReadBy *[]memory.Agent `json:"read_by"`
	}
	err = c.call(ctx, http.MethodPut, collectionPath(name), &made)
	return made.ReadBy != nil && len(*made.ReadBy) == 0, err
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

// PutDocuments puts documents into a collection and says what became of each, in
// their order; tell is told so as soon as it is known.
func (c *Client) PutDocuments(ctx context.Context, collection string, documents []api.Document, tell func(rag.Outcome)) ([]rag.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	for _, d := range documents {
		if err := e.Encode(d); err != nil {
			return nil, fmt.Errorf("document %s: %w", d.ID, err)
		}
	}
	header := http.Header{"Content-Type": {"application/x-ndjson"}}
	resp, err := c.send(ctx, http.MethodPost, collectionPath(collection)+"/documents?stream=true", header, body.Bytes())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var outcomes []rag.Outcome
	for d := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)); ; {
		var line struct {
			rag.Outcome
			api.LinesEnd
		}
		switch err := d.Decode(&line); {
		case err != nil:
			return outcomes, fmt.Errorf("%s did not say what became of all documents: %w", c.base, cmp.Or(context.Cause(ctx), err))
		case line.Outcome.Status != "":
			outcomes = append(outcomes, line.Outcome)
			tell(line.Outcome)
		case line.Error != nil:
			return outcomes, line.Error
		case len(outcomes) != len(documents):
			return outcomes, fmt.Errorf("%s answered for %d of %d documents", c.base, len(outcomes), len(documents))
		default:
			return outcomes, nil
		}
	}
}

// DeleteDocument deletes one document; false if there was none.
func (c *Client) DeleteDocument(ctx context.Context, collection, id string) (bool, error) {
	err := c.call(ctx, http.MethodDelete, collectionPath(collection)+"/documents/"+url.PathEscape(id), nil)
	if IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
