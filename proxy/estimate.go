package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"mneme/proxy/usage"
	"mneme/proxy/wire"
)

// estimatedHeader marks a count of tokens that no vendor made.
const estimatedHeader = "X-AG-Estimated"

// counter counts tokens at a backend, and estimates them if it has no endpoint that counts.
type counter struct {
	Backend
	absent *atomic.Bool // it has answered that the endpoint does not exist
}

// Send counts the tokens of a request.
func (c counter) Send(ctx context.Context, call wire.Call) (*http.Response, error) {
	if c.absent.Load() {
		return estimator{}.Send(ctx, call)
	}
	resp, err := c.Backend.Send(ctx, call)
	if err != nil || resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed &&
		resp.StatusCode != http.StatusNotImplemented {
		return resp, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err == nil && bytes.Contains(bytes.ToLower(body), []byte("model")) { // the model is unknown
		resp.Body = struct {
			io.Reader
			io.Closer
		}{bytes.NewReader(body), resp.Body}
		return resp, nil
	}
	_ = resp.Body.Close()
	c.absent.Store(true)
	return estimator{}.Send(ctx, call)
}

// estimator counts tokens for backends that cannot.
type estimator struct{}

// Send answers with a rough count, see usage.EstimateInput.
func (estimator) Send(_ context.Context, call wire.Call) (*http.Response, error) {
	answer := fmt.Sprintf(`{"input_tokens":%d}`, usage.EstimateInput(call.Body))
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}, http.CanonicalHeaderKey(estimatedHeader): {"true"}},
		Body:       io.NopCloser(bytes.NewReader([]byte(answer))),
	}, nil
}
