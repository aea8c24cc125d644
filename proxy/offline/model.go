package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxBody is the largest request read, in bytes; it is the vendor's limit.
const maxBody = 32 << 20

// Model answers requests of the messages dialect. It is safe for concurrent use and holds no state between calls.
// The zero value is ready to use.
type Model struct{}

// New returns a Model.
func New() *Model { return &Model{} }

// RoundTrip implements [http.RoundTripper], so that a gateway reaches the model through the same sending code as a
// vendor. It serves POST …/v1/messages (JSON, or SSE when the body says "stream": true) and
// POST …/v1/messages/count_tokens. Every failure of a request is an answer of the dialect: 400 for a body that
// cannot be used, 404 for anything not served, 413 for a body over 32 MiB. The error is non-nil only when the
// request's context ended or its body could not be read. Reading the answer's body fails once the context ends.
func (m *Model) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	counting := strings.HasSuffix(r.URL.Path, "/v1/messages/count_tokens")
	if r.Method != http.MethodPost || !counting && !strings.HasSuffix(r.URL.Path, "/v1/messages") {
		return failure(r, http.StatusNotFound, "not_found_error",
			"the offline model serves POST /v1/messages and POST /v1/messages/count_tokens only"), nil
	}
	body, err := readBody(r)
	if errors.Is(err, errTooLarge) {
		return failure(r, http.StatusRequestEntityTooLarge, "request_too_large", err.Error()), nil
	}
	if err != nil {
		return nil, fmt.Errorf("offline: read request body: %w", err)
	}
	req, err := parseRequest(body)
	if err != nil {
		return failure(r, http.StatusBadRequest, "invalid_request_error", err.Error()), nil
	}
	if counting {
		return jsonAnswer(r, http.StatusOK, tokenCount{InputTokens: req.countTokens()}), nil
	}
	ans := newMessage(req, decide(req))
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Stream {
		return answer(r, http.StatusOK, "text/event-stream; charset=utf-8", encodeStream(ans)), nil
	}
	return jsonAnswer(r, http.StatusOK, ans), nil
}

var errTooLarge = errors.New("the request is larger than 32 MiB: send less")

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(body) > maxBody {
		err = errTooLarge
	}
	return body, err
}

func failure(r *http.Request, status int, kind, text string) *http.Response {
	return jsonAnswer(r, status, errorReply{Type: "error", Error: errorDetail{Type: kind, Message: text}})
}

func jsonAnswer(r *http.Request, status int, v any) *http.Response {
	data, err := json.Marshal(v)
	if err != nil {
		// Every type passed here is ours and marshals; the branch keeps the answer in the dialect should one not.
		status, data = http.StatusInternalServerError,
			[]byte(`{"type":"error","error":{"type":"api_error","message":"the offline model could not encode its answer"}}`)
	}
	return answer(r, status, "application/json", [][]byte{data})
}

func answer(r *http.Request, status int, contentType string, frames [][]byte) *http.Response {
	h := http.Header{"Content-Type": {contentType}}
	length := int64(-1)
	if len(frames) == 1 {
		length = int64(len(frames[0]))
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	return &http.Response{
		Status:        strconv.Itoa(status) + " " + http.StatusText(status),
		StatusCode:    status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        h,
		Body:          &framedBody{ctx: r.Context(), frames: frames},
		ContentLength: length,
		Request:       r,
	}
}

// framedBody hands out one frame per Read at most, as a vendor's flushed events arrive, and fails once ctx ends.
type framedBody struct {
	ctx    context.Context
	frames [][]byte
	cur    bytes.Reader
}

func (b *framedBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	for b.cur.Len() == 0 {
		if len(b.frames) == 0 {
			return 0, io.EOF
		}
		b.cur.Reset(b.frames[0])
		b.frames = b.frames[1:]
	}
	return b.cur.Read(p)
}

func (b *framedBody) Close() error {
	b.frames = nil
	b.cur.Reset(nil)
	return nil
}
