package apiserver

import (
	"bufio"
	"bytes"
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

	"mneme/apiserver/api"
	"mneme/subagent/rag"
	"mneme/subagent/rag/chunk"
	"mneme/subagent/rag/docstore"
	"mneme/subagent/rag/loader"
)

// put is PUT …/documents/{id}: JSON, or the bytes of a file.
func (d *documents) put(c *gin.Context, of docstore.Collection) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	in := rag.Input{ID: id}
	if isDocument(c.ContentType()) {
		var body api.Document
		if err := api.DecodeBody(c.Writer, c.Request, d.limits.Bytes, &body); err != nil {
			return err
		}
		body.ID = id
		in = d.input(c.Request.Context(), body)
		err = in.Err
	} else {
		var file []byte
		if file, err = io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, d.limits.Bytes)); err == nil {
			in.Document, err = d.load(c.Request.Context(), id, c.GetHeader("Content-Type"), bytes.NewReader(file))
		}
	}
	if err != nil {
		return bodyProblem(err)
	}
	queryTitle(c.Request.URL.Query(), &in.Document.Title, &in.Document.Source)
	if err := d.makeChat(c.Request.Context(), of); err != nil {
		return err
	}
	outcome, err := d.library.Put(c.Request.Context(), of, in)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if outcome.Status == rag.OutcomeNew {
		status = http.StatusCreated
	}
	api.WriteJSON(c.Writer, status, outcome)
	return nil
}

// isDocument says whether a body is an api.Document: JSON, or what curl -d says.
func isDocument(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || kind == "application/x-www-form-urlencoded")
}

// bodyProblem is why a body could not be read: the document's fault, or that it
// did not come.
func bodyProblem(err error) error {
	var (
		said    *api.Problem
		unread  *loader.Error
		refused *docstore.Error
		over    *http.MaxBytesError
	)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return api.ErrBodyTimeout
	}
	if errors.As(err, &said) || errors.As(err, &unread) || errors.As(err, &refused) || errors.As(err, &over) {
		return err
	}
	return errCutBody
}

// load makes a document of a file that is there, when its turn has come.
func (d *documents) load(ctx context.Context, name, contentType string, file io.Reader) (chunk.Document, error) {
	select {
	case d.loads <- struct{}{}:
		defer func() { <-d.loads }()
		return loader.Load(ctx, name, contentType, file, d.limits)
	case <-ctx.Done():
		return chunk.Document{}, context.Cause(ctx)
	}
}

// makeChat makes the collection of a chat: one by name has to be there.
func (d *documents) makeChat(ctx context.Context, of docstore.Collection) error {
	if of.Chat() == "" {
		return nil
	}
	_, err := d.library.Create(ctx, of)
	return err
}

// input is a document to be put. Plain text is read as a file would be, so that
// it has no invisible characters.
func (d *documents) input(ctx context.Context, body api.Document) rag.Input {
	in := rag.Input{ID: body.ID, Origin: body.Origin, Raw: body.Raw}
	if len(body.Sections)+len(body.Whole) > 0 {
		if err := body.CheckSpans(); err != nil {
			in.Err = &docstore.Error{Code: docstore.BadText, Sentence: err.Error()}
			return in
		}
		in.Document.Text = body.Text
		for _, s := range body.Sections {
			in.Document.Sections = append(in.Document.Sections, chunk.Section{Span: chunk.Span(s.Span), Path: s.Path, Body: s.Body})
		}
		for _, s := range body.Whole {
			in.Document.Whole = append(in.Document.Whole, chunk.Span(s))
		}
	} else {
		in.Document, in.Err = d.load(ctx, body.ID, "text/plain; charset=utf-8", strings.NewReader(body.Text))
	}
	in.Document.Title, in.Document.Source, in.Document.Metadata = body.Title, body.Source, body.Metadata
	return in
}

