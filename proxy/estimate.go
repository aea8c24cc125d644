package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"unicode/utf8"

	"mneme/proxy/wire"
)

// estimatedHeader marks a count of tokens that no vendor made.
const estimatedHeader = "X-AG-Estimated"

// estimator counts tokens for backends that cannot.
type estimator struct{}

// imageTokens is what an image counts for, whatever its size.
const imageTokens = 1500

// Send answers with a rough count: four ASCII characters, or two others, of what
// the model would read make a token.
func (estimator) Send(_ context.Context, call wire.Call) (*http.Response, error) {
	var r wire.Request
	if err := wire.Unmarshal(call.Body, &r); err != nil {
		return nil, err
	}
	var t tally
	t.content(r.System)
	for _, m := range r.Messages {
		t.content(m.Content)
	}
	for _, tool := range r.Tools {
		t.text(tool.Name)
		t.text(tool.Description)
		t.text(string(tool.InputSchema))
	}
	answer := fmt.Sprintf(`{"input_tokens":%d}`, (t.ascii+3)/4+(t.other+1)/2+t.images*imageTokens)
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"application/json"}, http.CanonicalHeaderKey(estimatedHeader): {"true"}},
		Body:       io.NopCloser(bytes.NewReader([]byte(answer))),
	}, nil
}

// tally counts characters and images.
type tally struct{ ascii, other, images int }

func (t *tally) content(c wire.Content) {
	for _, b := range c {
		t.text(b.Text)
		t.text(b.Name)
		t.text(string(b.Input))
		t.content(b.Content)
		switch {
		case b.Source == nil:
		case b.Source.Type == "text":
			t.text(b.Source.Data)
		default:
			t.images++
		}
	}
}

func (t *tally) text(s string) {
	for _, r := range s {
		if r < utf8.RuneSelf {
			t.ascii++
		} else {
			t.other++
		}
	}
}
