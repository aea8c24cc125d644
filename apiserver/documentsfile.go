package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// metadataPrefix is what a parameter of the query begins with that is metadata.
const metadataPrefix = "metadata."

// putFile is PUT …/documents/{id} of a file's bytes. A file that is one document is
// answered by its result; one of many (a JSON array, JSON lines) by a line for each, as
// POST …/documents; with ?stream=true each result is sent as soon as it is there.
func (d *documents) putFile(c *gin.Context, collection docstore.Collection, id string) error {
	ctx, query := c.Request.Context(), c.Request.URL.Query()
	f := rag.File{
		ID: id, ContentType: c.GetHeader("Content-Type"), Bytes: watchedBody{c.Request.Body}, Limit: d.limit,
		Origin: query.Get("origin"), Title: query.Get("title"), Source: query.Get("source"),
	}
	if name := query.Get("charset"); name != "" {
		var ok bool
		if f.ContentType, ok = loader.WithCharset(f.ContentType, name); !ok {
			return badRequest("The charset is unknown. Use a name of IANA, such as windows-1250, ibm852 or shift_jis.")
		}
	}
	for name, values := range query {
		if key, ok := strings.CutPrefix(name, metadataPrefix); ok {
			if f.Metadata == nil {
				f.Metadata = map[string]string{}
			}
			f.Metadata[key] = values[len(values)-1]
		}
	}
	if err := d.find(ctx, collection); err != nil {
		return err
	}
	if query.Get("stream") == "true" {
		results := beginResults(c)
		results.finish(d.load(ctx, c, collection, f, results.send))
		return nil
	}
	var replies answers
	var outcomes int
	var only rag.Outcome
	err := d.load(ctx, c, collection, f, func(o rag.Outcome) {
		outcomes++
		only = o
		replies.add(o)
	})
	switch {
	case err != nil:
		return err
	case outcomes == 1 && only.ID == id && only.Err != nil:
		return only.Err
	case outcomes == 1 && only.ID == id:
		writeOutcome(c, only)
	default:
		replies.write(c)
	}
	return nil
}

// load puts the documents of a file. Unless it is read as a stream, that begins when all
// of it is there and its turn has come.
func (d *documents) load(ctx context.Context, c *gin.Context, collection docstore.Collection, f rag.File,
	report func(rag.Outcome)) error {
	if !d.library.Loader().Streamed(f.ID, f.ContentType) {
		file, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, d.limit))
		if err != nil {
			return bodyProblem(err)
		}
		f.Bytes = bytes.NewReader(file)
	}
	return d.puts.In(ctx, collection.Tenant(), func() error { return d.library.PutFile(ctx, collection, f, report) })
}

// watchedBody is a body with errors that say what the sender is to do.
type watchedBody struct{ io.Reader }

func (b watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = bodyProblem(err)
	}
	return n, err
}