// putLines is POST …/documents: a document in each line, a result for each. It is
// answered when all are there, with 207 if some were refused; with ?stream=true
// see streamLines.
func (d *documents) putLines(c *gin.Context, of docstore.Collection) error {
	ctx := c.Request.Context()
	if err := d.makeChat(ctx, of); err != nil {
		return err
	}
	if _, err := d.library.Info(ctx, of); err != nil { // before all of a body is read for nothing
		return err
	}
	if c.Query("stream") == "true" {
		d.streamLines(c, of)
		return nil
	}
	var results bytes.Buffer
	status := http.StatusOK
	e := json.NewEncoder(&results)
	e.SetEscapeHTML(false)
	err := d.library.Ingest(ctx, of, d.lines(ctx, c.Request.Body), func(o rag.Outcome) {
		if o.Failed() {
			status = http.StatusMultiStatus
		}
		_ = e.Encode(o) // a buffer takes all
	})
	if err != nil {
		return err
	}
	c.Header("Content-Type", "application/x-ndjson; charset=utf-8")
	c.Status(status)
	_, _ = results.WriteTo(c.Writer) // the client is gone; there is nobody to tell
	return nil
}

// streamLines puts one document after the other and sends the result of each as
// soon as it is there, while the body may still be on its way. As the status goes
// out before all is known, it is always 207, and a last line says how it ended.
func (d *documents) streamLines(c *gin.Context, of docstore.Collection) {
	ctx := c.Request.Context()
	control := http.NewResponseController(c.Writer)
	api.FullDuplex(c.Writer)
	c.Header("Content-Type", "application/x-ndjson; charset=utf-8")
	c.Header("X-Accel-Buffering", "no")
	c.Status(http.StatusMultiStatus)
	e := json.NewEncoder(c.Writer)
	e.SetEscapeHTML(false)
	send := func(v any) error {
		if err := e.Encode(v); err != nil {
			return err
		}
		return control.Flush()
	}
	_ = control.Flush()
	var end api.LinesEnd
	for in, err := range d.lines(ctx, c.Request.Body) {
		var outcomes []rag.Outcome
		if err == nil {
			outcomes, err = d.library.PutAll(ctx, of, in)
		}
		if err != nil {
			if !errors.As(problemOf(err), &end.Error) {
				end.Error = errInternal
			}
			break
		}
		end.Documents++
		if outcomes[0].Failed() {
			end.Failed++
		}
		if send(outcomes[0]) != nil {
			return // the client is gone; what was put stays
		}
	}
	end.Done = end.Error == nil
	_ = send(end)
}

// lines are the documents of a body. A line that is none is refused by itself.
func (d *documents) lines(ctx context.Context, body io.Reader) iter.Seq2[rag.Input, error] {
	return func(yield func(rag.Input, error) bool) {
		reader := bufio.NewReaderSize(body, 64<<10)
		for number := 1; ; number++ {
			line, err := readLine(reader, d.limits.Bytes)
			if err != nil && !errors.Is(err, errLongLine) && err != io.EOF {
				yield(rag.Input{}, bodyProblem(err))
				return
			}
			end := err == io.EOF
			if len(bytes.TrimSpace(line)) > 0 || errors.Is(err, errLongLine) {
				if !yield(d.line(ctx, number, line, errors.Is(err, errLongLine)), nil) {
					return
				}
			}
			if end {
				return
			}
		}
	}
}

func (d *documents) line(ctx context.Context, number int, line []byte, long bool) rag.Input {
	refuse := func(code loader.Code, sentence string) rag.Input {
		return rag.Input{ID: fmt.Sprintf("line %d", number), Err: &loader.Error{Code: code, Sentence: sentence, Line: number}}
	}
	if long {
		return refuse(loader.TooLarge, fmt.Sprintf("the line is longer than %d bytes", d.limits.Bytes))
	}
	var body api.Document
	if err := json.Unmarshal(line, &body); err != nil {
		return refuse(loader.Damaged, "the line is no JSON object with the strings id, title and text")
	}
	if twice := new(api.Problem); errors.As(api.CheckUnique(line), &twice) {
		return refuse(loader.Damaged, twice.Message)
	}
	if err := docstore.CheckID(body.ID); err != nil {
		return refuse(loader.Damaged, err.Error())
	}
	return d.input(ctx, body)
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
