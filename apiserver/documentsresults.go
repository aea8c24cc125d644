package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"mneme/apiserver/api"
	"mneme/subagent/rag"
)

const ndjson = "application/x-ndjson; charset=utf-8"

// answers are the results of documents, a line each, that are sent when all are there.
type answers struct {
	lines  bytes.Buffer
	failed bool
}

func (a *answers) add(o rag.Outcome) {
	a.failed = a.failed || o.Failed()
	_ = lineEncoder(&a.lines).Encode(o) // a buffer takes all
}

// write answers 200, or 207 if some were refused.
func (a *answers) write(c *gin.Context) {
	status := http.StatusOK
	if a.failed {
		status = http.StatusMultiStatus
	}
	c.Header("Content-Type", ndjson)
	c.Status(status)
	_, _ = a.lines.WriteTo(c.Writer) // the client is gone; there is nobody to tell
}

// results are lines that are sent as they come, while the body may still be on its way.
// As the status goes out before all is known, it is always 207, and a last line says how
// it ended.
type results struct {
	encoder *json.Encoder
	control *http.ResponseController
	end     api.LinesEnd
}

func beginResults(c *gin.Context) *results {
	r := &results{encoder: lineEncoder(c.Writer), control: http.NewResponseController(c.Writer)}
	api.FullDuplex(c.Writer)
	c.Header("Content-Type", ndjson)
	c.Header("X-Accel-Buffering", "no")
	c.Status(http.StatusMultiStatus)
	_ = r.control.Flush()
	return r
}

// send sends one result. If the client is gone the request's context ends.
func (r *results) send(o rag.Outcome) {
	r.end.Documents++
	if o.Failed() {
		r.end.Failed++
	}
	_ = r.encoder.Encode(o)
	_ = r.control.Flush()
}

// finish sends the last line; err is why it did not come to its end, or nil.
func (r *results) finish(err error) {
	if r.end.Done = err == nil; !r.end.Done && !errors.As(problemOf(err), &r.end.Error) {
		r.end.Error = api.ErrInternal
	}
	_ = r.encoder.Encode(r.end)
	_ = r.control.Flush()
}

func lineEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}
