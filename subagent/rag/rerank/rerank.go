// Package rerank asks a reranker by HTTP: a model that reads a query and a passage
// together and says how well the one answers the other. Two dialects are spoken:
//
// Of Jina, Cohere, vLLM, llama.cpp, Infinity, LocalAI and others (/v1/rerank):
//
//	{"model", "query", "documents": ["…"], "top_n"}
//	→ {"results": [{"index", "relevance_score"}]}, in any order
//
// Of Hugging Face's Text Embeddings Inference (/rerank), which is tried once the first
// one was refused, and kept to if it is taken:
//
//	{"query", "texts": ["…"], "truncate": true}
//	→ [{"index", "score"}], in any order
package rerank

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// Config says which reranker is asked, and how.
type Config struct {
	URL   string // the whole address of the route, such as http://127.0.0.1:8085/v1/rerank
	Model string // as the endpoint names it; empty for its only one
	Key   string // sent as a bearer token; empty for none
	HTTP  *http.Client
}

// Client asks one reranker. It is safe for concurrent use and repeats nothing.
type Client struct {
	config Config
	http   http.Client
	tei    atomic.Bool // the endpoint takes texts, not documents
}

// New makes a Client. It connects to nothing; a nil HTTP is http.DefaultClient. A
// redirection is not followed: the texts go where the configuration says.
func New(c Config) *Client {
	client := &Client{config: c, http: *cmp.Or(c.HTTP, http.DefaultClient)}
	client.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client
}

// Error is a reranker that did not answer as it should. Its text has no word of the
// endpoint's, which may repeat what was sent.
type Error struct {
	Status  int // of the answer; 0 if there was none
	Problem string
	cause   error
}

func (e *Error) Error() string {
	if e.cause != nil {
		return e.Problem + ": " + e.cause.Error()
	}
	return e.Problem
}

// Unwrap gives the transport's error, if it was one.
func (e *Error) Unwrap() error { return e.cause }

// Retryable says whether the same question may be answered later: the endpoint cannot
// be reached, is overloaded or failed. Otherwise it refused the question, or said what
// makes no sense.
func (e *Error) Retryable() bool {
	return e.Status == 0 || e.Status == http.StatusTooManyRequests || e.Status >= 500
}

// The limits of an answer, in bytes: some repeat the documents.
const maxAnswer = 16 << 20

// request is what is sent, in either dialect.
type request struct {
	Model     string   `json:"model,omitempty"`
	Query     string   `json:"query"`
	Documents []string `json:"documents,omitempty"`
	TopN      int      `json:"top_n,omitempty"`
	Texts     []string `json:"texts,omitempty"`
	Truncate  bool     `json:"truncate,omitempty"`
}

// result is what is said of one text, in either dialect.
type result struct {
	Index          *int     `json:"index"`
	RelevanceScore *float64 `json:"relevance_score"`
	Score          *float64 `json:"score"`
}

// Rerank gives a score for each text, in their order; more is better. Failures are an
// *Error, or the end of ctx.
func (c *Client) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	if c.tei.Load() {
		return c.ask(ctx, request{Query: query, Texts: texts, Truncate: true}, len(texts))
	}
	scores, err := c.ask(ctx, request{Model: c.config.Model, Query: query, Documents: texts, TopN: len(texts)}, len(texts))
	var refused *Error
	if errors.As(err, &refused) &&
		(refused.Status == http.StatusBadRequest || refused.Status == http.StatusUnprocessableEntity) {
		if others, otherErr := c.ask(ctx, request{Query: query, Texts: texts, Truncate: true}, len(texts)); otherErr == nil {
			c.tei.Store(true)
			return others, nil
		}
	}
	return scores, err
}

func (c *Client) ask(ctx context.Context, r request, texts int) ([]float64, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("asking the reranker: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.URL, bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Problem: "the reranker cannot be asked", cause: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if c.config.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.Key)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, failed(ctx, &Error{Problem: "the reranker cannot be reached", cause: err})
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case answer.StatusCode != http.StatusOK:
		return nil, &Error{Status: answer.StatusCode, Problem: "the reranker answered " + answer.Status}
	case err != nil:
		return nil, failed(ctx, &Error{Problem: "the reranker's answer was cut off", cause: err})
	case len(raw) > maxAnswer:
		return nil, nonsense("is longer than %d bytes", maxAnswer)
	}
	return read(raw, texts)
}

// failed is an error of the transport, or the end of ctx that it comes from.
func failed(ctx context.Context, err *Error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func nonsense(format string, args ...any) error {
	return &Error{Status: http.StatusOK, Problem: "the reranker's answer " + fmt.Sprintf(format, args...)}
}

// read takes an answer that gives every text one finite score, and no other.
func read(raw []byte, texts int) ([]float64, error) {
	var results []result
	var wrapped struct {
		Results *[]result `json:"results"`
	}
	if err := json.Unmarshal(raw, &wrapped); err == nil && wrapped.Results != nil {
		results = *wrapped.Results
	} else if json.Unmarshal(raw, &results) != nil {
		return nil, nonsense("is no list of results")
	}
	scores, scored := make([]float64, texts), make([]bool, texts)
	for _, r := range results {
		score := cmp.Or(r.RelevanceScore, r.Score)
		switch {
		case r.Index == nil || score == nil:
			return nil, nonsense("has a result without index or score")
		case *r.Index < 0 || *r.Index >= texts:
			return nil, nonsense("is about text %d of %d", *r.Index, texts)
		case scored[*r.Index]:
			return nil, nonsense("has two scores for text %d", *r.Index)
		}
		scores[*r.Index], scored[*r.Index] = *score, true // JSON has no number that is not finite
	}
	if len(results) < texts {
		return nil, nonsense("has scores for %d of %d texts", len(results), texts)
	}
	return scores, nil
}
