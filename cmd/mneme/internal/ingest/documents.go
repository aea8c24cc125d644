package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"mneme/apiserver/api"
	"mneme/memory"
	"mneme/subagent/rag"
	webapi "mneme/webmemory/api"
)

// library is the client of the routes about documents, which webmemory passes on to the
// apiserver as they are.
type library struct{ *webapi.Client }

// putTimeout is how long a file may take to be read, cut and stored, or to be taken any
// further.
const putTimeout = 5 * time.Minute

func collectionPath(name string) string { return webapi.CollectionsPath + "/" + url.PathEscape(name) }

// collectionInfo is what is said of a collection.
type collectionInfo struct {
	ReadBy   []memory.Agent `json:"read_by"`  // the subagents that search it; nil if an older apiserver does not say
	Searched []string       `json:"searched"` // the collections that subagents search
	Reads    []string       `json:"reads"`    // extensions of the files that can be put
}

// fileHead is what is said of a file that is put.
type fileHead struct {
	id, origin, charset string
	metadata            map[string]string
}

// putFile sends a file's bytes and tells what became of each of its documents as soon as
// it is known. An error of bytes comes back as it is, and the server then takes the file
// for cut off.
func (c library) putFile(
	ctx context.Context, collection string, h fileHead, bytes io.Reader, tell func(rag.Outcome),
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(putTimeout, func() { cancel(fmt.Errorf("%s was silent for %s", c.Base(), putTimeout)) })
	defer silence.Stop()
	body := &upload{bytes: bytes, moved: func() { silence.Reset(putTimeout) }}
	query := url.Values{"stream": {"true"}}
	if h.origin != "" {
		query.Set("origin", h.origin)
	}
	if h.charset != "" {
		query.Set("charset", h.charset)
	}
	for name, value := range h.metadata {
		query.Set("metadata."+name, value)
	}
	path := collectionPath(collection) + "/documents/" + url.PathEscape(h.id) + "?" + query.Encode()
	resp, err := c.Send(ctx, http.MethodPut, path, http.Header{"Content-Type": {"application/octet-stream"}}, body)
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
func (c library) readOutcomes(ctx context.Context, r io.Reader, tell func(rag.Outcome)) error {
	for d := json.NewDecoder(r); ; {
		var line struct {
			rag.Outcome
			api.LinesEnd
		}
		switch err := d.Decode(&line); {
		case err != nil:
			err = cmp.Or(context.Cause(ctx), err)
			return &webapi.BrokenError{Err: fmt.Errorf("%s did not say what became of all documents: %w", c.Base(), err)}
		case line.Outcome.Status != "":
			tell(line.Outcome)
		case line.Error != nil:
			return line.Error
		case !line.Done:
			return &webapi.BrokenError{Err: fmt.Errorf("%s did not say what became of all documents", c.Base())}
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
