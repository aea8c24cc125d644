package config

import (
	"cmp"
	"time"

	"mneme/subagent/rag"
)

// Rerank is a model behind an endpoint of its own that puts the best passages of a
// search into their order.
type Rerank struct {
	URL       string        `yaml:"url" env:"URL"`                 // the whole address of the route; empty: none
	Model     string        `yaml:"model" env:"MODEL"`             // as the endpoint names it; empty: its only one
	Top       int           `yaml:"top" env:"TOP"`                 // passages that it sees
	Timeout   time.Duration `yaml:"timeout" env:"TIMEOUT"`         // of one search
	APIKeyEnv string        `yaml:"api_key_env" env:"API_KEY_ENV"` // names the variable that holds the key
	APIKey    Secret        `yaml:"-"`                             // what that variable holds
}

func (r Rerank) validate() error {
	const key = "retrieval.rerank"
	return cmp.Or(
		positive(key+".timeout", r.Timeout),
		variable(key+".api_key_env", r.APIKeyEnv, r.APIKey != ""),
		when(r.Top < 2 || r.Top > rag.MaxK, key+".top", "must be from 2 to %d, is %d", rag.MaxK, r.Top),
		when(r.URL == "" && r.Model != "", key+".model",
			"there is no endpoint that could have it; set retrieval.rerank.url"),
		optional(baseURL, key+".url", r.URL),
	)
}

// RequireRerankKey says that the variable of the reranker's key is not set. An apiserver
// calls it before it starts; nobody else needs the key.
func (c Config) RequireRerankKey() error {
	r := c.Retrieval.Rerank
	if r.URL == "" || r.APIKeyEnv == "" || r.APIKey != "" {
		return nil
	}
	return c.origin.locate(bad("retrieval.rerank.api_key_env",
		"the environment variable %s is not set; export the key in it", r.APIKeyEnv))
}
