package apiserver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/gin-gonic/gin"

	"mneme/access/jsonbound"
	"mneme/apiserver/api"
	"mneme/subagent/rag"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// put is PUT …/documents/{id}: a document as JSON, or the bytes of a file.
func (d *documents) put(c *gin.Context, collection docstore.Collection) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	if !isDocument(c.ContentType()) {
		return d.putFile(c, collection, id)
	}
	var body api.Document
	if err := api.DecodeBody(c.Writer, c.Request, d.limit, &body); err != nil {
		return bodyProblem(fileHint(c, err))
	}
	body.ID = id
	body.Title = cmp.Or(c.Query("title"), body.Title)
	body.Source = cmp.Or(c.Query("source"), body.Source)
	in := input(body)
	if in.Err != nil {
		return in.Err
	}
	if err := d.find(c.Request.Context(), collection); err != nil {
		return err
	}
	var outcome rag.Outcome
	if err := d.puts.In(c.Request.Context(), collection.Tenant(), func() (err error) {
		outcome, err = d.library.Put(c.Request.Context(), collection, in)
		return err
	}); err != nil {
		return err
	}
	writeOutcome(c, outcome)
	return nil
}

func writeOutcome(c *gin.Context, outcome rag.Outcome) {
	status := http.StatusOK
	if outcome.Status == rag.OutcomeNew {
		status = http.StatusCreated
	}
	api.WriteJSON(c.Writer, status, outcome)
}

// isDocument says whether a body is an api.Document: JSON, or what curl -d says.
func isDocument(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || kind == "application/x-www-form-urlencoded")
}

// fileHint says how a file is sent where a body of no stated type is no JSON: curl gives
// it the type of a form.
func fileHint(c *gin.Context, err error) error {
	p := new(api.Problem)
	if c.ContentType() != gin.MIMEPOSTForm || !errors.As(err, &p) || p.Status != http.StatusBadRequest {
		return err
	}
	hinted := *p
	hinted.Message += " For the bytes of a file give their type: -H 'Content-Type: application/octet-stream' " +
		"--data-binary @file."
	return &hinted
}

// bodyProblem is why a body could not be read: the document's fault, or that it
// did not come.
func bodyProblem(err error) error {
	var (
		p       *api.Problem
		unread  *loader.Error
		refused *docstore.Error
		sizeErr *http.MaxBytesError
	)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return api.ErrBodyTimeout
	}
	if errors.As(err, &p) || errors.As(err, &unread) || errors.As(err, &refused) || errors.As(err, &sizeErr) {
		return err
	}
	return errCutBody
}

// find finds a collection by name, or makes that of a chat, before all of a body is read for nothing.
func (d *documents) find(ctx context.Context, collection docstore.Collection) (err error) {
	if collection.Chat().IsZero() {
		_, err = d.library.Info(ctx, collection)
	} else {
		_, err = d.library.Create(ctx, collection)
	}
	return err
}

// input is a document with a text that came as text: it is no file, whatever its id looks like.
func input(body api.Document) rag.Input {
	in := rag.Input{ID: body.ID, SourceFile: docstore.SourceFile{Origin: body.Origin}}
	in.Document, in.Err = loader.Text(body.Text)
	in.Document.Title, in.Document.Source, in.Document.Metadata = body.Title, body.Source, body.Metadata
	return in
}

// putLines is POST …/documents: a document in each line, a result for each. It is
// answered when all are there, with 207 if some were refused; with ?stream=true each
// result is sent as soon as it is there.
func (d *documents) putLines(c *gin.Context, collection docstore.Collection) error {
	ctx := c.Request.Context()
	if err := d.find(ctx, collection); err != nil {
		return err
	}
	if c.Query("stream") == "true" {
		results := beginResults(c)
		defer results.close()
		results.finish(putEach(ctx, d, collection, d.lines(c.Request.Body), results.send))
		return nil
	}
	var results answers
	err := d.puts.In(ctx, collection.Tenant(), func() error {
		return d.library.Ingest(ctx, collection, d.lines(c.Request.Body), results.add)
	})
	if err == nil {
		results.write(c)
	}
	return err
}

// putEach puts one document after the other, so that each has its result before the next
// one is waited for.
func putEach(ctx context.Context, d *documents, collection docstore.Collection, inputs iter.Seq2[rag.Input, error],
	send func(rag.Outcome)) error {
	for in, err := range inputs {
		if err != nil {
			return err
		}
		leave, err := d.puts.Enter(ctx, collection.Tenant())
		if err != nil {
			return err
		}
		outcomes, err := d.library.PutAll(ctx, collection, in)
		leave()
		if err != nil {
			return err
		}
		if send(outcomes[0]); ctx.Err() != nil {
			return context.Cause(ctx) // the client is gone; what was put stays
		}
	}
	return nil
}

// lines are the documents of a body. A line that is none is refused by itself.
func (d *documents) lines(body io.Reader) iter.Seq2[rag.Input, error] {
	return func(yield func(rag.Input, error) bool) {
		reader := bufio.NewReaderSize(body, 64<<10)
		for number := 1; ; number++ {
			line, err := readLine(reader, d.limit)
			if err != nil && !errors.Is(err, errLongLine) && !errors.Is(err, io.EOF) {
				yield(rag.Input{}, bodyProblem(err))
				return
			}
			end := errors.Is(err, io.EOF)
			if len(bytes.TrimSpace(line)) > 0 || errors.Is(err, errLongLine) {
				if !yield(d.line(number, line, errors.Is(err, errLongLine)), nil) {
					return
				}
			}
			if end {
				return
			}
		}
	}
}

func (d *documents) line(number int, line []byte, long bool) rag.Input {
	refuse := func(code loader.Code, sentence string) rag.Input {
		return rag.Input{ID: fmt.Sprintf("line %d", number), Err: &loader.Error{Code: code, Sentence: sentence, Line: number}}
	}
	if long {
		return refuse(loader.TooLarge, fmt.Sprintf("the line is longer than %d bytes", d.limit))
	}
	if err := jsonbound.Check(line, jsonbound.Depth, jsonbound.Members); err != nil {
		return refuse(loader.TooLarge, err.Error())
	}
	var body api.Document
	if wrong := new(api.Problem); errors.As(api.Unmarshal(line, &body), &wrong) {
		return refuse(loader.Damaged, strings.Replace(wrong.Message, "The body", "The line", 1))
	}
	if err := docstore.CheckID(body.ID); err != nil {
		return refuse(loader.Damaged, err.Error())
	}
	return input(body)
}

// errLongLine is a line above the limit, which was read to its end and dropped.
var errLongLine = errors.New("the line is too long")

// readLine reads a line of at most limit bytes; the last one comes with io.EOF.
func readLine(r *bufio.Reader, limit int64) ([]byte, error) {
	var line []byte
	long := false
	for {
		piece, err := r.ReadSlice('\n')
		if long = long || int64(len(line)+len(piece)) > limit; long {
			line = nil
		} else {
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil && long:
			return nil, errLongLine
		default:
			return line, err
		}
	}
}

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
	_, _ = a.lines.WriteTo(c.Writer) // the client is gone; the error cannot be told
}

// results are lines that are sent as they come, while the body may still be on its way.
// As the status goes out before all is known, it is always 207, and a last line says how
// it ended.
type results struct {
	encoder *json.Encoder
	control *http.ResponseController
	close   func() // what is left of the body
	end     api.LinesEnd
}

func beginResults(c *gin.Context) *results {
	r := &results{encoder: lineEncoder(c.Writer), control: http.NewResponseController(c.Writer),
		close: api.FullDuplex(c.Writer, c.Request)}
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
