package openaimodel

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	openai "github.com/sashabaranov/go-openai"

	"mneme/memory/event"
)

// DefaultBatchSize is how many texts go into one request: the smallest limit of
// the servers in use.
const DefaultBatchSize = 32

// EmbedderConfig says which model places texts, and how it is asked.
type EmbedderConfig struct {
	BaseURL    string // the gateway's root
	Model      string // as the backend names it
	Dimensions int    // asked for, and demanded of every vector; 0 leaves them to the model
	BatchSize  int    // texts in one request; 0 for DefaultBatchSize
	HTTP       *http.Client
}

// Embedder gives vectors by a model behind the gateway. It is safe for concurrent
// use. It repeats nothing: the gateway does.
type Embedder struct {
	client *openai.Client
	config EmbedderConfig
	floats atomic.Bool // the endpoint does not know base64
	tokens atomic.Int64
}

// NewEmbedder makes an Embedder. It connects to nothing; a nil HTTP is
// http.DefaultClient.
func NewEmbedder(c EmbedderConfig) *Embedder {
	c.BatchSize = cmp.Or(c.BatchSize, DefaultBatchSize)
	return &Embedder{client: newClient(c.BaseURL, c.HTTP), config: c}
}

// Space names the model, with the dimensions that it is asked for.
func (e *Embedder) Space() string {
	if e.config.Dimensions == 0 {
		return e.config.Model
	}
	return e.config.Model + "@" + strconv.Itoa(e.config.Dimensions)
}

// Embed gives a vector for each text, in their order. Failures are an *Error, or
// the end of ctx.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, 0, len(texts))
	for batch := range slices.Chunk(texts, e.config.BatchSize) {
		part, err := e.batch(ctx, batch)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, part...)
	}
	return vectors, nil
}

func (e *Embedder) batch(ctx context.Context, texts []string) ([][]float32, error) {
	request := openai.EmbeddingRequestStrings{
		Input: texts, Model: openai.EmbeddingModel(e.config.Model), Dimensions: e.config.Dimensions,
		EncodingFormat: openai.EmbeddingEncodingFormatBase64, // a third of the bytes
	}
	if e.floats.Load() {
		request.EncodingFormat = openai.EmbeddingEncodingFormatFloat
	}
	call := &exchange{}
	answer, err := e.client.CreateEmbeddings(context.WithValue(ctx, exchangeKey{}, call), request)
	if request.EncodingFormat == openai.EmbeddingEncodingFormatBase64 && ctx.Err() == nil && unreadable(err) {
		e.floats.Store(true) // some answer in numbers whatever they are asked for
		return e.batch(ctx, texts)
	}
	if err != nil {
		return nil, explain(ctx, err, call)
	}
	e.tokens.Add(int64(answer.Usage.PromptTokens))
	return e.ordered(answer.Data, len(texts))
}

// Tokens is how many tokens of texts the endpoint has counted so far; 0 if it does not
// say.
func (e *Embedder) Tokens() int64 { return e.tokens.Load() }

// ordered puts vectors into the order of their texts, by their index, and checks
// that all are there and of the right size.
func (e *Embedder) ordered(data []openai.Embedding, texts int) ([][]float32, error) {
	vectors := make([][]float32, texts)
	for _, d := range data {
		if d.Index < 0 || d.Index >= texts || vectors[d.Index] != nil {
			return nil,
				&Error{
					Code: event.Unavailable, Message: fmt.Sprintf("the endpoint gave a vector for text %d, which is none or has one",
						d.Index),
				}
		}
		vectors[d.Index] = d.Embedding
	}
	for i, v := range vectors {
		switch {
		case len(v) == 0:
			return nil, &Error{Code: event.Unavailable, Message: fmt.Sprintf("the endpoint gave no vector for text %d of %d", i,
				texts)}
		case e.config.Dimensions != 0 && len(v) != e.config.Dimensions:
			return nil, &Error{Code: event.Unavailable, Message: fmt.Sprintf(
				"the endpoint gave a vector of %d dimensions where %d are configured", len(v), e.config.Dimensions)}
		}
	}
	return vectors, nil
}

// unreadable says whether an answer came, and no refusal, that is not in the
// format asked for.
func unreadable(err error) bool {
	var refusal *openai.RequestError
	var corrupt base64.CorruptInputError
	return !errors.As(err, &refusal) && (isSyntax(err) || errors.As(err, &corrupt))
}
