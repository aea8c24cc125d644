package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"mneme/cmd/mneme/services"
	"mneme/scripts/eval/internal/documents"
	"mneme/scripts/eval/internal/embedding"
	"mneme/subagent/openaimodel"
	"mneme/subagent/rag"
	"mneme/subagent/rag/rerank"
)

// endpoints say which endpoints are measured beside the words.
type endpoints struct {
	Config string

	EmbedURL, EmbedModel, EmbedKeyEnv string
	Dimensions                        int // of the vectors to ask for; 0 for the model's own
	Weights                           []float64
	Vectors                           string // file
	Limit                             int    // documents of each set; 0 for all

	RerankURL, RerankModel, RerankKeyEnv string
	RerankTop                            int // passages; 0 for the configuration's default
	RerankTimeout                        time.Duration
}

// embeddingFlags are those of the endpoint of embeddings.
func (c *endpoints) embeddingFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Config, "config", "", "Measure the endpoints of this configuration, a `FILE`")
	f.StringVar(&c.EmbedURL, "embed-url", "", "Measure the embeddings of the OpenAI-compatible API at this `URL`, such as https://api.openai.com/v1")
	f.StringVar(&c.EmbedModel, "embed-model", "", "The embedding model's `NAME`")
	f.StringVar(&c.EmbedKeyEnv, "embed-key-env", "", "The environment variable `VAR` that holds the key")
	f.IntVar(&c.Dimensions, "dimensions", 0, "Length `N` of the vectors to ask for; the model's own without it")
	f.StringVar(&c.Vectors, "vectors", "", "Keep the vectors in this `FILE` between runs")
}

// rankingFlags are those of what else ranks documents.
func (c *endpoints) rankingFlags(f *pflag.FlagSet) {
	f.Float64SliceVar(&c.Weights, "vector-weight", nil, "What the vectors weigh in the fusions to measure, `W,W`; 0.3, 0.5 and 0.7 if not given")
	f.Lookup("vector-weight").DefValue = "" // not []
	f.IntVar(&c.Limit, "limit", 0, "Only `N` documents of each set, with the queries that they answer")
	f.StringVar(&c.RerankURL, "rerank-url", "", "Measure the reranker at this `URL`, such as http://127.0.0.1:8085/v1/rerank")
	f.StringVar(&c.RerankModel, "rerank-model", "", "The reranker's model, by its `NAME`")
	f.StringVar(&c.RerankKeyEnv, "rerank-key-env", "", "The environment variable `VAR` that holds its key")
	f.IntVar(&c.RerankTop, "rerank-top", 0, "Passages that it orders, `N` (50)")
	f.DurationVar(&c.RerankTimeout, "rerank-timeout", 0, "How long a query waits for it, a `TIME` (2s)")
}

// open adds what to measure to the options, with the endpoints ready to be asked until stop.
func (c endpoints) open(ctx context.Context, o *documents.Options, tell func(string)) (stop func(), err error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	if err := c.check(cfg); err != nil {
		return nil, usageError{err}
	}
	o.Limit, o.Fusion, o.Weights = c.Limit, rag.Fusion(cfg.Retrieval.Fusion), c.Weights
	if len(o.Weights) == 0 {
		o.Weights = []float64{0.3, 0.5, 0.7}
		if w := cfg.Retrieval.VectorWeight; !slices.Contains(o.Weights, w) {
			o.Weights = slices.Sorted(slices.Values(append(o.Weights, w)))
		}
	}
	if r := cfg.Retrieval.Rerank; r.URL != "" {
		key := r.APIKeyEnv.Reveal()
		o.Rerank = rag.RerankOptions{Reranker: rerank.New(rerank.Config{URL: r.URL, Model: r.Model, Key: key}),
			Top: r.Top, Timeout: r.Timeout}
	}
	e := cfg.Retrieval.Embeddings
	if e.Model == "" {
		return func() {}, nil
	}
	p, backend := &cfg.Proxy, cfg.Proxy.Backends[cfg.Proxy.EmbeddingsBackend]
	p.Active, p.TeammateBackend, p.Teammates = p.EmbeddingsBackend, p.EmbeddingsBackend, nil
	p.Backends = map[string]services.Backend{p.EmbeddingsBackend: backend}
	o.Endpoint = &embedding.Endpoint{Progress: tell}
	if c.Vectors != "" {
		if o.Endpoint.File,
			err = embedding.OpenVectors(c.Vectors, fmt.Sprintf("%s %s@%d", backend.BaseURL, e.Model, e.Dimensions)); err != nil {
			return nil, err
		}
	}
	gateway, stopGateway, err := services.Gateway(ctx, cfg, nil)
	if err != nil {
		return nil, errors.Join(err, o.Endpoint.File.Close())
	}
	o.Endpoint.Embedder = openaimodel.NewEmbedder(openaimodel.EmbedderConfig{
		BaseURL: gateway, Model: e.Model, Dimensions: e.Dimensions, BatchSize: e.BatchSize,
	})
	return func() { stopGateway(); _ = o.Endpoint.File.Close() }, nil // each vector is written already
}

