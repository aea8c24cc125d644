package config

import (
	"cmp"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"mneme/subagent/rag"
	"mneme/subagent/rag/loader"
)

// Extractor is a program or a service that reads the files of an extension.
type Extractor struct {
	Command []string      `yaml:"command" env:"COMMAND"` // a program and its arguments
	URL     string        `yaml:"url" env:"URL"`
	Timeout time.Duration `yaml:"timeout" env:"TIMEOUT"` // for one file; 0: loader.ExtractorTime
}

var fileExtension = regexp.MustCompile(`^\.[a-z0-9]{1,16}$`)

func extractorKey(extension string) string { return join("retrieval.extractors", extension) }

func (r Retrieval) validateExtractors() error {
	for extension, e := range sorted(r.Extractors) {
		key := extractorKey(extension)
		if err := cmp.Or(
			when(!fileExtension.MatchString(extension), key,
				"a file's extension is needed, a full stop and small letters or digits, such as .pdf"),
			when(len(e.Command) > 0 && e.URL != "", key, "command and url are both set; keep one of them"),
			when(slices.Contains(e.Command, ""), key+".command",
				"an empty word in it; a program and its arguments are needed, such as [pdftotext, -, -]"),
			when(len(e.Command) == 0 && e.URL == "", key,
				"says nothing; give a command, such as [pdftotext, -, -], or a url, such as http://127.0.0.1:9998/tika"),
			optional(baseURL, key+".url", e.URL),
			when(e.Timeout < 0, key+".timeout", "must be more than 0, is %s", e.Timeout),
		); err != nil {
			return err
		}
	}
	return nil
}

// Loaders are the extractors as a loader takes them. A command that is not installed
// is an error: an apiserver asks for it before it starts, no other service needs the
// programs.
func (c Config) Loaders() (map[string]loader.Extractor, error) {
	all := map[string]loader.Extractor{}
	for extension, e := range sorted(c.Retrieval.Extractors) {
		limit := cmp.Or(e.Timeout, loader.ExtractorTime)
		if e.URL != "" {
			all[extension] = loader.Service{URL: e.URL, Time: limit}
			continue
		}
		if _, err := exec.LookPath(e.Command[0]); err != nil {
			return nil, c.origin.locate(bad(extractorKey(extension)+".command",
				"there is no program %s that can be run; install it, or give its whole path", e.Command[0]))
		}
		all[extension] = loader.Command{Args: e.Command, Time: limit}
	}
	return all, nil
}

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
// calls it before it starts; no other service needs the key.
func (c Config) RequireRerankKey() error {
	r := c.Retrieval.Rerank
	if r.URL == "" || r.APIKeyEnv == "" || r.APIKey != "" {
		return nil
	}
	return c.origin.locate(bad("retrieval.rerank.api_key_env",
		"the environment variable %s is not set; export the key in it", r.APIKeyEnv))
}