// config is a configuration with the endpoints: that of the file, or one of the flags.
func (c endpoints) config() (services.Config, error) {
	if c.Config != "" {
		if c.EmbedURL+c.EmbedModel+c.EmbedKeyEnv+c.RerankURL+c.RerankModel+c.RerankKeyEnv != "" || c.Dimensions != 0 {
			return services.Config{}, usageError{
				errors.New("--config says which endpoints are measured: leave out the flags about them")}
		}
		cfg, err := services.Load(c.Config, os.Environ())
		if err == nil {
			err = cmp.Or(cfg.RequireKeys(), cfg.RequireEmbeddings(), cfg.RequireSecrets("retrieval.rerank"))
		}
		if err == nil && cfg.Retrieval.Embeddings.Model == "" && cfg.Retrieval.Rerank.URL == "" {
			err = fmt.Errorf("%s has neither retrieval.embeddings nor retrieval.rerank: nothing of it would be measured",
				c.Config)
		}
		return cfg, err
	}
	const name = "embeddings"
	cfg := services.Default()
	r := &cfg.Retrieval
	r.Embeddings.Model, r.Embeddings.Dimensions = c.EmbedModel, c.Dimensions
	r.Rerank.URL, r.Rerank.Model = c.RerankURL, c.RerankModel
	r.Rerank.Top, r.Rerank.Timeout = cmp.Or(c.RerankTop, r.Rerank.Top), cmp.Or(c.RerankTimeout, r.Rerank.Timeout)
	var err error
	if r.Rerank.APIKeyEnv, err = keyIn("--rerank-key-env", c.RerankKeyEnv); err != nil {
		return cfg, err
	}
	b := services.Backend{Kind: services.OpenAI, BaseURL: strings.TrimSuffix(strings.TrimRight(c.EmbedURL, "/"),
		"/embeddings")}
	if b.APIKeyEnv, err = keyIn("--embed-key-env", c.EmbedKeyEnv); err != nil {
		return cfg, err
	}
	cfg.Proxy.Backends, cfg.Proxy.EmbeddingsBackend = map[string]services.Backend{name: b}, name
	return cfg, nil
}

// check says what is wrong with the flags.
func (c endpoints) check(cfg services.Config) error {
	embeds, reranks := cfg.Retrieval.Embeddings.Model != "", cfg.Retrieval.Rerank.URL != ""
	switch {
	case (c.EmbedURL == "") != (c.EmbedModel == ""):
		return errors.New("--embed-url and --embed-model go together")
	case c.EmbedURL != "" && !isHTTP(c.EmbedURL):
		return fmt.Errorf("--embed-url needs an http:// or https:// URL, not %q", c.EmbedURL)
	case c.RerankURL != "" && !isHTTP(c.RerankURL):
		return fmt.Errorf("--rerank-url needs an http:// or https:// URL, not %q", c.RerankURL)
	case !embeds && (c.Dimensions != 0 || c.EmbedKeyEnv != "" || c.Vectors != "" || len(c.Weights) > 0):
		return errors.New("--dimensions, --embed-key-env, --vectors and --vector-weight are about embeddings: add " +
			"--embed-url and --embed-model, or --config")
	case !reranks && c.RerankModel+c.RerankKeyEnv != "" || c.Config == "" && !reranks &&
		(c.RerankTop != 0 || c.RerankTimeout != 0):
		return errors.New("the other flags about reranking need --rerank-url")
	case c.Config != "" && (c.RerankTop != 0 || c.RerankTimeout != 0):
		return errors.New("--config says how much is reranked: leave out --rerank-top and --rerank-timeout")
	case c.Limit < 0 || c.Dimensions < 0 || c.RerankTop < 0 || c.RerankTimeout < 0:
		return errors.New("--limit, --dimensions, --rerank-top and --rerank-timeout must be more than 0")
	}
	for _, w := range c.Weights {
		if !(w > 0 && w < 1) {
			return fmt.Errorf("--vector-weight is more than 0 and less than 1, not %v: words alone and vectors alone are "+
				"measured anyway", w)
		}
	}
	return nil
}

func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// keyIn is the variable that a flag names, if it is set.
func keyIn(flag, name string) (services.Variable, error) {
	v := services.Variable{Name: name, Value: services.Secret(os.Getenv(name))}
	if name != "" && v.Reveal() == "" {
		return v, fmt.Errorf("%s: the environment variable that it names is not set; export the key in it", flag)
	}
	return v, nil
}
